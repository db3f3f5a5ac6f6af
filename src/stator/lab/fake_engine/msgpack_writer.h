// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace stator::fake_engine {

/// Appends MessagePack values to a string, each in its shortest form, as msgspec and msgpack-python
/// do. Arrays and maps are headers; their elements (for maps: key, value, key, …) follow.
/// Source: https://github.com/msgpack/msgpack/blob/master/spec.md
class MsgpackWriter {
 public:
  /// `out` must outlive the writer.
  explicit MsgpackWriter(std::string& out) : out_(out) {}

  MsgpackWriter& nil();
  MsgpackWriter& boolean(bool value);
  MsgpackWriter& unsigned_integer(uint64_t value);
  MsgpackWriter& integer(int64_t value);
  MsgpackWriter& float64(double value);
  MsgpackWriter& text(std::string_view value);
  MsgpackWriter& binary(std::string_view value);
  MsgpackWriter& array(size_t elements);
  MsgpackWriter& map(size_t pairs);

 private:
  void byte(uint8_t value) { out_.push_back(static_cast<char>(value)); }
  void big_endian(uint64_t value, int bytes);
  void sized(size_t size, uint8_t tag16, uint8_t tag32);

  std::string& out_;
};

}  // namespace stator::fake_engine
