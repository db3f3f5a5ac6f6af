// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "stator/core/clock.h"
#include "stator/inference/request_context.h"
#include "stator/kv/block_handle.h"
#include "stator/kv/block_pool.h"

namespace stator::engine {

/// Within how many seconds the client wants its prompt again, at most an hour, as metadata
/// `cache-control: max-age=…` says; 0: it does not say.
uint32_t keep_seconds(const inference::RequestContext& context);

/// Cached prefixes that clients said they want again (Anthropic's cache_control): held, so that
/// other prompts do not evict them, until their time is over, their conversation ends, or a request
/// needs the room. Decides only; the caller's clock, one thread.
///
/// K1  They hold at most `blocks_max` blocks, counting one that two prefixes share twice, and are
///     at most kEntriesMax; whoever ends first goes for a new one.
class KeptPrefixes {
 public:
  static constexpr size_t kEntriesMax = 256;

  explicit KeptPrefixes(uint32_t blocks_max) : blocks_max_(blocks_max) {}

  /// Takes the place of what `session` (unless empty) had, and of a prefix that `chain` goes on
  /// from. Nothing is kept of a chain that is longer than blocks_max, or empty.
  void keep(kv::BlockChain chain, std::string_view session, TimePoint until);
  void expire(TimePoint now);
  void forget(std::string_view session);
  void clear() { entries_.clear(); }
  /// Gives back the one that ends first. False: there is none.
  bool give_up_one();

  bool empty() const { return entries_.empty(); }
  size_t size() const { return entries_.size(); }
  /// Blocks that nobody else holds. O(blocks held).
  uint32_t idle_blocks(const kv::BlockPool& pool) const;

 private:
  struct Entry {
    kv::BlockChain chain;
    std::string session;
    TimePoint until;
  };
  uint64_t held() const;

  const uint32_t blocks_max_;
  std::vector<Entry> entries_;
};

}  // namespace stator::engine
