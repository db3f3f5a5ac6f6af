// SPDX-License-Identifier: Apache-2.0
#include "stator/perf/detail/snappy.h"

#include <algorithm>
#include <cstdint>

namespace stator::perf {
namespace {

/// Little-endian bytes of a block, one after another.
class Bytes {
 public:
  explicit Bytes(std::string_view bytes) : bytes_(bytes) {}

  bool empty() const { return bytes_.empty(); }
  std::optional<uint32_t> number(size_t size) {
    if (bytes_.size() < size) {
      return std::nullopt;
    }
    uint32_t out = 0;
    for (size_t i = 0; i < size; ++i) {
      out |= uint32_t{static_cast<uint8_t>(bytes_[i])} << (8 * i);
    }
    bytes_.remove_prefix(size);
    return out;
  }
  std::optional<uint64_t> varint() {
    uint64_t out = 0;
    for (uint32_t shift = 0; shift < 35; shift += 7) {
      const auto byte = number(1);
      if (!byte) {
        return std::nullopt;
      }
      out |= uint64_t{*byte & 127U} << shift;
      if (*byte < 128) {
        return out;
      }
    }
    return std::nullopt;
  }
  std::optional<std::string_view> take(size_t size) {
    if (bytes_.size() < size) {
      return std::nullopt;
    }
    const std::string_view out = bytes_.substr(0, size);
    bytes_.remove_prefix(size);
    return out;
  }

 private:
  std::string_view bytes_;
};

bool add_literal(Bytes& in, uint32_t tag, std::string& out, size_t most) {
  size_t length = tag >> 2U;
  if (length >= 60) {  // the length follows, in one to four bytes
    const auto longer = in.number(length - 59);
    if (!longer) {
      return false;
    }
    length = *longer;
  }
  const auto bytes = in.take(length + 1);
  if (!bytes || out.size() + bytes->size() > most) {
    return false;
  }
  out += *bytes;
  return true;
}

/// Content that was there before, perhaps overlapping what it becomes.
bool add_copy(Bytes& in, uint32_t tag, std::string& out, size_t most) {
  const uint32_t kind = tag & 3U;
  const auto low = in.number(kind == 1 ? 1 : kind == 2 ? 2 : 4);
  if (!low) {
    return false;
  }
  const size_t length = kind == 1 ? 4 + ((tag >> 2U) & 7U) : 1 + (tag >> 2U);
  const size_t offset = kind == 1 ? *low | (tag >> 5U) << 8U : *low;
  if (offset == 0 || offset > out.size() || out.size() + length > most) {
    return false;
  }
  for (size_t i = 0; i < length; ++i) {
    out += out[out.size() - offset];
  }
  return true;
}

}  // namespace

std::optional<std::string> unpack_snappy(std::string_view stored, size_t plain_bytes) {
  Bytes in(stored);
  const auto length = in.varint();
  if (!length || *length != plain_bytes) {
    return std::nullopt;
  }
  std::string out;
  // A byte of a block is at most 64 of content: what a damaged length asks for is not allocated.
  out.reserve(std::min(plain_bytes, 64 * stored.size()));
  while (!in.empty()) {
    const uint32_t tag = *in.number(1);
    const bool fits = (tag & 3U) == 0 ? add_literal(in, tag, out, plain_bytes)
                                      : add_copy(in, tag, out, plain_bytes);
    if (!fits) {
      return std::nullopt;
    }
  }
  return out.size() == plain_bytes ? std::optional(std::move(out)) : std::nullopt;
}

}  // namespace stator::perf
