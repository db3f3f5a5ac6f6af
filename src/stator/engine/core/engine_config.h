// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "stator/core/clock.h"
#include "stator/core/result.h"
#include "stator/engine/api/adapter.h"
#include "stator/engine/api/engine.h"
#include "stator/engine/api/long_prompts.h"
#include "stator/engine/core/scheduling_rules.h"
#include "stator/kv/eviction_order.h"

namespace stator::engine {

/// Who runs first, and who is preempted last.
enum class SchedulingPolicy : uint8_t {
  kFcfs,      ///< arrival order
  kPriority,  ///< higher EngineRequest::priority first, then arrival order
};

/// How an engine schedules, whatever computes its tokens.
struct EngineConfig {
  std::string kind = "sim";   ///< EngineInfo::kind
  std::string version = "1";  ///< EngineInfo::version
  std::string name =
      "engine";          ///< value of the `engine` label on metrics; one per engine in a process
  uint32_t dp_rank = 0;  ///< on KV events

  uint32_t block_size = 16;  ///< tokens per KV block, 1 … 1024
  uint32_t total_blocks = 16'384;
  uint32_t host_blocks = 0;                    ///< KV blocks kept in host memory, 0 = no such tier
  kv::Eviction eviction = kv::Eviction::kLru;  ///< of idle blocks, on the device and in host memory
  /// How long a request waits at most for blocks of tiers below host memory.
  Duration tier_load_timeout = std::chrono::seconds(2);
  uint32_t max_num_seqs = 256;              ///< running at once
  uint32_t max_num_batched_tokens = 8'192;  ///< computed in one step
  /// Tokens of prompts in a step in which others decode, so that a long prompt stretches their
  /// steps by no more than it takes to compute these. 0 = as many as a step has.
  uint32_t prefill_budget = 0;
  /// A prompt that another worker goes on from is computed in so many passes at least, unless they
  /// would be shorter than 64 tokens: what a pass has completed moves while the next one computes.
  uint32_t handoff_passes = 1;
  uint32_t max_model_len = 0;    ///< prompt and output tokens; 0 = the runner's limit
  uint32_t waiting_max = 4'096;  ///< requests not yet running; beyond: kOverloaded
  SchedulingPolicy policy = SchedulingPolicy::kFcfs;
  SchedulingRules rules = SchedulingRules::kVllm;
  SglangConfig sglang;
  /// Tokens a pass may give a sequence beyond one (Sampled::drafted); each sequence holds room for
  /// them.
  uint32_t draft_tokens = 0;
  bool enable_prefix_caching = true;
  LongPrompts long_prompts;            ///< the runner's
  bool enable_chunked_prefill = true;  ///< off: max_num_batched_tokens must be ≥ max_model_len
  /// The runner's; off: a request with structured_outputs is kUnsupported.
  bool structured_output = false;
  inference::MediaKinds media;   ///< others of a request are kUnsupported
  bool prompt_logprobs = false;  ///< off: a request for them is kUnsupported
  bool token_filters = false;    ///< off: allowed_token_ids and bad_words are kUnsupported
  bool supports_lora = false;    ///< off: a request with a lora_name is kInvalidArgument
  /// Set: a lora_name must be one of these; it is shared with whoever loads and unloads them.
  std::shared_ptr<const AdapterSource> adapters;
  bool takes_phases = false;  ///< off: a request of a phase but kWhole is kUnsupported
};

/// The config with `max_model_len` filled in, or kInvalidArgument naming the key, its value and the
/// allowed range. Guarantees that any request that passes validate() can run alone.
Result<EngineConfig> resolve(EngineConfig config, uint32_t runner_max_model_len);

/// Whether an engine with this (resolved) config and vocabulary can run `request` at all; otherwise
/// kInvalidArgument naming the field. Pure; called on the submitter's thread.
Status validate(const inference::EngineRequest& request, const EngineConfig& config,
                uint32_t vocab_size);

/// The adapter the request names; null for the model as it is, or where names are not looked up.
Result<std::shared_ptr<const Adapter>> find_adapter(const inference::EngineRequest& request,
                                                    const EngineConfig& config);

/// Whose blocks the request's are, see kv::block_owner(): an adapter counts with what is in it, so
/// that another one of the same name never finds them; so does the length of a long prompt.
std::string owner_of(const inference::EngineRequest& request, const AdapterSource* adapters,
                     const LongPrompts& long_prompts);

}  // namespace stator::engine
