// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "stator/api/response.h"
#include "stator/core/ids.h"

namespace stator::api {

// Whole JSON bodies, appended to `out`.

struct ChatChoice {
  uint32_t index = 0;
  std::string_view content;  ///< empty: "" without tool calls, null with
  std::string_view reasoning;
  std::string_view refusal;
  std::span<const ToolCall> tool_calls;
  ChoiceFinish finish = ChoiceFinish::kStop;
  Logprobs logprobs;
  std::span<const TokenId> token_ids{};  ///< for ResponseOptions::token_ids
};

struct CompletionChoice {
  uint32_t index = 0;
  std::string_view text;
  ChoiceFinish finish = ChoiceFinish::kStop;
  Logprobs logprobs;
  std::string_view prompt_logprobs_json;        ///< as in BodyFrame, of its prompt
  std::span<const TokenId> token_ids{};         ///< as in ChatChoice
  std::span<const TokenId> prompt_token_ids{};  ///< of its prompt
};

/// What stands around the choices.
struct BodyFrame {
  ResponseIdentity identity;
  Usage usage;
  ResponseOptions options;
  std::string_view nvext_json;  ///< ready-made object (see NvextResponse); empty = none
  /// Of a chat: ready-made array (see append_prompt_logprobs); empty = none.
  std::string_view prompt_logprobs_json{};
  std::span<const TokenId> prompt_token_ids{};  ///< of a chat, for ResponseOptions::token_ids
};

void append_chat_completion(std::string& out, const BodyFrame& frame,
                            std::span<const ChatChoice> choices);
void append_text_completion(std::string& out, const BodyFrame& frame,
                            std::span<const CompletionChoice> choices);

/// Log-probabilities of a prompt as vLLM tells them: null for its first token, which nobody scored,
/// then per token {"<id>":{"logprob","rank","decoded_token"},…}, the likeliest `alternatives` first
/// and the prompt's own after them, if it is none of these.
void append_prompt_logprobs(std::string& out, std::span<const LogprobEntry> scored,
                            size_t alternatives);

/// The answer half of `nvext`, as far as the client asked for it in extra_fields.
struct NvextResponse {
  struct Workers {
    std::optional<uint64_t> prefill_worker_id;
    std::optional<uint32_t> prefill_dp_rank;
    std::optional<uint64_t> decode_worker_id;
    std::optional<uint32_t> decode_dp_rank;
  };
  struct Timing {
    std::optional<double> request_received_ms;  ///< unix time
    std::optional<double> prefill_wait_time_ms;
    std::optional<double> prefill_time_ms;
    std::optional<double> ttft_ms;
    std::optional<double> total_time_ms;
    std::optional<double> kv_hit_rate;  ///< 0 … 1
    std::optional<uint64_t> router_queue_depth;
    std::optional<double> kv_transfer_estimated_latency_ms;  ///< 0: nothing was transferred
  };
  std::optional<Workers> workers;
  std::optional<Timing> timing;
  struct EngineData {
    uint32_t cached_tokens = 0;
    uint32_t attempts = 1;            ///< workers that had a part in it
    std::optional<double> queued_ms;  ///< in the engine; nothing: it does not tell
  };
  std::optional<EngineData> engine_data;
  std::optional<std::span<const TokenId>> completion_token_ids;
  std::optional<std::span<const TokenId>> token_ids;  ///< the prompt's, for dry-run routing
  /// The user stop that matched: at most one of the two.
  std::optional<std::string_view> stop_string;
  std::optional<TokenId> stop_token;
  std::string_view prompt_logprobs_json{};  ///< see append_prompt_logprobs; empty = none
};

/// Appends the object, or nothing when no member is set.
void append_nvext(std::string& out, const NvextResponse& nvext);

struct ModelEntry {
  std::string_view id;
  std::string_view root{};    ///< what an alias stands for, or where the model is from
  std::string_view parent{};  ///< an adapter's base model; empty: it is none
  int64_t created_s = 0;      ///< when it was registered
  std::string_view owned_by = "nvidia";
  std::optional<uint64_t> context_window;
  std::optional<uint64_t> max_output_tokens;
};

/// {"object":"list","data":[…]}
void append_model_list(std::string& out, std::span<const ModelEntry> models);
void append_model(std::string& out, const ModelEntry& model);

struct TokenizeResult {
  std::span<const TokenId> tokens;
  uint32_t max_model_len = 0;
  std::optional<std::span<const std::string>> token_strs;
};

/// {"count","max_model_len","tokens","token_strs"}, the last one null if nobody asked for it
void append_tokenize_response(std::string& out, const TokenizeResult& result);
/// {"prompt"}
void append_detokenize_response(std::string& out, std::string_view prompt);

/// {"status":"live"|"shutting_down","message"}
enum class Liveness : uint8_t { kLive, kShuttingDown };
void append_live_body(std::string& out, Liveness liveness);

struct HealthyInstance {
  std::string_view model;
  WorkerId worker;
  std::string_view url;     ///< where it, or its engine, is; empty = left out
  std::string_view reason;  ///< why it gets nothing new; empty: it does
};
/// {"status":"healthy","endpoints":[…],"instances":[{"model","instance_id","url"}]}; those with a
/// reason stand in "unavailable" with it, which is left out when there are none.
void append_healthy_body(std::string& out, std::span<const std::string_view> endpoints,
                         std::span<const HealthyInstance> instances);
/// {"status":"not_ready","stage","message"}
void append_not_ready_body(std::string& out, std::string_view stage, std::string_view message);

}  // namespace stator::api
