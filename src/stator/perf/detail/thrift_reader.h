// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

namespace stator::perf {

/// Reads Thrift's compact protocol (thrift-compact-protocol.md), in which Parquet keeps its
/// metadata. Does not throw and never reads beyond the bytes: after a mistake ok() is false and
/// everything reads as zero.
///
///   ThriftReader reader(bytes);
///   reader.read_struct([&](int field, ThriftReader::Type type) {
///     if (field == 3) { rows = reader.integer(); } else { reader.skip(type); }
///   });
class ThriftReader {
 public:
  enum class Type : uint8_t {
    kStop = 0,
    kTrue = 1,
    kFalse = 2,
    kByte = 3,
    kI16 = 4,
    kI32 = 5,
    kI64 = 6,
    kDouble = 7,
    kBinary = 8,
    kList = 9,
    kSet = 10,
    kMap = 11,
    kStruct = 12,
  };

  explicit ThriftReader(std::string_view bytes) : bytes_(bytes) {}

  bool ok() const { return ok_; }
  size_t position() const { return position_; }

  int64_t integer() {
    const uint64_t raw = varint();
    return static_cast<int64_t>(raw >> 1) ^ -static_cast<int64_t>(raw & 1);
  }

  std::string_view binary() {
    const uint64_t length = varint();
    if (length > bytes_.size() - position_) {
      return fail();
    }
    position_ += length;
    return bytes_.substr(position_ - length, length);
  }

  /// `field(number, type)` must read the value or skip it.
  template <typename Field>
  void read_struct(Field&& field) {
    if (++depth_ > kDepthMax) {
      fail();
    }
    int64_t number = 0;
    while (ok_) {
      const uint8_t header = byte();
      const auto type = static_cast<Type>(header & 15);
      if (type == Type::kStop) {
        break;
      }
      number = (header >> 4) != 0 ? number + (header >> 4) : integer();
      field(static_cast<int>(number), type);
    }
    --depth_;
  }

  /// `element(type)` must read or skip each.
  template <typename Element>
  void read_list(Element&& element) {
    const uint8_t header = byte();
    const auto type = static_cast<Type>(header & 15);
    uint64_t count = header >> 4;
    if (count == 15) {
      count = varint();
    }
    for (uint64_t i = 0; i < count && ok_; ++i) {
      element(type);
    }
  }

  void skip(Type type) {
    switch (type) {
      case Type::kTrue:
      case Type::kFalse:
        return;
      case Type::kByte:
        byte();
        return;
      case Type::kI16:
      case Type::kI32:
      case Type::kI64:
        varint();
        return;
      case Type::kDouble:
        position_ + 8 <= bytes_.size() ? void(position_ += 8) : void(fail());
        return;
      case Type::kBinary:
        binary();
        return;
      case Type::kList:
      case Type::kSet:
        // Booleans take a byte each in a list.
        read_list(
            [this](Type of) { skip(of == Type::kTrue || of == Type::kFalse ? Type::kByte : of); });
        return;
      case Type::kStruct:
        read_struct([this](int /*field*/, Type of) { skip(of); });
        return;
      default:
        fail();  // maps are in no Parquet metadata
    }
  }

 private:
  static constexpr int kDepthMax = 32;

  std::string_view fail() {
    ok_ = false;
    position_ = bytes_.size();
    return {};
  }

  uint8_t byte() {
    if (position_ >= bytes_.size()) {
      fail();
      return 0;
    }
    return static_cast<uint8_t>(bytes_[position_++]);
  }

  uint64_t varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const uint8_t next = byte();
      value |= uint64_t{next & 127U} << shift;
      if (next < 128) {
        return value;
      }
    }
    fail();
    return 0;
  }

  std::string_view bytes_;
  size_t position_ = 0;
  int depth_ = 0;
  bool ok_ = true;
};

}  // namespace stator::perf
