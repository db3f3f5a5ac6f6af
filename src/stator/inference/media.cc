// SPDX-License-Identifier: Apache-2.0
#include "stator/inference/media.h"

#include <charconv>

namespace stator::inference {
namespace {

constexpr std::array<std::string_view, kMediaKindCount> kNames = {"image", "audio", "video"};
constexpr size_t kHashDigits = 16;

}  // namespace

std::string_view to_string(MediaKind kind) {
  return kNames[static_cast<size_t>(kind)];
}

std::optional<MediaKind> find_media_kind(std::string_view name) {
  for (size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == name) {
      return static_cast<MediaKind>(i);
    }
  }
  return std::nullopt;
}

std::vector<std::string> MediaKinds::names() const {
  std::vector<std::string> out;
  for (size_t i = 0; i < kMediaKindCount; ++i) {
    if (has(static_cast<MediaKind>(i))) {
      out.emplace_back(kNames[i]);
    }
  }
  return out;
}

std::string MediaKinds::text() const {
  std::string out;
  for (const std::string& name : names()) {
    out += out.empty() ? "" : ",";
    out += name;
  }
  return out;
}

uint64_t MediaBlob::hash() const {
  uint64_t value = 0;
  if (digest.size() >= kHashDigits) {
    std::from_chars(digest.data(), digest.data() + kHashDigits, value, 16);
  }
  return value;
}

}  // namespace stator::inference
