// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <cstdint>
#include <utility>
#include <vector>

#include "stator/api/generation.h"
#include "stator/blocks/block_hash.h"
#include "stator/core/clock.h"
#include "stator/core/ids.h"
#include "stator/engine/api/engine.h"
#include "stator/kv/block_handle.h"

namespace stator::engine {

/// A request as the scheduler names it: keys are unique within a session only.
struct SequenceKey {
  SessionId session;
  RequestKey request;
  friend constexpr auto operator<=>(const SequenceKey&, const SequenceKey&) noexcept = default;
  template <typename H>
  friend H AbslHashValue(H state,
                         const SequenceKey& key) {  // NOLINT(readability-identifier-naming)
    return H::combine(std::move(state), key.session, key.request);
  }
};

/// One live request inside the scheduler. Plain data: the scheduler keeps the invariants (S1-S4 in
/// scheduler.h).
struct Sequence {
  enum class State : uint8_t { kWaiting, kRunning, kEnded };

  Sequence(SequenceKey key_in, kv::BlockPool& pool, blocks::BlockHasher hasher_in)
      : key(key_in), chain(pool), hasher(std::move(hasher_in)) {}

  SequenceKey key;
  uint64_t id = 0;  ///< arrival order
  int32_t priority = 0;
  State state = State::kWaiting;
  bool preempted = false;   ///< waiting again after having run
  bool admitted = false;    ///< has run before
  bool first_delta = true;  ///< nothing sent by this attempt yet
  uint32_t session_slot = 0;
  uint32_t prompt_tokens = 0;
  uint32_t computed = 0;       ///< tokens[0, computed) have their KV in `chain`
  uint32_t cached_tokens = 0;  ///< prompt tokens found in the prefix cache at first admission
  TimePoint arrived{};

  std::vector<TokenId> tokens;  ///< prompt, then output of all attempts
  kv::BlockChain chain;
  blocks::BlockHasher hasher;  ///< over `tokens`; unused without prefix caching
  api::SamplingParams sampling;
  api::StopConditions stop;

  uint32_t remaining() const { return static_cast<uint32_t>(tokens.size()) - computed; }
  uint32_t output_tokens() const { return static_cast<uint32_t>(tokens.size()) - prompt_tokens; }
};

}  // namespace stator::engine
