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

// Requests as vLLM 0.32 reads them: which are refused, with which words (recorded ones are in
// test/vllm_request_test.cc), and what the rest ask for. Pure.

enum class VllmRoute : uint8_t { kCompletions, kChat, kGenerate };

/// A refusal in vLLM's words.
struct VllmError {
  int status = 400;
  std::string message;
  std::string type = "BadRequestError";
  std::string param;  ///< empty = null
};
template <typename T>
using VllmResult = std::expected<T, VllmError>;

/// What requests are checked against.
struct VllmModelView {
  const FakeModel& model;
  uint32_t max_model_len = 0;
  uint32_t dp_size = 1;
  std::vector<std::string> names;  ///< the base model first, then adapters
  WallTime now;
};

/// How tool calls come into a chat answer.
struct VllmToolPlan {
  enum class Mode : uint8_t { kNone, kNamed, kRequired } mode = Mode::kNone;
  std::string function;
};

struct VllmRequest {
  VllmRoute route = VllmRoute::kCompletions;
  std::string model;  ///< as asked for; empty = the base model
  GenerateSpec spec;
  std::vector<std::string> prompt_texts;  ///< of text prompts, for echo
  bool stream = false;
  bool include_usage = false;
  bool continuous_usage = false;
  bool return_token_ids = false;
  bool echo = false;
  bool tokens_as_ids = false;
  bool text_output = false;  ///< generate: output_mode "text"
  std::optional<uint32_t> prompt_logprobs;
  std::string request_id;  ///< of the body
  std::optional<json::Value> kv_transfer;
  VllmToolPlan tools;
};

/// The headers that change what a request means.
struct VllmHeaders {
  std::optional<std::string_view> dp_rank;
  std::optional<std::string_view> session_id;
  std::optional<std::string_view> priority;
};

VllmResult<VllmRequest> read_vllm_request(VllmRoute route, std::string_view body,
                                          const VllmHeaders& headers, const VllmModelView& view);

/// A body that must be a JSON object, refused as pydantic refuses it.
VllmResult<json::Value> read_vllm_body(std::string_view body);

/// The prompt ids of a request that names `messages` or `prompt`: also behind /tokenize. `owner`
/// learns of its media.
VllmResult<std::vector<TokenId>> read_chat_prompt(const json::Value& body,
                                                  const VllmModelView& view,
                                                  BlockOwner* owner = nullptr);

}  // namespace stator::fake_engine
