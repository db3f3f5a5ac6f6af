// SPDX-License-Identifier: Apache-2.0
#include "stator/storage/keep_request.h"

#include <cstring>
#include <string_view>

#include "stator/core/raw_bytes.h"

namespace stator::storage {
namespace {

constexpr std::string_view kMagic("STKEEP1\0", 8);

}  // namespace

std::string encode(const KeepRequest& request) {
  std::string packet(kMagic);
  packet.resize(KeepRequest::kHead);
  put_raw(std::as_writable_bytes(std::span(packet)), 8, request.bytes);
  return packet + request.name.substr(0, KeepRequest::kNameMax);
}

std::optional<KeepRequest> decode_keep_request(std::span<const std::byte> packet) {
  if (packet.size() <= KeepRequest::kHead ||
      packet.size() > KeepRequest::kHead + KeepRequest::kNameMax ||
      std::memcmp(packet.data(), kMagic.data(), kMagic.size()) != 0) {
    return std::nullopt;
  }
  const auto name = packet.subspan(KeepRequest::kHead);
  return KeepRequest{.bytes = get_raw<uint64_t>(packet, 8),
                     .name = {reinterpret_cast<const char*>(name.data()), name.size()}};
}

}  // namespace stator::storage
