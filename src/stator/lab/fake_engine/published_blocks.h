// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "stator/blocks/block_hash.h"
#include "stator/core/flat_map.h"
#include "stator/kv/event.h"
#include "stator/lab/fake_engine/kv_frames.h"

namespace stator::fake_engine {

/// A medium in a prompt: the tokens that it has for the engine inside are not told.
struct BlockMedium {
  size_t begin = 0;
  size_t count = 0;
  TokenId placeholder = 0;  ///< what is told instead
  std::string digest;       ///< an extra key of every block that it touches
};

/// What a request's blocks say on the wire beyond their tokens.
struct BlockOwner {
  std::vector<BlockMedium> media;
  std::string lora_name;
  std::optional<uint32_t> lora_id;
  std::string cache_salt;
  std::string session_id;
};

/// The tokens of one sequence as it grows, so that its blocks can be found by hash.
class SequenceTrace {
 public:
  SequenceTrace(uint32_t block_size, BlockOwner owner);

 private:
  friend class PublishedBlocks;
  std::shared_ptr<const BlockOwner> owner_;  // shared: the book's entries outlive the trace
  std::vector<TokenId> tokens_;
  blocks::BlockHasher hasher_;
};

/// Remembers the tokens behind block hashes: our KV events name blocks by hash only, those of other
/// engines spell the tokens out. Pure, one thread.
///
///   SequenceTrace trace(16, owner);
///   book.append(trace, prompt);           // before the engine can store the blocks
///   book.append(trace, generated);        // as they arrive, before their events
///   std::vector<WireEvent> wire = book.translate(events);
///
/// B1  At most `blocks_max` blocks are remembered; the oldest is forgotten first. An event about a
///     block that is not known is left out and counted in `unknown_blocks()`.
class PublishedBlocks {
 public:
  PublishedBlocks(uint32_t block_size, size_t blocks_max);

  void append(SequenceTrace& trace, std::span<const TokenId> tokens);
  /// Consecutive blocks of one owner become one event.
  std::vector<WireEvent> translate(std::span<const kv::KvEvent> events);
  /// The first `blocks` blocks of the sequence as one store, for servers that announce hits.
  std::optional<WireStored> describe(const SequenceTrace& trace, size_t blocks) const;

  size_t size() const { return entries_.size(); }
  uint64_t unknown_blocks() const { return unknown_blocks_; }

 private:
  struct Entry {
    std::vector<TokenId> tokens;
    std::optional<uint64_t> parent;
    std::vector<std::string> extra_keys;
    std::shared_ptr<const BlockOwner> owner;
  };
  void remember(uint64_t hash, Entry entry);
  void add_stored(uint64_t hash, kv::StorageTier tier, std::vector<WireEvent>& out);

  const uint32_t block_size_;
  const size_t blocks_max_;
  FlatMap<uint64_t, Entry> entries_;
  std::deque<uint64_t> order_;
  std::shared_ptr<const BlockOwner> last_owner_;  // of the store that is being built
  uint64_t unknown_blocks_ = 0;
};

}  // namespace stator::fake_engine
