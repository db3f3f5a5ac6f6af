// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace stator::engine {

/// Whose rules decide who is computed next.
enum class SchedulingRules : uint8_t {
  kVllm,    ///< decodes with every pass; takes requests in as long as their next tokens find room;
            ///< preempts the last one when they do not
  kTrtllm,  ///< the same (TensorRT-LLM's GUARANTEED_NO_EVICT), but takes a request in only when the
            ///< room for all its tokens, to the last one, is certain: nobody is ever preempted
  kSglang,  ///< prompts in passes of their own, before any decode; see sglang_rules.h
};

/// "vllm", "trtllm", "trtllm-max-utilization" (TensorRT-LLM's MAX_UTILIZATION takes in and pauses
/// as vLLM does), "sglang"; nothing for any other word.
std::optional<SchedulingRules> find_rules(std::string_view name);
std::string_view name_of(SchedulingRules rules);
inline constexpr std::string_view kRulesNames = "vllm, trtllm, trtllm-max-utilization or sglang";

/// What only SGLang's rules read; the names and defaults are SGLang's. Its chunked_prefill_size is
/// the engine's max_num_batched_tokens.
struct SglangConfig {
  bool longest_prefix_first = false;     ///< schedule_policy lpm; else fcfs
  bool mixed_chunk = false;              ///< decodes share the passes of prompts
  uint32_t max_prefill_tokens = 16'384;  ///< of all prompts in one pass
  uint32_t clip_max_new_tokens = 4'096;  ///< an answer reserves at most so many tokens
  double schedule_conservativeness = 1;  ///< scales what is reserved for answers
};

}  // namespace stator::engine
