// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "stator/blocks/block_hash.h"
#include "stator/core/flat_map.h"
#include "stator/core/ids.h"
#include "stator/core/random.h"
#include "stator/kv/event.h"

namespace stator::router {

/// How an engine names its blocks.
enum class Naming : uint8_t { kSequenceHash, kSharedOpaque, kPrivateOpaque, kCounter };
inline constexpr size_t kNamingCount = 4;

/// A make-believe engine with a prefix cache: emits the KV events that a real one would, for tests
/// and trials of indexes.
class PretendEngine {
 public:
  PretendEngine(WorkerKey key, Naming naming) : key_(key), naming_(naming) {}

  WorkerKey key() const { return key_; }
  size_t held_blocks() const { return order_.size(); }

  /// Stores what of the sequence is not held yet; nothing if all is. Blocks beyond a hole that it
  /// still holds are reported again.
  std::optional<kv::KvEvent> store(std::span<const uint64_t> locals);
  /// Frees up to `count` blocks, mostly the newest, some at random in the middle of a prefix.
  std::optional<kv::KvEvent> evict(size_t count, Random& random);
  void clear();

 private:
  blocks::ExternalHash next_name(blocks::SequenceHash content);

  WorkerKey key_;
  Naming naming_;
  uint64_t counter_ = 0;
  FlatMap<blocks::SequenceHash, blocks::ExternalHash> names_;
  std::vector<blocks::SequenceHash> order_;
};

/// Sequence hashes of blocks with these local hashes.
std::vector<blocks::SequenceHash> sequences_of(std::span<const uint64_t> locals);

/// Local hashes of a prompt that shares its beginning with others the way conversations do: 1 to 24
/// blocks, one in `long_one_in` up to 400.
std::vector<uint64_t> random_prompt(Random& random, uint64_t long_one_in = 8);

}  // namespace stator::router
