// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <expected>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "stator/core/clock.h"
#include "stator/lab/fake_engine/generation.h"

namespace stator::fake_engine {

// Requests of the engines other than vLLM: their OpenAI routes and their own. Pure.

enum class PlainRoute : uint8_t {
  kCompletions,
  kChat,
  kSglangGenerate,  ///< /generate
  kLlamaCompletion  ///< /completion
};

struct PlainError {
  int status = 400;
  std::string message;
};
template <typename T>
using PlainResult = std::expected<T, PlainError>;

struct PlainRequest {
  PlainRoute route = PlainRoute::kCompletions;
  GenerateSpec spec;
  std::string prompt_text;
  std::string model;
  std::string id;  ///< of the client, may be empty
  bool stream = false;
  bool include_usage = false;
  bool return_tokens = false;                  ///< token ids in the answer
  uint32_t prompt_logprobs_from = UINT32_MAX;  ///< SGLang: first prompt position with logprobs
  json::Value body;  ///< the whole request, for what only one dialect reads
};

struct PlainView {
  const FakeModel& model;
  Dialect dialect = Dialect::kSglang;
  std::string_view model_name;
  uint32_t max_model_len = 0;
  uint32_t dp_size = 1;
  WallTime now;
};

/// Token ids outside the vocabulary are left to the caller: engines differ most in that.
PlainResult<PlainRequest> read_plain_request(PlainRoute route, std::string_view body,
                                             const PlainView& view);
/// The first id that is not in the vocabulary.
std::optional<TokenId> find_foreign_token(const GenerateSpec& spec, const FakeModel& model);

}  // namespace stator::fake_engine
