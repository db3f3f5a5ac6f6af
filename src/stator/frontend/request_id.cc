// SPDX-License-Identifier: Apache-2.0
#include "stator/frontend/request_id.h"

#include <fmt/format.h>

#include <cctype>
#include <optional>
#include <string_view>

namespace stator::frontend {
namespace {

bool is_uuid(std::string_view text) {
  if (text.size() != 36) {
    return false;
  }
  for (size_t i = 0; i < text.size(); ++i) {
    const bool dash = i == 8 || i == 13 || i == 18 || i == 23;
    if (dash ? text[i] != '-' : std::isxdigit(static_cast<unsigned char>(text[i])) == 0) {
      return false;
    }
  }
  return true;
}

/// The client's own, under our name or Dynamo's deprecated one.
std::optional<std::string_view> own_id(const net::HttpRequest& request) {
  for (const std::string_view name : {"x-request-id", "x-dynamo-request-id"}) {
    if (const auto given = request.header(name); given && is_uuid(*given)) {
      return given;
    }
  }
  return std::nullopt;
}

}  // namespace

bool names_itself(const net::HttpRequest& request) {
  return own_id(request).has_value();
}

std::string make_request_id(const net::HttpRequest& request, Random& random) {
  if (const auto own = own_id(request)) {
    return std::string(*own);
  }
  const uint64_t high = (random.next() & ~0xF000ULL) | 0x4000ULL;
  const uint64_t low = (random.next() & ~(3ULL << 62)) | (2ULL << 62);
  return fmt::format("{:08x}-{:04x}-{:04x}-{:04x}-{:012x}", high >> 32, (high >> 16) & 0xFFFF,
                     high & 0xFFFF, low >> 48, low & 0xFFFFFFFFFFFFULL);
}

}  // namespace stator::frontend
