// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "stator/core/result.h"

namespace stator::kv_events {

/// Reads one MessagePack value after the other out of bytes that somebody else keeps. Copies
/// nothing, allocates nothing, never reads beyond the end.
///
///   MsgpackReader in(payload);
///   const uint32_t fields = in.read_array();
///   for (uint32_t i = 0; i < fields && in.ok(); ++i) { sum += in.read_unsigned(); }
///   STATOR_CHECK(in.status());
///
/// R1  The first failure sticks: every read after it gives zero or nothing, and `status` tells it.
/// R2  A header never announces more elements than bytes are left (each takes at least one), so a
///     loop over `read_array` is bounded by the input.
/// R3  `skip` uses no recursion, so nesting cannot exhaust the stack.
///
/// Single-threaded. Format: https://github.com/msgpack/msgpack/blob/master/spec.md
class MsgpackReader {
 public:
  enum class Kind : uint8_t {
    kNil,
    kBool,
    kUnsigned,  ///< any integer that is not below 0
    kNegative,
    kFloat,
    kText,
    kBytes,
    kArray,
    kMap,
    kExtension,
    kEnd  ///< no bytes left, or failed
  };

  explicit MsgpackReader(std::string_view bytes) : rest_(bytes), bytes_total_(bytes.size()) {}

  /// Of the next value; does not consume it.
  Kind peek() const;
  bool at_end() const { return rest_.empty(); }
  bool ok() const { return problem_ == nullptr; }
  /// kCorrupt with what was wrong and at which byte.
  Status status() const;
  size_t offset() const { return bytes_total_ - rest_.size(); }

  /// True, and consumed, if the next value is nil.
  bool take_nil();
  bool read_bool();
  uint64_t read_unsigned();
  /// Fails beyond `max`, as for anything that ends in a narrower field.
  uint64_t read_unsigned_max(uint64_t max);
  /// Any integer in its 64 bits; those below 0 as two's complement.
  uint64_t read_integer_bits();
  /// Integers too.
  double read_number();
  /// UTF-8 is not checked. A view into the input.
  std::string_view read_text();
  std::string_view read_bytes();
  /// Number of elements that follow.
  uint32_t read_array();
  /// Number of (key, value) pairs that follow.
  uint32_t read_map();
  /// One value with all it contains.
  void skip();

  /// For callers that find the content wrong. `problem` is a literal.
  void fail(const char* problem);

 private:
  uint64_t take_big_endian(size_t bytes);
  std::string_view take(size_t bytes);
  uint8_t take_tag();
  uint32_t checked_count(uint64_t count, uint64_t elements_each);

  std::string_view rest_;
  size_t bytes_total_;
  const char* problem_ = nullptr;
};

}  // namespace stator::kv_events
