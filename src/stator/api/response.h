// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "stator/core/ids.h"
#include "stator/inference/sampling.h"

namespace stator::api {

// Vocabulary of answers, shared by the stream encoders (chunk_encoder.h) and the whole bodies
// (response_body.h). View types: everything they point at must outlive the call they are passed to.

/// Why a choice ended, in the API's words.
enum class ChoiceFinish : uint8_t { kNone, kStop, kLength, kToolCalls, kContentFilter };

/// "stop", "length", "tool_calls", "content_filter"; empty for kNone.
std::string_view finish_reason_name(ChoiceFinish finish);

enum class ToolCallsSeen : uint8_t { kNo, kYes };

/// Engine's reason → API's. A stop becomes kToolCalls when the choice produced a tool call;
/// cancelled reads as stop. kNone and kError give kNone (an error is an error frame, not a finish
/// reason).
ChoiceFinish to_choice_finish(inference::FinishReason reason, ToolCallsSeen tool_calls);

/// Heads every answer. `id` has its prefix already ("chatcmpl-…"), `model` is the served name.
struct ResponseIdentity {
  std::string_view id;
  std::string_view model;
  int64_t created_s = 0;  ///< unix seconds
};

struct Usage {
  uint32_t prompt_tokens = 0;
  uint32_t completion_tokens = 0;
  uint32_t cached_tokens = 0;
  uint32_t reasoning_tokens = 0;

  Usage& operator+=(const Usage& other);  ///< sums over the prompts of a batch
};

/// One token with its probability. `bytes` is what the token decodes to, maybe partial UTF-8.
struct TokenChoice {
  TokenId id = 0;
  float logprob = 0.0F;  ///< not a number: nobody knows (a prompt's first token), JSON null
  std::string_view bytes;
  uint32_t rank = 0;  ///< 1 = most likely; 0: not told
};

/// One generated position. `top` by rank, may be empty.
struct LogprobEntry {
  TokenChoice sampled;
  std::span<const TokenChoice> top;
  uint32_t text_offset =
      0;  ///< code points of the choice's text before this token; completions only
};

/// Log-probabilities of a chunk or choice: no value = not asked for (JSON null).
using Logprobs = std::optional<std::span<const LogprobEntry>>;

/// A piece of a tool call. The first piece of `index` carries id and name, later ones only
/// arguments.
struct ToolCallDelta {
  uint32_t index = 0;  ///< within the choice, from 0, in order
  std::string_view id;
  std::string_view name;
  std::string_view arguments;
};

struct ToolCall {
  std::string_view id;
  std::string_view name;
  std::string_view arguments;  ///< JSON text, sent as a string
};

/// Spelling options that hold for a whole answer.
struct ResponseOptions {
  bool include_usage = false;  ///< streams: "usage":null in chunks and one usage chunk at the end
  bool continuous_usage_stats = false;  ///< streams: running usage in every chunk that is given one
  bool tokens_as_token_ids = false;     ///< logprobs print "token_id:<id>"
  bool token_ids = false;               ///< choices have token_ids, and prompts prompt_token_ids
  std::string_view reasoning_field = "reasoning_content";
};

}  // namespace stator::api
