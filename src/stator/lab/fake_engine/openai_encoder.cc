// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "stator/json/writer.h"
#include "stator/lab/fake_engine/json_read.h"
#include "stator/lab/fake_engine/logprob_lists.h"
#include "stator/lab/fake_engine/plain_encoder.h"

namespace stator::fake_engine {
namespace {

using json::Writer;

/// /v1/completions and /v1/chat/completions of SGLang, TensorRT-LLM and llama.cpp.
class OpenAiEncoder final : public PlainEncoder {
 public:
  OpenAiEncoder(const FakeModel& model, const PlainRequest& request, Dialect dialect)
      : model_(model), request_(request), dialect_(dialect) {}

  void append_chunk(const ChoiceDelta& delta, const PlainState& state, std::string& out) override {
    if (is_chat() && !state.choices[delta.index].started) {
      frame(state, out, [&](json::Writer& json) {
        json.begin_object().key("index").value(delta.index).key("delta").begin_object();
        json.key("role").value("assistant").key("content").value("").end_object();
        tail(json, inference::FinishReason::kNone, {}, {});
        json.end_object();
      });
    }
    frame(state, out, [&](json::Writer& json) {
      json.begin_object().key("index").value(delta.index);
      if (is_chat()) {
        json.key("delta").begin_object().key("content").value(delta.text).end_object();
      } else {
        const bool first = !state.choices[delta.index].started;
        json.key("text").value(first ? echo_of(delta.index) + delta.text : delta.text);
      }
      append_tokens(json, delta.tokens);
      tail(json, delta.finish, delta.stop_reason, delta.logprobs);
      json.end_object();
    });
  }

  void append_end(const PlainState& state, std::string& out) override {
    if (request_.include_usage) {
      out += "data: ";
      json::Writer json(out);
      json.begin_object();
      head(json, state, true);
      json.key("choices").begin_array().end_array();
      usage(json, state);
      json.end_object();
      out += "\n\n";
    }
    out += "data: [DONE]\n\n";
  }

  std::string body(const PlainState& state) override {
    std::string out;
    json::Writer json(out);
    json.begin_object();
    head(json, state, false);
    json.key("choices").begin_array();
    for (uint32_t i = 0; i < state.choices.size(); ++i) {
      const PlainChoice& choice = state.choices[i];
      json.begin_object().key("index").value(i);
      if (is_chat()) {
        json.key("message").begin_object().key("role").value("assistant");
        json.key("content").value(choice.text).end_object();
      } else {
        json.key("text").value(echo_of(i) + choice.text);
      }
      append_tokens(json, choice.tokens);
      tail(json, choice.finish, choice.stop_reason, choice.logprobs);
      if (dialect_ == Dialect::kTrtllm) {
        json.key("disaggregated_params");
        state.handoff_json ? json.raw(*state.handoff_json) : json.null();
      }
      json.end_object();
    }
    json.end_array();
    usage(json, state);
    if (dialect_ == Dialect::kTrtllm) {
      json.key("prompt_token_ids");
      state.handoff_json ? append_ids(json, request_.spec.prompts.front()) : json.null();
    }
    json.end_object();
    return out;
  }

 private:
  bool is_chat() const { return request_.route == PlainRoute::kChat; }

  /// The prompt's text in front of a completion with `echo`; llama.cpp has no such thing.
  std::string echo_of(uint32_t choice) const {
    if (dialect_ == Dialect::kLlamacpp || is_chat() || !read_flag(request_.body, "echo")) {
      return {};
    }
    const json::Value* prompt = request_.body.find("prompt");
    if (prompt != nullptr && prompt->is_array()) {
      const size_t index = choice / request_.spec.n;  // choices of one prompt follow each other
      const auto& prompts = prompt->elements();
      prompt = index < prompts.size() ? &prompts[index] : nullptr;
    }
    return prompt != nullptr && prompt->is_string() ? std::string(prompt->text()) : std::string();
  }

  template <typename Choice>
  void frame(const PlainState& state, std::string& out, Choice choice) {
    out += "data: ";
    json::Writer json(out);
    json.begin_object();
    head(json, state, true);
    json.key("choices").begin_array();
    choice(json);
    json.end_array();
    if (dialect_ == Dialect::kSglang) {
      json.key("usage").null();
    }
    json.end_object();
    out += "\n\n";
  }

  void head(json::Writer& json, const PlainState& state, bool chunk) const {
    const std::string_view object =
        is_chat() ? (chunk ? "chat.completion.chunk" : "chat.completion") : "text_completion";
    json.key("id").value(state.id).key("object").value(object);
    json.key("created").value(state.created).key("model").value(request_.model);
    if (dialect_ == Dialect::kLlamacpp) {
      json.key("system_fingerprint").value("b0-stator");
    }
  }

  static json::Writer& append_ids(json::Writer& json, const std::vector<TokenId>& ids) {
    json.begin_array();
    for (const TokenId id : ids) {
      json.value(id);
    }
    return json.end_array();
  }

  void append_tokens(json::Writer& json, const std::vector<TokenId>& tokens) const {
    if (dialect_ == Dialect::kTrtllm) {
      json.key("token_ids");
      request_.return_tokens ? append_ids(json, tokens) : json.null();
    }
  }

  void tail(json::Writer& json, inference::FinishReason finish, const StopReason& reason,
            const std::vector<inference::TokenLogprobs>& logprobs) const {
    json.key("logprobs");
    if (request_.spec.sampling.logprobs && !logprobs.empty()) {
      append_logprobs(json, logprobs);
    } else {
      json.null();
    }
    json.key("finish_reason");
    switch (finish) {
      case inference::FinishReason::kNone:
        json.null();
        break;
      case inference::FinishReason::kLength:
        json.value("length");
        break;
      case inference::FinishReason::kCancelled:
        json.value("abort");
        break;
      default:
        json.value("stop");
    }
    if (dialect_ == Dialect::kLlamacpp) {
      return;
    }
    json.key(dialect_ == Dialect::kSglang ? "matched_stop" : "stop_reason");
    if (const auto* token = std::get_if<TokenId>(&reason)) {
      json.value(*token);
    } else if (const auto* text = std::get_if<std::string>(&reason)) {
      json.value(*text);
    } else {
      json.null();
    }
  }

  /// llama.cpp has the chat form on both routes.
  void append_logprobs(json::Writer& json,
                       const std::vector<inference::TokenLogprobs>& logprobs) const {
    if (is_chat() || dialect_ == Dialect::kLlamacpp) {
      json.begin_object().key("content");
      write_logprob_entries(json, logprobs, [&](const inference::TokenLogprob& entry) {
        if (dialect_ == Dialect::kLlamacpp) {
          json.key("id").value(entry.token);
        }
        write_chat_logprob(json, token_text(model_, entry.token), entry.logprob);
      });
      json.end_object();
      return;
    }
    size_t offset = 0;
    std::vector<LogprobRow> rows;
    for (const auto& entry : logprobs) {
      rows.push_back({entry.sampled.token, entry.sampled.logprob, entry.top});
    }
    write_completion_logprobs(json, rows, offset,
                              [this](TokenId id) { return token_text(model_, id); });
  }

  void usage(json::Writer& json, const PlainState& state) const {
    size_t prompt = 0;
    size_t generated = 0;
    for (const auto& ids : request_.spec.prompts) {
      prompt += ids.size();
    }
    for (const PlainChoice& choice : state.choices) {
      generated += choice.tokens.size();
    }
    json.key("usage").begin_object().key("prompt_tokens").value(prompt);
    json.key("total_tokens").value(prompt + generated);
    json.key("completion_tokens").value(generated);
    if (dialect_ == Dialect::kSglang) {
      json.key("reasoning_tokens").value(0);
    } else {
      json.key("prompt_tokens_details").begin_object();
      json.key("cached_tokens").value(state.cached_tokens).end_object();
    }
    json.end_object();
  }

  const FakeModel& model_;
  const PlainRequest& request_;
  const Dialect dialect_;
};

}  // namespace

std::unique_ptr<PlainEncoder> make_openai_encoder(const FakeModel& model,
                                                  const PlainRequest& request, Dialect dialect) {
  return std::make_unique<OpenAiEncoder>(model, request, dialect);
}

std::string plain_error_body(Dialect dialect, int status, std::string_view message) {
  std::string out;
  json::Writer json(out);
  json.begin_object();
  if (dialect == Dialect::kTrtllm) {
    json.key("object").value("error").key("message").value(message);
    json.key("type").value(status < 500 ? "BadRequestError" : "InternalServerError");
    json.key("param").null().key("code").value(status);
  } else {
    json.key("error").begin_object();
    if (dialect == Dialect::kLlamacpp) {
      json.key("code").value(status).key("message").value(message).key("type");
      json.value(status == 503 ? "unavailable_error"
                               : (status < 500 ? "invalid_request_error" : "server_error"));
    } else {
      json.key("message").value(message);
    }
    json.end_object();
  }
  json.end_object();
  return out;
}

}  // namespace stator::fake_engine
