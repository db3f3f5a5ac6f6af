// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <string>
#include <string_view>
#include <vector>

#include "stator/core/result.h"

namespace stator::simulator {

/// The lines of a trace, one at a time: memory is that of the longest line, at most kLineBytesMax.
/// `input` outlives the object.
class LineReader {
 public:
  static constexpr size_t kLineBytesMax = 64 << 20;
  /// So many bytes behind a line may be read, whatever they are (what simdjson asks for).
  static constexpr size_t kPadding = 64;

  LineReader(std::istream& input, std::string name) : input_(input), name_(std::move(name)) {}

  /// The next line that is not blank, without its end; valid until the next call. False at the end.
  Result<bool> next(std::string_view& line);
  /// The same, and next() will return it again.
  Result<bool> peek(std::string_view& line);

  /// What has been read of the input and comes after the lines returned or peeked at.
  std::string_view buffered() const { return {buffer_.data() + begin_, end_ - begin_}; }

  /// Of the line returned last, from 1.
  uint64_t number() const { return number_; }
  const std::string& name() const { return name_; }
  /// "trace.jsonl:7: field: what".
  Error fail(std::string_view field, std::string_view what) const;

 private:
  Result<bool> read_line(std::string_view& line);
  bool fill();

  std::istream& input_;
  const std::string name_;
  std::vector<char> buffer_;
  size_t begin_ = 0;  // of what is not yet returned
  size_t end_ = 0;
  uint64_t number_ = 0;
  std::string_view peeked_;
  bool has_peeked_ = false;
};

}  // namespace stator::simulator
