// SPDX-License-Identifier: Apache-2.0
#include "stator/lab/fake_engine/msgpack_writer.h"

#include <bit>

namespace stator::fake_engine {

void MsgpackWriter::big_endian(uint64_t value, int bytes) {
  for (int shift = (bytes - 1) * 8; shift >= 0; shift -= 8) {
    byte(static_cast<uint8_t>(value >> static_cast<unsigned>(shift)));
  }
}

void MsgpackWriter::sized(size_t size, uint8_t tag16, uint8_t tag32) {
  const bool small = size <= UINT16_MAX;
  byte(small ? tag16 : tag32);
  big_endian(size, small ? 2 : 4);
}

MsgpackWriter& MsgpackWriter::nil() {
  byte(0xC0);
  return *this;
}

MsgpackWriter& MsgpackWriter::boolean(bool value) {
  byte(value ? 0xC3 : 0xC2);
  return *this;
}

MsgpackWriter& MsgpackWriter::unsigned_integer(uint64_t value) {
  if (value < 0x80) {
    byte(static_cast<uint8_t>(value));
  } else if (value <= UINT8_MAX) {
    byte(0xCC);
    big_endian(value, 1);
  } else if (value <= UINT16_MAX) {
    byte(0xCD);
    big_endian(value, 2);
  } else if (value <= UINT32_MAX) {
    byte(0xCE);
    big_endian(value, 4);
  } else {
    byte(0xCF);
    big_endian(value, 8);
  }
  return *this;
}

MsgpackWriter& MsgpackWriter::integer(int64_t value) {
  if (value >= 0) {
    return unsigned_integer(static_cast<uint64_t>(value));
  }
  const auto bits = static_cast<uint64_t>(value);
  if (value >= -32) {
    byte(static_cast<uint8_t>(bits));
  } else if (value >= INT8_MIN) {
    byte(0xD0);
    big_endian(bits, 1);
  } else if (value >= INT16_MIN) {
    byte(0xD1);
    big_endian(bits, 2);
  } else if (value >= INT32_MIN) {
    byte(0xD2);
    big_endian(bits, 4);
  } else {
    byte(0xD3);
    big_endian(bits, 8);
  }
  return *this;
}

MsgpackWriter& MsgpackWriter::float64(double value) {
  byte(0xCB);
  big_endian(std::bit_cast<uint64_t>(value), 8);
  return *this;
}

MsgpackWriter& MsgpackWriter::text(std::string_view value) {
  if (value.size() < 32) {
    byte(static_cast<uint8_t>(0xA0 | value.size()));
  } else if (value.size() <= UINT8_MAX) {
    byte(0xD9);
    byte(static_cast<uint8_t>(value.size()));
  } else {
    sized(value.size(), 0xDA, 0xDB);
  }
  out_.append(value);
  return *this;
}

MsgpackWriter& MsgpackWriter::binary(std::string_view value) {
  if (value.size() <= UINT8_MAX) {
    byte(0xC4);
    byte(static_cast<uint8_t>(value.size()));
  } else {
    sized(value.size(), 0xC5, 0xC6);
  }
  out_.append(value);
  return *this;
}

MsgpackWriter& MsgpackWriter::array(size_t elements) {
  if (elements < 16) {
    byte(static_cast<uint8_t>(0x90 | elements));
  } else {
    sized(elements, 0xDC, 0xDD);
  }
  return *this;
}

MsgpackWriter& MsgpackWriter::map(size_t pairs) {
  if (pairs < 16) {
    byte(static_cast<uint8_t>(0x80 | pairs));
  } else {
    sized(pairs, 0xDE, 0xDF);
  }
  return *this;
}

}  // namespace stator::fake_engine
