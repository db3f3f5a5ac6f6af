// SPDX-License-Identifier: Apache-2.0
#include "stator/media/blob.h"

#include <fmt/format.h>

#include <string>
#include <utility>

#include "stator/media/image_header.h"
#include "stator/storage/sigv4.h"

namespace stator::media {
namespace {

/// A blob and its place in the budget.
struct HeldBlob {
  inference::MediaBlob blob;
  net::ByteLease lease;
};

Error refuse(std::string text) {
  return {Code::kInvalidArgument, std::move(text)};
}

/// Containers that hold pictures or only sound.
bool may_be(inference::MediaKind kind, const FileType& known) {
  if (known.kind == kind) {
    return true;
  }
  const bool container = known.type == "video/mp4" || known.type == "video/webm" ||
                         known.type == "audio/ogg" || known.type == "audio/mp4";
  return container && kind != inference::MediaKind::kImage;
}

Result<std::string> type_of(inference::MediaKind kind, const RawMedia& raw) {
  const std::string wanted = std::string(to_string(kind)) + "/";
  if (const auto known = sniff(raw.bytes)) {
    if (!may_be(kind, *known)) {
      return refuse(fmt::format("is {}, not {} as its part says", known->type, to_string(kind)));
    }
    return known->kind == kind
               ? std::string(known->type)
               : wanted + std::string(known->type.substr(known->type.find('/') + 1));
  }
  if (kind == inference::MediaKind::kImage) {
    return refuse("is no image that is known here: PNG, JPEG, GIF, WebP and BMP are");
  }
  if (!raw.type.starts_with(wanted)) {
    return refuse(fmt::format("is no {} that is known here, and its type is '{}'", to_string(kind),
                              raw.type.empty() ? "not said" : raw.type.substr(0, 64)));
  }
  return raw.type;
}

}  // namespace

Result<BlobPtr> make_blob(inference::MediaKind kind, RawMedia raw, const MediaConfig& config,
                          net::ByteBudget* budget) {
  if (raw.bytes.size() > config.bytes_max) {
    return Error(Code::kTooLarge, fmt::format("has {} bytes, more than {} (media.max_bytes)",
                                              raw.bytes.size(), config.bytes_max));
  }
  if (raw.bytes.empty()) {
    return refuse("is empty");
  }
  auto held = std::make_shared<HeldBlob>();
  if (budget != nullptr) {
    held->lease = net::ByteLease(*budget);
  }
  if (!held->lease.try_resize(raw.bytes.size())) {
    budget->count_refusal();
    return Error(Code::kOverloaded,
                 "finds no room: too many media are held here (media.held_bytes_max), retry");
  }
  inference::MediaBlob& blob = held->blob;
  blob.kind = kind;
  STATOR_TRY(blob.type, type_of(kind, raw));
  if (kind == inference::MediaKind::kImage) {
    const auto size = read_image_size(raw.bytes);
    if (!size) {
      return refuse(fmt::format("is {} without a header that has its size", blob.type));
    }
    if (uint64_t{size->width} * size->height > config.image_pixels_max) {
      return refuse(
          fmt::format("has {} by {} pixels, more than {} in all "
                      "(media.image_pixels_max)",
                      size->width, size->height, config.image_pixels_max));
    }
    blob.width = size->width;
    blob.height = size->height;
  }
  blob.digest = storage::sha256_hex(raw.bytes);
  blob.bytes = std::move(raw.bytes);
  return BlobPtr(held, &held->blob);
}

}  // namespace stator::media
