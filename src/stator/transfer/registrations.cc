// SPDX-License-Identifier: Apache-2.0
#include "stator/transfer/registrations.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "stator/core/entropy.h"

namespace stator::transfer {

std::span<std::byte> Registrations::allocate(size_t bytes) {
  auto arena = memory::Arena::create({.bytes = bytes,
                                      .huge_pages = memory::HugePages::kAdviseWhenLarge,
                                      .sharing = memory::Sharing::kMemfd,
                                      .name = "stator-transfer"});
  if (!arena) {
    return {};
  }
  arenas_.push_back(std::make_unique<memory::Arena>(std::move(*arena)));
  return arenas_.back()->bytes().first(bytes);
}

Region Registrations::describe(MemType type, const Desc& range) const {
  Region region{.type = type, .desc = range};
  // From the system: a peer that knows many keys must not work out the next.
  const std::array<uint64_t, 2> secret = draw_hash_key();
  std::memcpy(region.key.data(), secret.data(), sizeof secret);
  for (const auto& arena : arenas_) {
    const auto base = reinterpret_cast<uint64_t>(arena->bytes().data());
    const Region whole{.desc = {.addr = base, .len = arena->bytes().size()}};
    if (type == MemType::kDram && whole.covers({range.addr, range.len, 0})) {
      region.shared_fd = arena->descriptor();
      region.shared_offset = range.addr - base;
    }
  }
  return region;
}

void Registrations::add(MemType type, std::span<const Desc> ranges) {
  for (const Desc& range : ranges) {
    regions_.push_back(describe(type, range));
    if (type == MemType::kDram) {
      keys_.emplace(regions_.back().key, range);
    }
  }
  sort_regions(regions_);
}

const Region* Registrations::find(MemType type, const Desc& range) const {
  const auto place = [](const Region& region) { return place_of(region.type, region.desc); };
  const auto same = std::ranges::equal_range(regions_, place_of(type, range), {}, place);
  const auto found = std::ranges::find(same, range, &Region::desc);
  return found == same.end() ? nullptr : &*found;
}

bool Registrations::remove(MemType type, const Desc& range) {
  const Region* const found = find(type, range);
  if (found == nullptr) {
    return false;
  }
  keys_.erase(found->key);
  regions_.erase(regions_.begin() + (found - regions_.data()));
  return true;
}

bool Registrations::allows(const RemoteKey& key, const Desc& range) const {
  const auto found = keys_.find(key);
  return found != keys_.end() && Region{.desc = found->second}.covers(range);
}

std::vector<Region> Registrations::memory() const {
  std::vector<Region> out;
  std::ranges::copy_if(regions_, std::back_inserter(out), [](const Region& region) {
    return region.type == MemType::kDram || region.type == MemType::kVram;
  });
  return out;
}

uint64_t Registrations::memory_bytes() const {
  uint64_t bytes = 0;
  for (const Region& region : regions_) {
    bytes += region.type == MemType::kDram || region.type == MemType::kVram ? region.desc.len : 0;
  }
  return bytes;
}

}  // namespace stator::transfer
