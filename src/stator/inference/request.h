// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "stator/core/ids.h"
#include "stator/inference/handoff.h"
#include "stator/inference/media_input.h"
#include "stator/inference/pool.h"
#include "stator/inference/request_context.h"
#include "stator/inference/sampling.h"

namespace stator::inference {

/// Names one attempt of one request on the wire and in an engine.
struct RequestKey {
  RequestId request;
  Attempt attempt;
  friend constexpr auto operator<=>(const RequestKey&, const RequestKey&) noexcept = default;
  template <typename H>
  friend H AbslHashValue(
      H state, const RequestKey& key) {  // NOLINT(readability-identifier-naming): absl's hook
    return H::combine(std::move(state), key.request, key.attempt);
  }
};

/// Work for an engine: token ids in, token ids out.
struct EngineRequest {
  RequestKey key;
  std::vector<TokenId>
      tokens;              ///< prompt, then `generated` tokens of earlier attempts; never empty
  uint32_t generated = 0;  ///< output tokens already sent to the client (0 on the first attempt)
  SamplingParams sampling;
  StopConditions stop;     ///< max_tokens counts `generated`, too
  int32_t priority = 0;    ///< higher runs first and is preempted last
  std::string cache_salt;  ///< isolates the prefix cache; empty = shared
  std::string lora_name;   ///< empty = base model
  /// Time left when submitted, 0 = none. The runtime cancels what is late; engines may ignore it.
  uint32_t deadline_ms = 0;
  /// Shape the output must have, as the JSON text of vLLM's request member `structured_outputs`
  /// (structured::read_structured_output reads it); empty = free. Only for engines whose
  /// EngineInfo::structured_output is set.
  std::string structured_outputs;
  bool require_reasoning = false;  ///< the shape begins after the model's reasoning
  /// Log-probabilities of the prompt, too, with as many alternatives as `sampling.logprobs` says,
  /// which is set. Only for engines whose EngineInfo::prompt_logprobs is set, without `generated`
  /// tokens, and for the whole request.
  bool prompt_logprobs = false;
  /// Images and the like; null: none. Only for engines whose EngineInfo::media has their kinds.
  /// Shared: an image is not copied per choice and attempt.
  std::shared_ptr<const MediaInput> media;
  /// Which of the engine's data-parallel ranks; unset = it may choose.
  std::optional<uint32_t> dp_rank;
  Phase phase = Phase::kWhole;  ///< others only for engines whose HandoffAbility says so
  /// kDecode: what to take. kPrefill: its id, and for givers with a meeting point the payload.
  Handoff handoff;
  /// Set: nothing is generated, `tokens` are the sequences this is about, and of all the above only
  /// key, priority, lora_name and deadline_ms count. Only for engines whose EngineInfo::pool has
  /// the task.
  std::optional<PoolRequest> pool;
  /// Null: nothing travels with it.
  std::shared_ptr<const RequestContext> context;
  uint64_t sent_unix_us = 0;  ///< when the frontend let go of it, by its clock; 0: not known
};

}  // namespace stator::inference
