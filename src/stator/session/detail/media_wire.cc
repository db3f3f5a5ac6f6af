// SPDX-License-Identifier: Apache-2.0
#include "stator/session/detail/media_wire.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "stator/session/wire.h"

namespace stator::session::wire {
namespace {

constexpr size_t kTypeBytesMax = 128;
constexpr size_t kDetailBytesMax = 64;
constexpr size_t kDigestDigits = 64;

Error corrupt(std::string_view what) {
  return {Code::kCorrupt, fmt::format("worker protocol: media {}", what)};
}

bool is_digest(std::string_view text) {
  return text.size() == kDigestDigits && std::ranges::all_of(text, [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

Result<inference::MediaItem> decode_item(const worker::v1::MediaItem& in, size_t tokens) {
  const auto kind = inference::find_media_kind(in.kind());
  if (!kind) {
    return corrupt(fmt::format("has the unknown kind '{}'", in.kind().substr(0, 32)));
  }
  if (!is_digest(in.digest()) || in.data().empty()) {
    return corrupt("has an item without data or digest");
  }
  if (in.type().size() > kTypeBytesMax || in.detail().size() > kDetailBytesMax) {
    return corrupt("has an item with a type or detail that is too long");
  }
  if (in.token_begin() > tokens || in.token_count() > tokens - in.token_begin()) {
    return corrupt("has an item whose tokens are not among the request's");
  }
  auto blob = std::make_shared<inference::MediaBlob>();
  blob->kind = *kind;
  blob->type = in.type();
  blob->bytes = in.data();
  blob->digest = in.digest();
  return inference::MediaItem{.blob = std::move(blob),
                              .detail = in.detail(),
                              .token_begin = in.token_begin(),
                              .token_count = in.token_count()};
}

}  // namespace

void encode_media(const inference::MediaInput& media, worker::v1::MediaInput& out) {
  out.set_chat(media.chat_json);
  for (const std::string& piece : media.pieces) {
    out.add_pieces(piece);
  }
  for (const inference::MediaItem& item : media.items) {
    worker::v1::MediaItem& to = *out.add_items();
    to.set_kind(std::string(to_string(item.blob->kind)));
    to.set_type(item.blob->type);
    to.set_data(item.blob->bytes);
    to.set_digest(item.blob->digest);
    to.set_detail(item.detail);
    to.set_token_begin(item.token_begin);
    to.set_token_count(item.token_count);
  }
}

Result<std::shared_ptr<const inference::MediaInput>> decode_media(const worker::v1::MediaInput& in,
                                                                  size_t tokens) {
  if (in.items_size() == 0 || std::cmp_greater(in.items_size(), inference::kMaxMediaParts) ||
      (in.pieces_size() != 0 && in.pieces_size() != in.items_size() + 1)) {
    return corrupt(fmt::format("has {} items and {} pieces", in.items_size(), in.pieces_size()));
  }
  auto media = std::make_shared<inference::MediaInput>();
  media->chat_json = in.chat();
  media->pieces.assign(in.pieces().begin(), in.pieces().end());
  size_t bytes = 0;
  for (const worker::v1::MediaItem& item : in.items()) {
    bytes += item.data().size();
    if (bytes > kMediaBytesMax) {
      return Error(Code::kTooLarge,
                   fmt::format("worker protocol: media of more than {} bytes", kMediaBytesMax));
    }
    STATOR_TRY(auto decoded, decode_item(item, tokens));
    media->items.push_back(std::move(decoded));
  }
  return media;
}

}  // namespace stator::session::wire
