// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "stator/json/writer.h"
#include "stator/lab/fake_engine/plain_encoder.h"
#include "stator/lab/fake_engine/vllm_answer.h"

namespace stator::fake_engine {
namespace {

using json::Writer;

/// Answers of /generate, as SGLang 0.5.23 writes them: by default every event repeats everything
/// said so far.
class SglangEncoder final : public PlainEncoder {
 public:
  SglangEncoder(const FakeModel& model, const PlainRequest& request, bool incremental)
      : model_(model), request_(request), incremental_(incremental) {}

  void append_chunk(const ChoiceDelta& delta, const PlainState& state, std::string& out) override {
    out += "data: ";
    json::Writer json(out);
    const PlainChoice& choice = state.choices[delta.index];
    answer(json, delta.index, state, incremental_ ? delta.text : choice.text,
           incremental_ ? delta.tokens : choice.tokens);
    out += "\n\n";
  }

  void append_end(const PlainState& /*state*/, std::string& out) override {
    out += "data: [DONE]\n\n";
  }

  std::string body(const PlainState& state) override {
    std::string out;
    json::Writer json(out);
    const bool list = state.choices.size() > 1;
    if (list) {
      json.begin_array();
    }
    for (uint32_t i = 0; i < state.choices.size(); ++i) {
      answer(json, i, state, state.choices[i].text, state.choices[i].tokens);
    }
    if (list) {
      json.end_array();
    }
    return out;
  }

 private:
  void answer(json::Writer& json, uint32_t index, const PlainState& state, std::string_view text,
              const std::vector<TokenId>& tokens) const {
    const PlainChoice& choice = state.choices[index];
    json.begin_object().key("text").value(text).key("output_ids").begin_array();
    for (const TokenId id : tokens) {
      json.value(id);
    }
    json.end_array().key("meta_info");
    meta(json, choice, request_.spec.prompts[index / request_.spec.n], state);
    if (state.choices.size() > 1) {
      json.key("index").value(index);
    }
    json.end_object();
  }

  void meta(json::Writer& json, const PlainChoice& choice, const std::vector<TokenId>& prompt,
            const PlainState& state) const {
    const bool last = choice.finish != inference::FinishReason::kNone;
    const bool streams = request_.stream;
    json.begin_object().key("id").value(state.id).key("finish_reason");
    finish(json, choice);
    json.key("prompt_tokens").value(prompt.size()).key("weight_version").value("default");
    json.key("num_retractions").value(0).key("storage_prefetch_wait").raw("0.0");
    json.key("storage_staging_wait").raw("0.0");
    json.key("forward_entry_time").value(state.received_at);
    json.key("prefill_finished_time").value(state.first_token_at).key("queue_time").raw("0.0");
    if (request_.spec.sampling.logprobs) {
      logprobs(json, choice, prompt);
    }
    json.key("reasoning_tokens").value(0);
    json.key("completion_tokens").value(choice.tokens.size());
    json.key("cached_tokens").value(state.cached_tokens);
    if (last) {
      json.key("weight_versions").begin_array().begin_object().key("version").value("default");
      json.key("start").value(0).key("end").value(choice.tokens.size()).end_object().end_array();
    }
    json.key("cached_tokens_details");
    if (state.cached_tokens == 0) {
      json.null();
    } else {
      json.begin_object().key("device").value(state.cached_tokens).key("host").value(0);
      json.end_object();
    }
    json.key("dp_rank").null();
    if (last) {
      timings(json, choice, state, streams);
    } else if (choice.tokens.size() == 1) {
      json.key("response_sent_to_client_ts").value(state.now);
    }
    json.end_object();
  }

  static void timings(json::Writer& json, const PlainChoice& choice, const PlainState& state,
                      bool streams) {
    const double elapsed = std::max(state.now - state.received_at, 1e-6);
    json.key("e2e_latency").value(elapsed).key("request_received_ts").value(state.received_at);
    json.key("first_token_latency").value(state.first_token_at - state.received_at);
    json.key("api_server_dispatch_finish_ts").value(state.received_at);
    if (streams) {
      json.key("response_sent_to_client_ts").value(state.first_token_at);
    }
    json.key("request_finished_ts").value(state.now);
    json.key("decode_throughput").value(static_cast<double>(choice.tokens.size()) / elapsed);
    if (!streams) {
      json.key("response_sent_to_client_ts").value(state.now);
    }
  }

  static void finish(json::Writer& json, const PlainChoice& choice) {
    switch (choice.finish) {
      case inference::FinishReason::kNone:
        json.null();
        return;
      case inference::FinishReason::kLength:
        json.begin_object().key("type").value("length").key("length").value(choice.tokens.size());
        break;
      case inference::FinishReason::kStop:
        json.begin_object().key("type").value("stop").key("matched");
        if (const auto* text = std::get_if<std::string>(&choice.stop_reason)) {
          json.value(*text);
        } else {
          json.value(choice.tokens.empty() ? 0 : choice.tokens.back());
        }
        break;
      default:
        json.begin_object().key("type").value("abort").key("message").value("Abort in waiting");
        json.key("status_code").null().key("err_type").null();
    }
    json.end_object();
  }

  static void triple(json::Writer& json, const inference::TokenLogprob& entry) {
    json.begin_array().value(static_cast<double>(entry.logprob)).value(entry.token).null();
    json.end_array();
  }

  void logprobs(json::Writer& json, const PlainChoice& choice,
                const std::vector<TokenId>& prompt) const {
    const uint32_t count = *request_.spec.sampling.logprobs;
    const size_t from = std::min<size_t>(request_.prompt_logprobs_from, prompt.size());
    const auto top = [&](const std::vector<inference::TokenLogprob>& entries, size_t skip) {
      json.begin_array();
      for (size_t i = skip; i < entries.size(); ++i) {
        triple(json, entries[i]);
      }
      json.end_array();
    };
    json.key("input_token_logprobs").begin_array();
    for (size_t i = from; i < prompt.size(); ++i) {
      if (i == from) {
        json.begin_array().null().value(prompt[i]).null().end_array();
      } else {
        triple(json, prompt_logprobs_at(model_, prompt, i, 0).front());
      }
    }
    json.end_array().key("output_token_logprobs").begin_array();
    for (const auto& entry : choice.logprobs) {
      triple(json, entry.sampled);
    }
    json.end_array().key("output_token_logprobs_length").value(choice.logprobs.size());
    if (count == 0) {
      return;
    }
    json.key("input_top_logprobs").begin_array();
    for (size_t i = from; i < prompt.size(); ++i) {
      i == from ? static_cast<void>(json.null())
                : top(prompt_logprobs_at(model_, prompt, i, count), 1);
    }
    json.end_array().key("output_top_logprobs").begin_array();
    for (const auto& entry : choice.logprobs) {
      top(entry.top, 0);
    }
    json.end_array();
  }

  const FakeModel& model_;
  const PlainRequest& request_;
  const bool incremental_;
};

}  // namespace

std::unique_ptr<PlainEncoder> make_sglang_encoder(const FakeModel& model,
                                                  const PlainRequest& request, bool incremental) {
  return std::make_unique<SglangEncoder>(model, request, incremental);
}

}  // namespace stator::fake_engine
