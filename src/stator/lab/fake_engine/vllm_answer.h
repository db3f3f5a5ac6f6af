// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "stator/json/writer.h"
#include "stator/lab/fake_engine/vllm_request.h"

namespace stator::fake_engine {

// Answers as vLLM 0.32 writes them. Pure: deltas in, bytes out.

/// What one choice has said so far, for answers that come in one piece.
struct CollectedChoice {
  std::vector<TokenId> tokens;
  std::string text;
  std::vector<inference::TokenLogprobs> logprobs;
  inference::FinishReason finish = inference::FinishReason::kNone;
  StopReason stop_reason;
  bool started = false;
  bool tool_named = false;      ///< the tool call's name has gone out
  size_t shown_characters = 0;  ///< of token strings, for text_offset
};

/// What an answer knows beyond its deltas.
struct VllmAnswerState {
  std::string id;  ///< as the client sees it
  int64_t created = 0;
  std::string model;  ///< as named in answers
  std::string fingerprint;
  uint32_t block_size = 16;
  uint32_t cached_tokens = 0;  ///< of the first prompt
  uint32_t generated = 0;      ///< all choices
  std::optional<std::string> kv_transfer_json;
  std::vector<CollectedChoice> choices;
};

class VllmEncoder {
 public:
  /// All outlive it.
  VllmEncoder(const FakeModel& model, const VllmRequest& request, VllmAnswerState& state)
      : model_(model), request_(request), state_(state) {}

  /// One or more event-stream frames.
  void append_chunk(const ChoiceDelta& delta, std::string& out);
  /// The usage chunk, where wanted, and the end mark.
  void append_end(std::string& out);
  std::string body();

 private:
  void completion_chunk(const ChoiceDelta& delta, std::string& out);
  void chat_chunk(const ChoiceDelta& delta, std::string& out);
  void chat_tool_delta(const ChoiceDelta& delta, std::string& out);
  void chat_frame(const ChoiceDelta& delta, std::string_view delta_json, bool last,
                  std::string& out);
  void generate_chunk(const ChoiceDelta& delta, std::string& out);
  std::string completion_body();
  std::string chat_body();
  std::string generate_body();

  void chunk_head(json::Writer& json, std::string_view object) const;
  void body_tail(json::Writer& json) const;
  void usage(json::Writer& json) const;
  void stream_usage(json::Writer& json, bool details) const;
  void completion_logprobs(json::Writer& json,
                           const std::vector<inference::TokenLogprobs>& logprobs, size_t& offset,
                           const std::vector<TokenId>* prompt) const;
  void chat_logprobs(json::Writer& json,
                     const std::vector<inference::TokenLogprobs>& logprobs) const;
  void id_logprobs(json::Writer& json, const std::vector<inference::TokenLogprobs>& logprobs) const;
  void prompt_logprobs(json::Writer& json, const std::vector<TokenId>& prompt) const;
  void ids(json::Writer& json, const std::vector<TokenId>& ids, bool wanted) const;
  void finish(json::Writer& json, inference::FinishReason reason) const;
  std::string_view finish_name(inference::FinishReason reason) const;
  std::string shown(TokenId id) const;
  uint32_t prompt_tokens() const;

  const FakeModel& model_;
  const VllmRequest& request_;
  VllmAnswerState& state_;
};

/// {"error":{…}}, or flat as releases before 0.9 wrote it.
std::string vllm_error_body(const VllmError& error, Release release);

/// Made-up but fixed logprobs of a prompt position, sampled-like: the token itself and `count`
/// likelier ones.
std::vector<inference::TokenLogprob> prompt_logprobs_at(const FakeModel& model,
                                                        const std::vector<TokenId>& prompt,
                                                        size_t position, uint32_t count);

}  // namespace stator::fake_engine
