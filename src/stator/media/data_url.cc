// SPDX-License-Identifier: Apache-2.0
#include "stator/media/data_url.h"

#include <fmt/format.h>

#include <algorithm>

#include "stator/text/base64.h"

namespace stator::media {
namespace {

constexpr std::string_view kScheme = "data:";
constexpr std::string_view kBase64 = ";base64";
constexpr size_t kTypeBytesMax = 128;

std::string to_lower(std::string_view text) {
  std::string out(text);
  std::ranges::transform(out, out.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c;
  });
  return out;
}

/// type/subtype of RFC 6838's characters.
bool is_media_type(std::string_view text) {
  const auto good = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
           std::string_view("!#$&-^_.+/").contains(c);
  };
  return text.size() <= kTypeBytesMax && std::ranges::all_of(text, good) &&
         std::ranges::count(text, '/') == 1 && !text.starts_with('/') && !text.ends_with('/');
}

}  // namespace

bool is_data_url(std::string_view source) {
  return to_lower(source.substr(0, kScheme.size())) == kScheme;
}

Result<RawMedia> read_data_url(std::string_view url, uint64_t bytes_max) {
  const auto refuse = [](std::string_view why) {
    return Error(Code::kInvalidArgument, std::string(why));
  };
  url.remove_prefix(std::min(kScheme.size(), url.size()));
  const size_t comma = url.substr(0, 2 * kTypeBytesMax).find(',');
  if (comma == std::string_view::npos) {
    return refuse("is a data: URL without data: write data:image/png;base64,…");
  }
  std::string head = to_lower(url.substr(0, comma));
  if (!head.ends_with(kBase64)) {
    return refuse("is a data: URL that is not in base64: write data:image/png;base64,…");
  }
  head.resize(head.size() - kBase64.size());
  head.resize(std::min(head.find(';'), head.size()));
  if (!head.empty() && !is_media_type(head)) {
    return refuse("is a data: URL whose media type is none");
  }
  const std::string_view digits = url.substr(comma + 1);
  if (digits.size() / 4 * 3 > bytes_max + 2) {
    return Error(Code::kTooLarge,
                 fmt::format("has more than {} bytes (media.max_bytes)", bytes_max));
  }
  auto bytes = digits.size() % 4 == 0 ? text::decode_base64(digits) : std::nullopt;
  if (!bytes || bytes->empty()) {
    return refuse("is a data: URL whose data is not base64");
  }
  if (bytes->size() > bytes_max) {
    return Error(Code::kTooLarge,
                 fmt::format("has more than {} bytes (media.max_bytes)", bytes_max));
  }
  return RawMedia{.type = std::move(head), .bytes = std::move(*bytes)};
}

}  // namespace stator::media
