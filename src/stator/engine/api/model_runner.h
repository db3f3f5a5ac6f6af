// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "stator/core/clock.h"
#include "stator/core/ids.h"
#include "stator/engine/api/long_prompts.h"
#include "stator/inference/sampling.h"
#include "stator/kv/block_id.h"
#include "stator/kv/host_tier.h"
#include "stator/perf/timing_model.h"

namespace stator::engine {

class Adapter;

/// Index of a physical KV block in the runner's arena, 0 … total_blocks − 1.
using BlockId = kv::BlockId;

/// What a grammar allows behind tokens that a runner guesses.
class GuessMasks {
 public:
  struct Mask {
    std::span<const uint64_t> allowed;  ///< as SequenceSlice::allowed
    bool may_end = true;
  };
  virtual ~GuessMasks() = default;
  /// Behind the first of `guesses`, behind the first two, and so on, as far as the grammar goes.
  /// Valid until the next call and the end of the step.
  virtual std::span<const Mask> behind(std::span<const TokenId> guesses) = 0;
};

/// One sequence's share of a step. All views belong to the scheduler and live until run() returns.
struct SequenceSlice {
  uint64_t sequence = 0;            ///< unique in the engine's life
  std::span<const TokenId> tokens;  ///< the whole sequence so far: prompt, then output
  uint32_t prompt_tokens = 0;       ///< how many of `tokens` are prompt
  uint32_t start = 0;               ///< compute tokens[start, start + count): their KV is written,
  uint32_t count = 0;               ///< earlier positions are in the blocks already
  std::span<const BlockId> blocks;  ///< block table: position p is in blocks[p / block_size]
  bool sample = false;              ///< start + count == tokens.size(): draw the next token
  const inference::SamplingParams* sampling = nullptr;
  const inference::StopConditions* stop = nullptr;  ///< for min_tokens
  /// One bit per token that may come next, as a grammar says; empty: any may. EOS and stop tokens
  /// are allowed as `may_end` says, whatever their bits.
  std::span<const uint64_t> allowed;
  bool may_end = true;
  GuessMasks* guess_masks = nullptr;  ///< with `allowed`: what guesses need; null: none are taken
  /// Log-probabilities of the prompt tokens behind the computed ones are wanted (Sampled::prompt).
  bool score_prompt = false;
  /// Set: what the model is changed by; the sequence holds it.
  const Adapter* adapter = nullptr;
  bool may_draft = true;  ///< Sampled::drafted is taken
};

/// What sampling one slice gave. Only meaningful where `sample` was set.
struct Sampled {
  TokenId token = 0;
  std::optional<inference::TokenLogprobs> logprobs;
  /// Speculative decoding: tokens that follow `token`, from the same pass. The KV of `token` and of
  /// all of these but the last is written.
  std::vector<TokenId> drafted;
  /// With `score_prompt`: of the prompt tokens at start + 1 … start + count, as many as there are.
  std::vector<inference::TokenLogprobs> prompt;
  /// Not empty: why the request cannot go on (its logits are no numbers). It alone ends, with this.
  std::string error;
};

/// The part of an engine that differs between real and simulated ones: it turns a batch into
/// tokens. Scheduling, block accounting and prefix caching are above it (engine/core). Called by
/// one thread. The tokens of a sequence must not depend on what else is in the batch, on how its
/// prompt was cut into chunks, or on whether its prefix came from cached blocks.
class ModelRunner {
 public:
  virtual ~ModelRunner() = default;
  virtual uint32_t vocab_size() const = 0;
  virtual uint32_t max_model_len() const = 0;
  /// Whether its tokens follow EngineRequest::structured_outputs.
  virtual bool structured_output() const { return false; }
  /// Whether it obeys SequenceSlice::allowed.
  virtual bool takes_masks() const { return false; }
  /// Whether it gives Sampled::prompt.
  virtual bool prompt_logprobs() const { return false; }
  /// The most tokens that Sampled::drafted has.
  virtual uint32_t draft_tokens() const { return 0; }
  virtual LongPrompts long_prompts() const { return {}; }
  /// Whether copy_blocks() works: EngineConfig::host_blocks may be above 0.
  virtual bool supports_host_tier() const { return false; }
  /// Moves KV between the device and host memory, in this order, before the next run().
  virtual void copy_blocks(std::span<const kv::BlockCopy> /*copies*/) {}
  /// The bytes of one block on the device and in host memory, of equal length; empty for a model
  /// without KV bytes. They may be read between two run()s, and written where nobody reads.
  virtual std::span<std::byte> device_block(BlockId /*block*/) { return {}; }
  virtual std::span<std::byte> host_block(uint32_t /*slot*/) { return {}; }
  /// Between two run()s, with no sequence left: gives the memory of KV blocks back to the system.
  virtual void discard_kv() {}
  /// `sampled` is parallel to `slices`.
  virtual void run(std::span<const SequenceSlice> slices, std::span<Sampled> sampled) = 0;
  /// How long a pass of this shape lasts at least: a simulated engine's modelled time, which the
  /// shell waits out. Zero for a real one, whose passes last as long as run().
  virtual Duration pass_time(const perf::PassShape& /*shape*/) const { return Duration::zero(); }
};

}  // namespace stator::engine
