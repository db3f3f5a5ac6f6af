// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace stator::inference {

// Images, audio and video of requests: the vocabulary shared by protocols, frontend, wire and
// engines, like generation.h for text.

enum class MediaKind : uint8_t { kImage, kAudio, kVideo };
inline constexpr size_t kMediaKindCount = 3;

/// "image", "audio", "video": in settings, records and template parts.
std::string_view to_string(MediaKind kind);
std::optional<MediaKind> find_media_kind(std::string_view name);

/// A set of kinds: what a model can be given.
class MediaKinds {
 public:
  constexpr MediaKinds() = default;
  constexpr void add(MediaKind kind) { bits_ |= bit(kind); }
  constexpr bool has(MediaKind kind) const { return (bits_ & bit(kind)) != 0; }
  constexpr bool any() const { return bits_ != 0; }
  /// Those that both have.
  constexpr MediaKinds both(MediaKinds other) const {
    MediaKinds out;
    out.bits_ = bits_ & other.bits_;
    return out;
  }
  /// Names in the order of MediaKind.
  std::vector<std::string> names() const;
  /// "image,audio"; empty for none.
  std::string text() const;
  static constexpr MediaKinds all() {
    MediaKinds out;
    out.bits_ = (1U << kMediaKindCount) - 1;
    return out;
  }
  friend constexpr bool operator==(MediaKinds, MediaKinds) = default;

 private:
  static constexpr uint8_t bit(MediaKind kind) {
    return static_cast<uint8_t>(1U << static_cast<uint8_t>(kind));
  }
  uint8_t bits_ = 0;
};

/// One part of a conversation that is no text, as the client sent it.
struct MediaPart {
  MediaKind kind = MediaKind::kImage;
  std::string source;  ///< a data:, http:, https: or file: URL
  std::string detail;  ///< of images, a hint to the model's processor; empty: not given
  std::string uuid;    ///< the client's own name of it; tells nothing about its content
  std::string path;    ///< where it stands: "messages[0].content[1]"
};

/// Media of one request beyond these are refused.
inline constexpr size_t kMaxMediaParts = 256;

/// What a part's source holds.
struct MediaBlob {
  MediaKind kind = MediaKind::kImage;
  std::string type;    ///< "image/png", by its own bytes where these tell
  std::string bytes;   ///< as they came
  std::string digest;  ///< SHA-256 of `bytes`, 64 hex digits
  uint32_t width = 0;  ///< pixels, of images; 0: not known
  uint32_t height = 0;

  /// The digest's first 64 bits: what block hashes and engines' KV events carry.
  uint64_t hash() const;
};

}  // namespace stator::inference
