// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "stator/lab/fake_engine/plain_request.h"

namespace stator::fake_engine {

/// What one choice has said so far.
struct PlainChoice {
  std::vector<TokenId> tokens;
  std::string text;
  std::vector<inference::TokenLogprobs> logprobs;
  inference::FinishReason finish = inference::FinishReason::kNone;
  StopReason stop_reason;
  bool started = false;
};

/// What an answer knows beside its deltas. Times are seconds since the epoch.
struct PlainState {
  std::string id;
  int64_t created = 0;
  uint32_t cached_tokens = 0;
  double received_at = 0;
  double first_token_at = 0;
  double now = 0;
  std::optional<std::string> handoff_json;  ///< TensorRT-LLM's disaggregated_params
  std::vector<PlainChoice> choices;
};

/// How one route writes its answers. Pure; `state` already includes the delta.
class PlainEncoder {
 public:
  virtual ~PlainEncoder() = default;
  virtual void append_chunk(const ChoiceDelta& delta, const PlainState& state,
                            std::string& out) = 0;
  virtual void append_end(const PlainState& state, std::string& out) = 0;
  virtual std::string body(const PlainState& state) = 0;
};

/// `model` and `request` outlive the encoder.
std::unique_ptr<PlainEncoder> make_openai_encoder(const FakeModel& model,
                                                  const PlainRequest& request, Dialect dialect);
std::unique_ptr<PlainEncoder> make_sglang_encoder(const FakeModel& model,
                                                  const PlainRequest& request, bool incremental);
std::unique_ptr<PlainEncoder> make_llamacpp_encoder(const FakeModel& model,
                                                    const PlainRequest& request);

/// The body of an error, as the dialect writes it.
std::string plain_error_body(Dialect dialect, int status, std::string_view message);

}  // namespace stator::fake_engine
