// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <absl/container/inlined_vector.h>

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "stator/blocks/block_hash.h"
#include "stator/core/flat_map.h"
#include "stator/kv/event.h"
#include "stator/kv_events/engine_events.h"

namespace stator::kv_events {

/// Why an event, or the rest of one, did not reach the index.
enum class Drop : uint8_t {
  kIgnoredEvent,          ///< of a type we do not know
  kNonLocalLocality,      ///< blocks that this worker does not hold itself
  kUnknownMedium,         ///< neither device nor a lower tier we know
  kUnsupportedOwnership,  ///< a cache owner that publishes for itself
  kUnknownOwnership,
  kAmbiguousCacheNamespace,  ///< adapter or salt not known for sure
  kNonMainAttentionKind,     ///< sliding window, mamba: says nothing about a whole prefix
  kUnknownKind,
  kNonMainAttentionGroup,  ///< a group learned to be of such a kind
  kUnlearnedGroupIdx,      ///< a group other than 0 of unknown kind
  kUndeclaredRank,         ///< a data-parallel rank that the worker did not announce
  kBlockSizeMismatch,      ///< not a multiple of the index's block size, or too few tokens
  kOpaqueContent,          ///< content that we cannot hash, such as prompt embeddings
  kParentBlockNotFound,
  kBlockNotFound,      ///< removal of what was never stored, or was dropped above
  kInvalidBlock,       ///< a hash twice in one event, or its own parent
  kCapacityExhausted,  ///< blocks_max
};
inline constexpr size_t kDropCount = static_cast<size_t>(Drop::kCapacityExhausted) + 1;
/// The value of the metric label `reason`.
std::string_view drop_name(Drop drop);

struct NormalizerConfig {
  uint32_t block_size = 0;  ///< tokens per block of the index; 0: that of the first store
  uint32_t dp_ranks = 1;    ///< ranks from 0 that the worker has announced
  size_t blocks_max = size_t{1} << 20;  ///< per rank; about 90 bytes each
};

/// Turns one worker's engine events into ours: filters them, computes our hashes from the token ids
/// and remembers, by the engine's block hashes, what was stored, because later events name only
/// those. Blocks leave with their SequenceHash as external id, so workers whose engines use
/// different ids for equal content feed the same index.
///
///   EventNormalizer normalizer({.block_size = 16});
///   STATOR_TRY(const auto batch, decode_engine_events(payload));
///   log.append(normalizer.normalize(0, batch));
///
/// N1  What was emitted and not yet removed is a subset of what the engine holds: a block whose
///     identity is in doubt is left out, and with it all blocks after it.
/// N2  An engine may announce a block again, with or without a second copy behind it; no reader can
///     tell. The first removal counts, so the index may hold too little, never too much.
/// N3  At most blocks_max blocks per rank are remembered.
///
/// An engine block of several index blocks is split; one that is no multiple of the index's block
/// size is dropped and shows in `mismatched_block_size`. Pure and single-threaded.
class EventNormalizer {
 public:
  explicit EventNormalizer(NormalizerConfig config);

  /// `socket_rank` counts where the batch names no rank. The result is in order, has no event ids,
  /// and neighbours of a kind are merged up to kMergedBlocksMax blocks.
  std::vector<kv::KvEvent> normalize(uint32_t socket_rank, const EngineEventBatch& batch);

  /// The engine behind `rank` started anew or its history is lost: forgets the rank and returns the
  /// clear to pass on. Nothing for an undeclared rank.
  std::vector<kv::KvEvent> reset(uint32_t rank);

  struct Stats {
    std::array<uint64_t, kDropCount> drops{};
    uint64_t repeated_blocks = 0;  ///< stored again while held
    uint64_t held_blocks = 0;      ///< engine blocks remembered now, all ranks
  };
  const Stats& stats() const { return stats_; }
  uint64_t drops(Drop drop) const { return stats_.drops[static_cast<size_t>(drop)]; }

  /// Tokens per block of the index; 0 until known.
  uint32_t block_size() const { return block_size_; }
  /// The engine's last block size that could not be mapped; 0: none so far.
  uint32_t mismatched_block_size() const { return mismatched_block_size_; }

  static constexpr size_t kMergedBlocksMax = 128;

 private:
  /// What one engine block is to us.
  struct Held {
    absl::InlinedVector<kv::StoredBlock, 1> pieces;  ///< at least one
    std::optional<blocks::ExternalHash> parent;      ///< of the first piece
    uint64_t seed = 0;                               ///< adapter and salt of its chain
    uint8_t tiers = 0;                               ///< bit by kv::StorageTier
  };
  struct Rank {
    FlatMap<uint64_t, Held> held;
    FlatMap<uint32_t, bool> group_is_main;
  };
  /// Where a store goes on.
  struct Chain {
    std::optional<blocks::ExternalHash> parent;
    uint64_t seed = 0;
  };
  using Out = std::vector<kv::KvEvent>;
  struct Target {
    Rank& rank;
    kv::StorageTier tier;
    Out& out;
    uint32_t dp_rank;
  };

  void drop(Drop reason) { ++stats_.drops[static_cast<size_t>(reason)]; }
  void handle(uint32_t rank, const EngineEvent& event, Out& out);
  void store(Target target, const EngineStored& stored);
  void store_announced(Target target, const EngineStored& stored);
  void store_blocks(Target target, const EngineStored& stored, Chain chain);
  void remove(Target target, const EngineRemoved& removed);
  void clear(uint32_t rank, Out& out);
  std::optional<kv::StorageTier> accept(const EngineEventScope& scope, Rank& rank);
  std::optional<Drop> judge_group(const EngineEventScope& scope, Rank& rank) const;
  bool fits_block_size(const EngineStored& stored);
  std::optional<Chain> find_chain(const Rank& rank, const EngineStored& stored);
  std::optional<Drop> hash_pieces(const EngineStored& stored, size_t block, Chain& chain,
                                  Held& held) const;
  bool hold(Target target, uint64_t hash, Held held);
  void forget(Target target, FlatMap<uint64_t, Held>::iterator block);

  const NormalizerConfig config_;
  uint32_t block_size_;
  uint32_t mismatched_block_size_ = 0;
  std::vector<Rank> ranks_;
  Stats stats_;
};

}  // namespace stator::kv_events
