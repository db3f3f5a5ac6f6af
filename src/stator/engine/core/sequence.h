// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <compare>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "stator/blocks/block_hash.h"
#include "stator/core/clock.h"
#include "stator/core/ids.h"
#include "stator/engine/api/adapter.h"
#include "stator/engine/api/engine.h"
#include "stator/engine/core/guess_masks.h"
#include "stator/guided/grammar.h"
#include "stator/inference/request_context.h"
#include "stator/inference/sampling.h"
#include "stator/kv/block_handle.h"
#include "stator/kv/block_identity.h"

namespace stator::engine {

/// A request as the scheduler names it: keys are unique within a session only.
struct SequenceKey {
  SessionId session;
  inference::RequestKey request;
  friend constexpr auto operator<=>(const SequenceKey&, const SequenceKey&) noexcept = default;
  template <typename H>
  friend H AbslHashValue(H state,
                         const SequenceKey& key) {  // NOLINT(readability-identifier-naming)
    return H::combine(std::move(state), key.session, key.request);
  }
};

/// Hashes of the full blocks of a growing sequence, of which the first may be known without their
/// tokens.
class SequenceHashes {
 public:
  SequenceHashes(uint32_t block_size, uint64_t seed) : hasher_(block_size, seed) {}

  uint32_t block_size() const { return hasher_.block_size(); }
  size_t known() const { return known_; }

  /// Before any append(): the first blocks are these.
  void adopt(std::span<const blocks::SequenceHash> sequences,
             std::span<const blocks::LocalHash> locals) {
    sequences_.assign(sequences.begin(), sequences.end());
    locals_.assign(locals.begin(), locals.end());
    known_ = locals.size();
  }
  void append(std::span<const TokenId> tokens) {
    hasher_.append(tokens);
    while (locals_.size() < known_ + hasher_.locals().size()) {
      const blocks::LocalHash local = hasher_.locals()[locals_.size() - known_];
      sequences_.push_back(sequences_.empty() ? blocks::chain(local)
                                              : blocks::chain(sequences_.back(), local));
      locals_.push_back(local);
    }
  }
  std::span<const blocks::SequenceHash> sequences() const { return sequences_; }
  std::span<const blocks::LocalHash> locals() const { return locals_; }

 private:
  blocks::BlockHasher hasher_;  // of the tokens behind the known blocks
  size_t known_ = 0;
  std::vector<blocks::SequenceHash> sequences_;
  std::vector<blocks::LocalHash> locals_;
};

/// One live request inside the scheduler. Plain data: the scheduler keeps the invariants (S1-S4 in
/// scheduler.h).
struct Sequence {
  enum class State : uint8_t { kWaiting, kRunning, kEnded };

  Sequence(SequenceKey key_in, kv::BlockPool& pool, SequenceHashes hashes)
      : key(key_in), chain(pool), hasher(std::move(hashes)) {}

  SequenceKey key;
  uint64_t id = 0;  ///< arrival order
  int32_t priority = 0;
  State state = State::kWaiting;
  bool preempted = false;   ///< waiting again after having run
  bool admitted = false;    ///< has run before
  bool first_delta = true;  ///< nothing sent by this attempt yet
  uint32_t session_slot = 0;
  uint32_t prompt_tokens = 0;
  uint32_t pass_tokens = UINT32_MAX;  ///< of its prompt in one pass at most, see Scheduler
  uint32_t registered = 0;            ///< blocks of `chain` that can be found
  bool known_computed = false;        ///< KnownPrompt::computed, until it is preempted
  uint32_t computed = 0;              ///< tokens[0, computed) have their KV in `chain`
  uint32_t cached_tokens = 0;  ///< prompt tokens found in the prefix cache at first admission
  uint32_t host_tokens = 0;    ///< of those, in host memory
  TimePoint arrived{};
  uint32_t queued_us = 0;  ///< from then to its first admission; at least 1 then

  /// Its prompt takes so many passes at least, unless they would be so short that they compute
  /// slower than that helps.
  void spread(uint32_t passes) {
    constexpr uint32_t kPassMin = 64;
    const uint32_t block = hasher.block_size();
    if (passes > 1) {
      pass_tokens = std::max(kPassMin, (prompt_tokens / passes / block + 1) * block);
    }
  }
  void note_admission(TimePoint now) {
    queued_us =
        static_cast<uint32_t>(std::clamp<int64_t>((now - arrived).count() / 1000, 1, UINT32_MAX));
  }

  std::vector<TokenId> tokens;  ///< prompt, then output of all attempts
  kv::BlockChain chain;
  SequenceHashes hasher;                   ///< over `tokens`; unused without prefix caching
  std::string owner;                       ///< owner_of() its request
  std::shared_ptr<const Adapter> adapter;  ///< null: the model as it is
  inference::SamplingParams sampling;
  inference::StopConditions stop;
  std::unique_ptr<guided::Guide> guide;  ///< null: any token may come
  SequenceMasks guess_masks;             ///< of `guide`
  bool scores_prompt = false;            ///< and nothing of the prompt comes from a cache
  std::shared_ptr<const inference::RequestContext> context;  ///< null: none; says what to keep
  std::vector<inference::TokenLogprobs> prompt_scores;  ///< so far, until the first token is sent

  /// The full blocks that have been hashed, the first `count` of them. A view.
  kv::SequenceBlocks full_blocks(size_t count) const {
    return {.sequences = hasher.sequences().first(count),
            .locals = hasher.locals().first(count),
            .tokens = tokens,
            .block_size = hasher.block_size(),
            .unknown = hasher.known(),
            .owner = owner};
  }
  uint32_t remaining() const { return static_cast<uint32_t>(tokens.size()) - computed; }
  uint32_t output_tokens() const { return static_cast<uint32_t>(tokens.size()) - prompt_tokens; }
};

}  // namespace stator::engine
