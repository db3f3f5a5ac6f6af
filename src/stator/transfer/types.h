// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

namespace stator::transfer {

/// Where bytes lie. FILE: `dev` is the number that register_mem() gave for a path; OBJ: for a key.
enum class MemType : uint8_t { kDram, kVram, kBlk, kObj, kFile };
inline constexpr uint8_t kMemTypes = 5;

enum class Op : uint8_t { kRead, kWrite };  ///< remote to local, local to remote

/// Numbers of NIXL's status, so that bindings carry over.
enum class Outcome : int8_t {
  kInProgress = 1,
  kSuccess = 0,
  kNotPosted = -1,
  kInvalidParam = -2,
  kBackend = -3,
  kNotFound = -4,
  kMismatch = -5,
  kNotAllowed = -6,
  kRepostActive = -7,
  kUnknown = -8,
  kNotSupported = -9,
  kRemoteDisconnect = -10,
  kCanceled = -11,
  kNoTelemetry = -12,
};
std::string_view to_string(Outcome outcome);

/// A range of bytes: an address for DRAM, an offset for files and objects.
struct Desc {
  uint64_t addr = 0;
  uint64_t len = 0;
  uint64_t dev = 0;
  friend auto operator<=>(const Desc&, const Desc&) = default;
};

/// `count` ranges of `len` bytes, `stride` apart.
struct StridedDesc {
  uint64_t addr = 0;
  uint64_t len = 0;
  uint64_t dev = 0;
  uint64_t stride = 0;
  uint64_t count = 0;
};

using RemoteKey = std::array<std::byte, 16>;

/// A registered range. `key` is drawn at registration: whoever reads or writes from afar shows it.
struct Region {
  MemType type = MemType::kDram;
  Desc desc;
  RemoteKey key{};
  /// Of memory in a shared arena: its memfd and the offset in it; −1: of other memory.
  int32_t shared_fd = -1;
  uint64_t shared_offset = 0;

  bool covers(const Desc& range) const {
    return range.dev == desc.dev && range.addr >= desc.addr && range.len <= desc.len &&
           range.addr - desc.addr <= desc.len - range.len;
  }
};

inline auto place_of(MemType type, const Desc& desc) {
  return std::tuple(type, desc.dev, desc.addr);
}
/// In the order that find_covering() wants.
inline void sort_regions(std::vector<Region>& regions) {
  std::ranges::sort(regions, {},
                    [](const Region& region) { return place_of(region.type, region.desc); });
}
/// One that holds all of the range; null: none. O(log n) unless registrations overlap.
inline const Region* find_covering(std::span<const Region> sorted, MemType type,
                                   const Desc& range) {
  const auto behind = std::ranges::upper_bound(
      sorted, place_of(type, range), {},
      [](const Region& region) { return place_of(region.type, region.desc); });
  const auto holds = [&](const Region& region) {
    return region.type == type && region.covers(range);
  };
  if (behind != sorted.begin() && holds(*std::prev(behind))) {
    return &*std::prev(behind);
  }
  const auto before = std::span(sorted.begin(), behind);
  const auto found = std::ranges::find_if(before, holds);
  return found == before.end() ? nullptr : &*found;
}

/// What an agent tells another: how to reach it and what may be read and written.
struct Metadata {
  std::string agent;
  uint64_t epoch = 0;    ///< of this life of the agent: a new one has new keys
  bool partial = false;  ///< adds to what is known of this life, instead of taking its place
  struct Backend {
    std::string type;
    std::string connection;
    friend bool operator==(const Backend&, const Backend&) = default;
  };
  std::vector<Backend> backends;
  std::vector<Region> regions;
};

}  // namespace stator::transfer
