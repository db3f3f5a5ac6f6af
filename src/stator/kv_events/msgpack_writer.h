// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace stator::kv_events {

/// Appends MessagePack values to a string, each in its shortest form. Containers are announced with
/// their number of elements; nobody checks that those follow.
///
///   MsgpackWriter out;
///   out.map(1).text("inc").integer(7);
///   send(out.take());
class MsgpackWriter {
 public:
  MsgpackWriter& nil() { return byte(0xc0); }
  MsgpackWriter& boolean(bool value) { return byte(value ? 0xc3 : 0xc2); }
  MsgpackWriter& integer(uint64_t value);
  MsgpackWriter& negative(int64_t value);  ///< any value; those from 0 on as `integer`
  MsgpackWriter& number(double value) {
    return byte(0xcb).big_endian(std::bit_cast<uint64_t>(value), 8);
  }
  MsgpackWriter& text(std::string_view value);
  MsgpackWriter& bytes(std::string_view value);
  MsgpackWriter& array(uint32_t elements) { return header(elements, 0x90, 0xdc); }
  MsgpackWriter& map(uint32_t pairs) { return header(pairs, 0x80, 0xde); }

  const std::string& bytes_so_far() const { return out_; }
  std::string take() { return std::move(out_); }

 private:
  MsgpackWriter& byte(unsigned value) {
    out_.push_back(static_cast<char>(value));
    return *this;
  }
  MsgpackWriter& big_endian(uint64_t value, unsigned bytes);
  MsgpackWriter& header(uint32_t count, unsigned short_tag, unsigned tag16);

  std::string out_;
};

}  // namespace stator::kv_events
