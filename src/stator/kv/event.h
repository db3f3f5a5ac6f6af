// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include "stator/blocks/block_hash.h"
#include "stator/core/ids.h"

namespace stator::kv {

/// Where a copy of a block lives: G1 device, G2 pinned host, G3 disk, G4 object store.
enum class StorageTier : uint8_t { kDevice, kHostPinned, kDisk, kExternal };
inline constexpr size_t kStorageTierCount = 4;

/// One block of a stored run. `external` is the engine's own id (opaque, prefix-cumulative);
/// `local` the content hash of this block alone, by blocks::hash_block.
struct StoredBlock {
  blocks::ExternalHash external;
  blocks::LocalHash local;
  friend bool operator==(const StoredBlock&, const StoredBlock&) = default;
};

/// Consecutive blocks became reusable. `parent` is the external id of the block before the first
/// one.
struct BlocksStored {
  std::optional<blocks::ExternalHash> parent;
  std::vector<StoredBlock> blocks;
  friend bool operator==(const BlocksStored&, const BlocksStored&) = default;
};

/// These blocks are gone from the tier, in any order.
struct BlocksRemoved {
  std::vector<blocks::ExternalHash> blocks;
  friend bool operator==(const BlocksRemoved&, const BlocksRemoved&) = default;
};

/// Everything of this (worker, rank) is gone from all tiers.
struct AllCleared {
  friend bool operator==(const AllCleared&, const AllCleared&) = default;
};

/// What happened, before it has an id.
using KvEventData = std::variant<BlocksStored, BlocksRemoved, AllCleared>;

/// One change of one (worker, rank)'s reusable KV blocks. `event_id` is dense from 1 per
/// (worker incarnation, rank), so a reader sees duplicates and gaps.
struct KvEvent {
  uint64_t event_id = 0;
  uint32_t dp_rank = 0;
  StorageTier tier = StorageTier::kDevice;
  KvEventData data;
  friend bool operator==(const KvEvent&, const KvEvent&) = default;
};

}  // namespace stator::kv
