// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "stator/api/generation.h"
#include "stator/core/clock.h"
#include "stator/core/ids.h"
#include "stator/kv/block_id.h"

namespace stator::engine {

/// Index of a physical KV block in the runner's arena, 0 … total_blocks − 1.
using BlockId = kv::BlockId;

/// One sequence's share of a step. All views belong to the scheduler and live until run() returns.
struct SequenceSlice {
  uint64_t sequence = 0;            ///< unique in the engine's life
  std::span<const TokenId> tokens;  ///< the whole sequence so far: prompt, then output
  uint32_t prompt_tokens = 0;       ///< how many of `tokens` are prompt
  uint32_t start = 0;               ///< compute tokens[start, start + count): their KV is written,
  uint32_t count = 0;               ///< earlier positions are in the blocks already
  std::span<const BlockId> blocks;  ///< block table: position p is in blocks[p / block_size]
  bool sample = false;              ///< start + count == tokens.size(): draw the next token
  const api::SamplingParams* sampling = nullptr;
  const api::StopConditions* stop = nullptr;  ///< for min_tokens
};

/// What sampling one slice gave. Only meaningful where `sample` was set.
struct Sampled {
  TokenId token = 0;
  std::optional<api::TokenLogprobs> logprobs;
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
  /// `sampled` is parallel to `slices`. Returns how long the step takes beyond the call itself: a
  /// simulated engine returns its modelled time and the shell waits for it; a real one returns
  /// zero.
  virtual Duration run(std::span<const SequenceSlice> slices, std::span<Sampled> sampled) = 0;
};

}  // namespace stator::engine
