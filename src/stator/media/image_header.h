// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "stator/inference/media.h"

namespace stator::media {

/// What the first bytes of a file say.
struct FileType {
  std::string_view type;  ///< "image/png"
  inference::MediaKind kind = inference::MediaKind::kImage;
};
/// By its magic numbers: PNG, JPEG, GIF, WebP, BMP; WAV, MP3, FLAC, Ogg, AAC; MP4, WebM, AVI.
/// Nothing for others. MP4 and Ogg may hold either: they count as what they mostly are.
std::optional<FileType> sniff(std::string_view bytes);

struct ImageSize {
  uint32_t width = 0;  ///< pixels, at least 1
  uint32_t height = 0;
  friend bool operator==(const ImageSize&, const ImageSize&) = default;
};
/// Of one of the image formats above, by its header: nothing is decoded. Nothing if the header is
/// cut short or makes no sense. O(segments before the picture), reads no byte twice.
std::optional<ImageSize> read_image_size(std::string_view bytes);

}  // namespace stator::media
