// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "stator/core/clock.h"
#include "stator/core/flat_map.h"

namespace stator::fake_engine {

/// What a prefill server offers a decode server.
struct HandoffOffer {
  std::string request_id;
  std::vector<uint32_t> block_ids;
};

/// What became of an offer when somebody claims it.
enum class ClaimOutcome : uint8_t {
  kFresh,    ///< the blocks hold this prompt: the tokens are right
  kStale,    ///< unknown, claimed before or past its lease: the blocks hold something else by now
  kRefused,  ///< another engine's id: the compatibility check fails
};

/// Open hand-offs of one prefill engine. Pure; one thread.
///
/// H1  An offer is claimed at most once, and only within its lease.
/// H2  At most `open_max` offers are open; beyond, the oldest counts as expired.
class OpenHandoffs {
 public:
  OpenHandoffs(uint32_t total_blocks, Duration lease, size_t open_max);

  /// Pins blocks for a prompt of `blocks` blocks.
  HandoffOffer offer(std::string request_id, uint32_t blocks, TimePoint now);
  ClaimOutcome claim(std::string_view request_id, TimePoint now);
  /// Forgets what is past its lease (or everything).
  void expire(TimePoint now);
  void expire_all();

  uint32_t pinned_blocks() const { return pinned_blocks_; }
  size_t open() const { return open_.size(); }
  uint64_t expired() const { return expired_; }
  uint64_t late_claims() const { return late_claims_; }

 private:
  struct Open {
    TimePoint until;
    uint32_t blocks = 0;
  };
  void drop_oldest();

  const uint32_t total_blocks_;
  const Duration lease_;
  const size_t open_max_;
  FlatMap<std::string, Open> open_;
  std::deque<std::string> order_;  // by lease end; claimed ones are skipped
  uint32_t next_block_ = 1;        // block 0 is never handed out, as in vLLM
  uint32_t pinned_blocks_ = 0;
  uint64_t expired_ = 0;
  uint64_t late_claims_ = 0;
};

}  // namespace stator::fake_engine
