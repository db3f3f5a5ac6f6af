// SPDX-License-Identifier: Apache-2.0
#include "stator/transfer/ucx_info.h"

#include <algorithm>
#include <cstring>

namespace stator::transfer {
namespace {

/// Smallest encoding of a key: what bounds their number by the bytes that came.
constexpr size_t kKeyBytesMin = 8 + 8 + 4;

void append_text(std::string& out, std::string_view text) {
  const auto size = static_cast<uint32_t>(text.size());
  out.append(reinterpret_cast<const char*>(&size), sizeof size);
  out += text;
}

template <typename T>
bool take(std::string_view& rest, T& value) {
  if (rest.size() < sizeof value) {
    return false;
  }
  std::memcpy(&value, rest.data(), sizeof value);
  rest.remove_prefix(sizeof value);
  return true;
}

bool take_text(std::string_view& rest, std::string& out) {
  uint32_t size = 0;
  if (!take(rest, size) || size > rest.size()) {
    return false;
  }
  out.assign(rest.substr(0, size));
  rest.remove_prefix(size);
  return true;
}

}  // namespace

std::string encode(const UcxInfo& info) {
  std::string out;
  append_text(out, info.address);
  const auto count = static_cast<uint32_t>(info.keys.size());
  out.append(reinterpret_cast<const char*>(&count), sizeof count);
  for (const UcxInfo::Key& key : info.keys) {
    out.append(reinterpret_cast<const char*>(&key.addr), sizeof key.addr);
    out.append(reinterpret_cast<const char*>(&key.len), sizeof key.len);
    append_text(out, key.packed);
  }
  return out;
}

std::optional<UcxInfo> decode_ucx_info(std::string_view bytes) {
  UcxInfo out;
  uint32_t count = 0;
  if (!take_text(bytes, out.address) || out.address.empty() || !take(bytes, count) ||
      count > bytes.size() / kKeyBytesMin) {
    return std::nullopt;
  }
  for (uint32_t i = 0; i < count; ++i) {
    UcxInfo::Key& key = out.keys.emplace_back();
    if (!take(bytes, key.addr) || !take(bytes, key.len) || !take_text(bytes, key.packed) ||
        key.addr + key.len < key.addr || key.packed.empty()) {
      return std::nullopt;
    }
  }
  return bytes.empty() ? std::optional(std::move(out)) : std::nullopt;
}

}  // namespace stator::transfer
