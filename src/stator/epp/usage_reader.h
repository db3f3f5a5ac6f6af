// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace stator::epp {

/// Tokens of an answer, as its server counts them; nothing where it does not say.
struct TokenUsage {
  std::optional<uint64_t> prompt;
  std::optional<uint64_t> output;
  std::optional<uint64_t> cached;  ///< of the prompt
};

/// Reads `usage` of an answer that passes by in pieces of any size: of the last line of an event
/// stream that has one, or of a JSON body's end. OpenAI's names and Anthropic's. Keeps 64 KiB of a
/// line or of a body's end at most; what is beyond is not read.
class UsageReader {
 public:
  static constexpr size_t kKeptMax = size_t{64} << 10;

  /// Of the answer's headers; before the first piece.
  void set_content_type(std::string_view type);
  void add(std::string_view piece);
  /// After the last piece.
  TokenUsage finish();

 private:
  void add_lines(std::string_view piece);
  void on_line(std::string_view line);

  bool is_stream_ = false;
  bool is_cut_ = false;  ///< the line is longer than what is kept
  std::string kept_;     ///< of a line, or of a body's end
  TokenUsage usage_;
};

/// The last "usage" object of a piece of JSON, over what is known; false if there is none.
bool read_usage(std::string_view json, TokenUsage& usage);

}  // namespace stator::epp
