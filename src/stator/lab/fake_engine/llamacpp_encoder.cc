// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "stator/json/writer.h"
#include "stator/lab/fake_engine/logprob_lists.h"
#include "stator/lab/fake_engine/plain_encoder.h"

namespace stator::fake_engine {
namespace {

using json::Writer;

/// Answers of llama.cpp's /completion: the last chunk says why it ended and has no tokens.
class LlamacppEncoder final : public PlainEncoder {
 public:
  LlamacppEncoder(const FakeModel& model, const PlainRequest& request)
      : model_(model), request_(request) {}

  void append_chunk(const ChoiceDelta& delta, const PlainState& state, std::string& out) override {
    const PlainChoice& choice = state.choices[delta.index];
    if (!delta.tokens.empty()) {
      out += "data: ";
      json::Writer json(out);
      json.begin_object().key("index").value(delta.index).key("content").value(delta.text);
      append_tokens(json, delta.tokens);
      json.key("stop").value(false).key("id_slot").value(-1);
      json.key("tokens_predicted").value(choice.tokens.size());
      json.key("tokens_evaluated").value(prompt_tokens());
      append_probabilities(json, delta.logprobs);
      json.end_object();
      out += "\n\n";
    }
    if (delta.finish != inference::FinishReason::kNone) {
      out += "data: ";
      json::Writer json(out);
      append_last(json, delta.index, state, "", {});
      out += "\n\n";
    }
  }

  void append_end(const PlainState& /*state*/, std::string& /*out*/) override {}

  std::string body(const PlainState& state) override {
    std::string out;
    json::Writer json(out);
    append_last(json, 0, state, state.choices[0].text, state.choices[0].tokens);
    return out;
  }

 private:
  size_t prompt_tokens() const { return request_.spec.prompts.front().size(); }

  void append_tokens(json::Writer& json, const std::vector<TokenId>& tokens) const {
    json.key("tokens").begin_array();
    for (const TokenId id : request_.return_tokens ? tokens : std::vector<TokenId>()) {
      json.value(id);
    }
    json.end_array();
  }

  void append_probabilities(json::Writer& json,
                            const std::vector<inference::TokenLogprobs>& logprobs) const {
    if (!request_.spec.sampling.logprobs || logprobs.empty()) {
      return;
    }
    json.key("completion_probabilities");
    write_logprob_entries(json, logprobs, [&](const inference::TokenLogprob& entry) {
      json.key("id").value(entry.token);
      write_chat_logprob(json, token_text(model_, entry.token), entry.logprob);
    });
  }

  void append_last(json::Writer& json, uint32_t index, const PlainState& state,
                   std::string_view content, const std::vector<TokenId>& tokens) const {
    const PlainChoice& choice = state.choices[index];
    const auto* word = std::get_if<std::string>(&choice.stop_reason);
    json.begin_object().key("index").value(index).key("content").value(content);
    append_tokens(json, tokens);
    json.key("id_slot").value(0).key("stop").value(true).key("model").value(request_.model);
    json.key("tokens_predicted").value(choice.tokens.size());
    json.key("tokens_evaluated").value(prompt_tokens());
    json.key("generation_settings").begin_object();
    json.key("n_predict").value(request_.spec.stop.max_tokens);
    json.key("temperature").value(static_cast<double>(request_.spec.sampling.temperature));
    json.key("stream").value(request_.stream).end_object();
    json.key("prompt").value(request_.prompt_text).key("has_new_line").value(false);
    json.key("truncated").value(false).key("stop_type");
    json.value(choice.finish == inference::FinishReason::kLength
                   ? "limit"
                   : (word != nullptr ? "word" : "eos"));
    json.key("stopping_word").value(word != nullptr ? std::string_view(*word) : "");
    json.key("tokens_cached").value(prompt_tokens() + choice.tokens.size() - 1);
    const double prompt_ms = (state.first_token_at - state.received_at) * 1e3;
    const double predicted_ms = (state.now - state.first_token_at) * 1e3;
    json.key("timings").begin_object().key("cache_n").value(state.cached_tokens);
    json.key("prompt_n").value(prompt_tokens() - state.cached_tokens);
    json.key("prompt_ms").value(prompt_ms).key("predicted_n").value(choice.tokens.size());
    json.key("predicted_ms").value(predicted_ms).end_object();
    if (!request_.stream) {
      append_probabilities(json, choice.logprobs);
    }
    json.end_object();
  }

  const FakeModel& model_;
  const PlainRequest& request_;
};

}  // namespace

std::unique_ptr<PlainEncoder> make_llamacpp_encoder(const FakeModel& model,
                                                    const PlainRequest& request) {
  return std::make_unique<LlamacppEncoder>(model, request);
}

}  // namespace stator::fake_engine
