// SPDX-License-Identifier: Apache-2.0
#include "stator/kv_events/msgpack_writer.h"

namespace stator::kv_events {
namespace {

/// 0 to 3: the power of two of the bytes that `value` needs.
unsigned width_of(uint64_t value) {
  if (value <= 0xff) {
    return 0;
  }
  if (value <= 0xffff) {
    return 1;
  }
  return value <= 0xffff'ffff ? 2 : 3;
}

}  // namespace

MsgpackWriter& MsgpackWriter::big_endian(uint64_t value, unsigned bytes) {
  for (unsigned i = bytes; i-- > 0;) {
    byte(static_cast<unsigned>(value >> (8 * i) & 0xff));
  }
  return *this;
}

MsgpackWriter& MsgpackWriter::integer(uint64_t value) {
  if (value < 0x80) {
    return byte(static_cast<unsigned>(value));
  }
  const unsigned width = width_of(value);
  return byte(0xcc + width).big_endian(value, 1U << width);
}

MsgpackWriter& MsgpackWriter::negative(int64_t value) {
  if (value >= 0) {
    return integer(static_cast<uint64_t>(value));
  }
  const auto bits = static_cast<uint64_t>(value);
  if (value >= -32) {
    return byte(static_cast<unsigned>(bits & 0xff));
  }
  // One bit more than the magnitude needs: the sign.
  const unsigned width = width_of(~bits << 1);
  return byte(0xd0 + width).big_endian(bits, 1U << width);
}

MsgpackWriter& MsgpackWriter::text(std::string_view value) {
  if (value.size() < 32) {
    byte(0xa0 | static_cast<unsigned>(value.size()));
  } else {
    const unsigned width = width_of(value.size());
    byte(0xd9 + width).big_endian(value.size(), 1U << width);
  }
  out_ += value;
  return *this;
}

MsgpackWriter& MsgpackWriter::bytes(std::string_view value) {
  const unsigned width = width_of(value.size());
  byte(0xc4 + width).big_endian(value.size(), 1U << width);
  out_ += value;
  return *this;
}

MsgpackWriter& MsgpackWriter::header(uint32_t count, unsigned short_tag, unsigned tag16) {
  if (count < 16) {
    return byte(short_tag | count);
  }
  return count <= 0xffff ? byte(tag16).big_endian(count, 2) : byte(tag16 + 1).big_endian(count, 4);
}

}  // namespace stator::kv_events
