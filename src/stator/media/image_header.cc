// SPDX-License-Identifier: Apache-2.0
#include "stator/media/image_header.h"

#include <cstddef>

namespace stator::media {
namespace {

using inference::MediaKind;
using Bytes = std::string_view;

constexpr Bytes kPng("\x89PNG\r\n\x1a\n", 8);
constexpr Bytes kJpeg("\xFF\xD8\xFF", 3);

uint32_t at(Bytes bytes, size_t i) {
  return static_cast<unsigned char>(bytes[i]);
}
uint32_t big16(Bytes bytes, size_t i) {
  return at(bytes, i) << 8 | at(bytes, i + 1);
}
uint32_t big32(Bytes bytes, size_t i) {
  return big16(bytes, i) << 16 | big16(bytes, i + 2);
}
uint32_t little16(Bytes bytes, size_t i) {
  return at(bytes, i + 1) << 8 | at(bytes, i);
}
uint32_t little24(Bytes bytes, size_t i) {
  return at(bytes, i + 2) << 16 | little16(bytes, i);
}
uint32_t little32(Bytes bytes, size_t i) {
  return little16(bytes, i + 2) << 16 | little16(bytes, i);
}

std::optional<ImageSize> sized(uint32_t width, uint32_t height) {
  return width > 0 && height > 0 ? std::optional(ImageSize{width, height}) : std::nullopt;
}

/// Signature, then IHDR as the first chunk (PNG, third edition, 5.6).
std::optional<ImageSize> png_size(Bytes bytes) {
  constexpr uint32_t kSideMax = 0x7FFFFFFF;
  if (bytes.size() < 24 || bytes.substr(12, 4) != "IHDR" || big32(bytes, 16) > kSideMax ||
      big32(bytes, 20) > kSideMax) {
    return std::nullopt;
  }
  return sized(big32(bytes, 16), big32(bytes, 20));
}

bool is_start_of_frame(uint32_t marker) {
  return marker >= 0xC0 && marker <= 0xCF && marker != 0xC4 && marker != 0xC8 && marker != 0xCC;
}

/// Segments up to the first frame header (ITU T.81, B.1.1 and B.2.2).
std::optional<ImageSize> jpeg_size(Bytes bytes) {
  size_t i = 2;
  while (i + 4 <= bytes.size()) {
    if (at(bytes, i) != 0xFF) {
      return std::nullopt;
    }
    const uint32_t marker = at(bytes, i + 1);
    if (marker == 0xFF) {  // fill byte
      ++i;
      continue;
    }
    if (marker == 0x01 || (marker >= 0xD0 && marker <= 0xD7)) {  // without length
      i += 2;
      continue;
    }
    if (marker == 0xD8 || marker == 0xD9 || marker == 0xDA || marker == 0) {
      return std::nullopt;  // the picture begins, or ends, without a frame
    }
    if (is_start_of_frame(marker)) {
      return i + 9 <= bytes.size() ? sized(big16(bytes, i + 7), big16(bytes, i + 5)) : std::nullopt;
    }
    const uint32_t length = big16(bytes, i + 2);
    if (length < 2) {
      return std::nullopt;
    }
    i += 2 + length;
  }
  return std::nullopt;
}

std::optional<ImageSize> gif_size(Bytes bytes) {
  return bytes.size() < 10 ? std::nullopt : sized(little16(bytes, 6), little16(bytes, 8));
}

/// RIFF container, then VP8, VP8L or VP8X (RFC 9649).
std::optional<ImageSize> webp_size(Bytes bytes) {
  if (bytes.size() < 30) {
    return std::nullopt;
  }
  const Bytes chunk = bytes.substr(12, 4);
  if (chunk == "VP8X") {
    return sized(little24(bytes, 24) + 1, little24(bytes, 27) + 1);
  }
  if (chunk == "VP8 " && bytes.substr(23, 3) == Bytes("\x9D\x01\x2A", 3)) {
    return sized(little16(bytes, 26) & 0x3FFF, little16(bytes, 28) & 0x3FFF);
  }
  if (chunk == "VP8L" && at(bytes, 20) == 0x2F) {
    const uint32_t bits = little32(bytes, 21);
    return sized((bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1);
  }
  return std::nullopt;
}

/// BITMAPCOREHEADER or one of its longer successors; a negative height is a picture from the top.
std::optional<ImageSize> bmp_size(Bytes bytes) {
  if (bytes.size() < 26) {
    return std::nullopt;
  }
  if (little32(bytes, 14) == 12) {
    return sized(little16(bytes, 18), little16(bytes, 20));
  }
  const uint32_t height = little32(bytes, 22);
  const uint32_t width = little32(bytes, 18);
  if (width > 0x7FFFFFFF || height == 0x80000000) {
    return std::nullopt;
  }
  return sized(width, height > 0x7FFFFFFF ? 0U - height : height);
}

std::optional<FileType> sniff_riff(Bytes bytes) {
  if (bytes.size() < 12 || !bytes.starts_with("RIFF")) {
    return std::nullopt;
  }
  const Bytes form = bytes.substr(8, 4);
  if (form == "WEBP") {
    return FileType{"image/webp", MediaKind::kImage};
  }
  if (form == "WAVE") {
    return FileType{"audio/wav", MediaKind::kAudio};
  }
  return form == "AVI " ? std::optional(FileType{"video/x-msvideo", MediaKind::kVideo})
                        : std::nullopt;
}

std::optional<FileType> sniff_base_media(Bytes bytes) {
  if (bytes.size() < 12 || bytes.substr(4, 4) != "ftyp") {
    return std::nullopt;
  }
  const Bytes brand = bytes.substr(8, 4);
  return brand == "M4A " || brand == "M4B " ? FileType{"audio/mp4", MediaKind::kAudio}
                                            : FileType{"video/mp4", MediaKind::kVideo};
}

/// A frame header of MPEG audio or AAC behind its sync word.
std::optional<FileType> sniff_frames(Bytes bytes) {
  if (bytes.size() < 2 || at(bytes, 0) != 0xFF || (at(bytes, 1) & 0xE0) != 0xE0) {
    return std::nullopt;
  }
  return (at(bytes, 1) & 0x06) == 0 ? FileType{"audio/aac", MediaKind::kAudio}
                                    : FileType{"audio/mpeg", MediaKind::kAudio};
}

}  // namespace

std::optional<FileType> sniff(Bytes bytes) {
  if (bytes.starts_with(kPng)) {
    return FileType{"image/png", MediaKind::kImage};
  }
  if (bytes.starts_with(kJpeg)) {
    return FileType{"image/jpeg", MediaKind::kImage};
  }
  if (bytes.starts_with("GIF87a") || bytes.starts_with("GIF89a")) {
    return FileType{"image/gif", MediaKind::kImage};
  }
  if (bytes.starts_with("BM")) {
    return FileType{"image/bmp", MediaKind::kImage};
  }
  if (bytes.starts_with("ID3")) {
    return FileType{"audio/mpeg", MediaKind::kAudio};
  }
  if (bytes.starts_with("fLaC")) {
    return FileType{"audio/flac", MediaKind::kAudio};
  }
  if (bytes.starts_with("OggS")) {
    return FileType{"audio/ogg", MediaKind::kAudio};
  }
  if (bytes.starts_with(Bytes("\x1A\x45\xDF\xA3", 4))) {
    return FileType{"video/webm", MediaKind::kVideo};
  }
  if (const auto riff = sniff_riff(bytes)) {
    return riff;
  }
  if (const auto media = sniff_base_media(bytes)) {
    return media;
  }
  return sniff_frames(bytes);
}

std::optional<ImageSize> read_image_size(Bytes bytes) {
  const auto type = sniff(bytes);
  if (!type || type->kind != MediaKind::kImage) {
    return std::nullopt;
  }
  if (type->type == "image/png") {
    return png_size(bytes);
  }
  if (type->type == "image/jpeg") {
    return jpeg_size(bytes);
  }
  if (type->type == "image/gif") {
    return gif_size(bytes);
  }
  return type->type == "image/webp" ? webp_size(bytes) : bmp_size(bytes);
}

}  // namespace stator::media
