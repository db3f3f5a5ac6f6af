// SPDX-License-Identifier: Apache-2.0
#include "stator/kv_events/msgpack_reader.h"

#include <fmt/format.h>

#include <bit>

namespace stator::kv_events {
namespace {

using Kind = MsgpackReader::Kind;

// The tags from 0xc0 to 0xdf, in order. 0xc1 is never used.
constexpr Kind kKinds[32] = {Kind::kNil,       Kind::kEnd,       Kind::kBool,      Kind::kBool,
                             Kind::kBytes,     Kind::kBytes,     Kind::kBytes,     Kind::kExtension,
                             Kind::kExtension, Kind::kExtension, Kind::kFloat,     Kind::kFloat,
                             Kind::kUnsigned,  Kind::kUnsigned,  Kind::kUnsigned,  Kind::kUnsigned,
                             Kind::kNegative,  Kind::kNegative,  Kind::kNegative,  Kind::kNegative,
                             Kind::kExtension, Kind::kExtension, Kind::kExtension, Kind::kExtension,
                             Kind::kExtension, Kind::kText,      Kind::kText,      Kind::kText,
                             Kind::kArray,     Kind::kArray,     Kind::kMap,       Kind::kMap};

Kind kind_of(uint8_t tag) {
  if (tag < 0x80) {
    return Kind::kUnsigned;
  }
  if (tag < 0x90) {
    return Kind::kMap;
  }
  if (tag < 0xa0) {
    return Kind::kArray;
  }
  if (tag < 0xc0) {
    return Kind::kText;
  }
  return tag < 0xe0 ? kKinds[tag - 0xc0] : Kind::kNegative;
}

}  // namespace

Kind MsgpackReader::peek() const {
  if (!ok() || rest_.empty()) {
    return Kind::kEnd;
  }
  const auto tag = static_cast<uint8_t>(rest_.front());
  const Kind kind = kind_of(tag);
  // Writers may use a signed form for a value that is not below 0: the value decides.
  if (kind == Kind::kNegative && tag < 0xe0 && rest_.size() > 1 &&
      static_cast<uint8_t>(rest_[1]) < 0x80) {
    return Kind::kUnsigned;
  }
  return kind;
}

Status MsgpackReader::status() const {
  if (ok()) {
    return {};
  }
  return Error(Code::kCorrupt, fmt::format("MessagePack at byte {}: {}", offset(), problem_));
}

void MsgpackReader::fail(const char* problem) {
  if (ok()) {
    problem_ = problem;
  }
}

std::string_view MsgpackReader::take(size_t bytes) {
  if (!ok() || bytes > rest_.size()) {
    fail("the value is cut off");
    return {};
  }
  const std::string_view taken = rest_.substr(0, bytes);
  rest_.remove_prefix(bytes);
  return taken;
}

uint64_t MsgpackReader::take_big_endian(size_t bytes) {
  uint64_t value = 0;
  for (const char byte : take(bytes)) {
    value = value << 8 | static_cast<uint8_t>(byte);
  }
  return value;
}

uint8_t MsgpackReader::take_tag() {
  const std::string_view tag = take(1);
  return tag.empty() ? 0xc1 : static_cast<uint8_t>(tag.front());
}

bool MsgpackReader::take_nil() {
  if (peek() != Kind::kNil) {
    return false;
  }
  take_tag();
  return true;
}

bool MsgpackReader::read_bool() {
  if (peek() != Kind::kBool) {
    fail("expected true or false");
    return false;
  }
  return take_tag() == 0xc3;
}

uint64_t MsgpackReader::read_unsigned() {
  if (peek() != Kind::kUnsigned) {
    fail("expected an integer that is not below 0");
    return 0;
  }
  return read_integer_bits();
}

uint64_t MsgpackReader::read_unsigned_max(uint64_t max) {
  const uint64_t value = read_unsigned();
  if (value > max) {
    fail("the integer is too large for its field");
    return 0;
  }
  return value;
}

uint64_t MsgpackReader::read_integer_bits() {
  const Kind kind = peek();
  if (kind != Kind::kUnsigned && kind != Kind::kNegative) {
    fail("expected an integer");
    return 0;
  }
  const uint8_t tag = take_tag();
  if (tag < 0x80 || tag >= 0xe0) {
    return static_cast<uint64_t>(static_cast<int64_t>(static_cast<int8_t>(tag)));
  }
  const size_t bytes = size_t{1} << (tag & 3);  // 0xcc..0xcf unsigned, 0xd0..0xd3 signed
  const uint64_t value = take_big_endian(bytes);
  if (tag < 0xd0 || bytes == 8) {
    return value;
  }
  const auto unused_bits = static_cast<int>(64 - 8 * bytes);
  return static_cast<uint64_t>(static_cast<int64_t>(value << unused_bits) >> unused_bits);
}

double MsgpackReader::read_number() {
  switch (peek()) {
    case Kind::kUnsigned:
      return static_cast<double>(read_integer_bits());
    case Kind::kNegative:
      return static_cast<double>(static_cast<int64_t>(read_integer_bits()));
    case Kind::kFloat:
      break;
    default:
      fail("expected a number");
      return 0;
  }
  if (take_tag() == 0xca) {
    return static_cast<double>(std::bit_cast<float>(static_cast<uint32_t>(take_big_endian(4))));
  }
  return std::bit_cast<double>(take_big_endian(8));
}

std::string_view MsgpackReader::read_text() {
  if (peek() != Kind::kText) {
    fail("expected a text");
    return {};
  }
  const uint8_t tag = take_tag();
  return take(tag < 0xc0 ? tag & 31U : take_big_endian(size_t{1} << (tag - 0xd9)));
}

std::string_view MsgpackReader::read_bytes() {
  if (peek() != Kind::kBytes) {
    fail("expected bytes");
    return {};
  }
  const uint8_t tag = take_tag();
  return take(take_big_endian(size_t{1} << (tag - 0xc4)));
}

uint32_t MsgpackReader::checked_count(uint64_t count, uint64_t elements_each) {
  if (ok() && count * elements_each > rest_.size()) {
    fail("more elements are announced than bytes are left");
  }
  return ok() ? static_cast<uint32_t>(count) : 0;
}

uint32_t MsgpackReader::read_array() {
  if (peek() != Kind::kArray) {
    fail("expected an array");
    return 0;
  }
  const uint8_t tag = take_tag();
  return checked_count(tag < 0xa0 ? tag & 15U : take_big_endian(tag == 0xdc ? 2 : 4), 1);
}

uint32_t MsgpackReader::read_map() {
  if (peek() != Kind::kMap) {
    fail("expected a map");
    return 0;
  }
  const uint8_t tag = take_tag();
  return checked_count(tag < 0x90 ? tag & 15U : take_big_endian(tag == 0xde ? 2 : 4), 2);
}

void MsgpackReader::skip() {
  // Each turn consumes a byte or fails; R2 keeps the sum far from overflowing.
  for (uint64_t outstanding = 1; outstanding > 0 && ok(); --outstanding) {
    switch (peek()) {
      case Kind::kNil:
      case Kind::kBool:
        take_tag();
        break;
      case Kind::kUnsigned:
      case Kind::kNegative:
        read_integer_bits();
        break;
      case Kind::kFloat:
        read_number();
        break;
      case Kind::kText:
        read_text();
        break;
      case Kind::kBytes:
        read_bytes();
        break;
      case Kind::kArray:
        outstanding += read_array();
        break;
      case Kind::kMap:
        outstanding += uint64_t{2} * read_map();
        break;
      case Kind::kExtension: {
        const uint8_t tag = take_tag();
        const uint64_t bytes =
            tag >= 0xd4 ? uint64_t{1} << (tag - 0xd4) : take_big_endian(size_t{1} << (tag - 0xc7));
        take(bytes + 1);  // its type, then its content
        break;
      }
      case Kind::kEnd:
        fail("expected a value");
        break;
    }
  }
}

}  // namespace stator::kv_events
