// SPDX-License-Identifier: Apache-2.0
#include "stator/frontend/answer.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <variant>

#include "stator/api/chunk_encoder.h"
#include "stator/api/response_body.h"
#include "stator/frontend/answer_capture.h"
#include "stator/frontend/logprob_views.h"
#include "stator/frontend/protocol_answer.h"
#include "stator/frontend/responses_answer.h"

namespace stator::frontend {
namespace {

// From here on the official SDKs try again unless they are told not to.
constexpr int kUnauthorizedStatus = 401;
constexpr int kRetriedStatusMin = 500;

class StreamAnswer final : public Answer {
 public:
  StreamAnswer(AnswerSpec spec, net::HttpExchange& exchange, const tokenizer::Tokenizer& tokenizer)
      : spec_(std::move(spec)),
        exchange_(exchange),
        tokenizer_(tokenizer),
        encoder_(make_encoder(spec_)),
        choices_(spec_.choices) {}

  bool add(const AnswerPiece& piece) override {
    ChoiceState& state = choices_[piece.choice];
    const bool opens_chat = spec_.endpoint == Endpoint::kChat && !state.role_sent;
    const bool visible = !piece.text.empty() || !piece.reasoning.empty() || piece.call != nullptr ||
                         piece.finish != api::ChoiceFinish::kNone || !piece.nvext_json.empty() ||
                         (spec_.options.token_ids && !piece.tokens.empty());
    if (!visible && !opens_chat) {
      hold_logprobs(state, piece.logprobs);
      return false;
    }
    std::span<const inference::TokenLogprobs> entries = piece.logprobs;
    if (!state.held_logprobs.empty()) {
      hold_logprobs(state, piece.logprobs);
      entries = state.held_logprobs;
    }
    const LogprobViews views(tokenizer_, entries, state.text_offset);
    api::Logprobs logprobs;
    if (spec_.logprobs && !entries.empty()) {
      logprobs = views.entries();
    }
    std::string& out = scratch();
    append(out, piece, logprobs, {});
    send(out);
    state.role_sent = true;
    state.held_logprobs.clear();
    return true;
  }

  void add_prompt_tokens(uint32_t choice, uint32_t /*prompt*/,
                         std::span<const TokenId> tokens) override {
    if (spec_.endpoint == Endpoint::kChat && std::exchange(prompt_shown_, true)) {
      return;  // it is the same for all choices
    }
    std::string& out = scratch();
    append(out, {.choice = choice}, {}, tokens);
    send(out);
    choices_[choice].role_sent = true;
  }

  void annotate(std::string_view name, std::string_view json) override {
    if (!started_) {
      api::append_sse_annotation(spec_.annotations, name, json);
    }
  }

  void finish(const api::Usage& usage, std::string_view nvext_json) override {
    std::string& out = scratch();
    if (spec_.options.include_usage || !nvext_json.empty()) {
      std::visit([&](const auto& encoder) { encoder.append_usage(out, usage, nvext_json); },
                 encoder_);
    }
    api::append_sse_done(out);
    send(out);
    exchange_.finish();
  }

  void fail(const api::ApiError& error) override {
    if (!started_) {
      respond_error(exchange_, error, spec_.error_style, spec_.retry_after, answer_headers(spec_));
      return;
    }
    std::string& out = scratch();
    api::append_sse_error(out, api::http_status(error.code(), spec_.error_style), error.message(),
                          spec_.error_style);
    api::append_sse_done(out);
    send(out);
    exchange_.finish();
  }

  void keep_alive() override {
    if (started_) {
      std::string& out = scratch();
      api::append_sse_keep_alive(out);
      send(out);
    }
  }

 private:
  struct ChoiceState {
    bool role_sent = false;
    uint32_t text_offset = 0;
    /// Of tokens whose text is held back or was swallowed; bounded by max_tokens.
    std::vector<inference::TokenLogprobs> held_logprobs;
  };
  using Encoder = std::variant<api::ChatChunkEncoder, api::CompletionChunkEncoder>;

  static Encoder make_encoder(const AnswerSpec& spec) {
    const api::ResponseIdentity identity{spec.id, spec.model, spec.created_s};
    if (spec.endpoint == Endpoint::kChat) {
      return api::ChatChunkEncoder(identity, spec.options);
    }
    return api::CompletionChunkEncoder(identity, spec.options);
  }

  void hold_logprobs(ChoiceState& state, std::span<const inference::TokenLogprobs> logprobs) const {
    if (spec_.logprobs) {
      state.held_logprobs.insert(state.held_logprobs.end(), logprobs.begin(), logprobs.end());
    }
  }

  void append(std::string& out, const AnswerPiece& piece, const api::Logprobs& logprobs,
              std::span<const TokenId> prompt_tokens) const {
    const auto tokens = spec_.options.token_ids ? piece.tokens : std::span<const TokenId>();
    if (const auto* completion = std::get_if<api::CompletionChunkEncoder>(&encoder_)) {
      completion->append_delta(out, {.index = piece.choice,
                                     .text = piece.text,
                                     .finish = piece.finish,
                                     .logprobs = logprobs,
                                     .usage = piece.usage,
                                     .nvext_json = piece.nvext_json,
                                     .token_ids = tokens,
                                     .prompt_token_ids = prompt_tokens});
      return;
    }
    api::ChatDelta delta{.index = piece.choice,
                         .first = !choices_[piece.choice].role_sent,
                         .content = piece.text,
                         .reasoning = piece.reasoning,
                         .finish = piece.finish,
                         .logprobs = logprobs,
                         .usage = piece.usage,
                         .nvext_json = piece.nvext_json,
                         .token_ids = tokens,
                         .prompt_token_ids = prompt_tokens};
    if (piece.call != nullptr) {
      delta.tool_calls = std::span(piece.call, 1);
    }
    std::get<api::ChatChunkEncoder>(encoder_).append_delta(out, delta);
  }

  // One buffer per thread, not per stream: at ten thousand open streams that is what counts.
  static std::string& scratch() {
    static thread_local std::string buffer;
    buffer.clear();
    return buffer;
  }

  void send(std::string_view bytes) {
    if (!std::exchange(started_, true)) {
      begin_event_stream(exchange_, spec_);
    }
    exchange_.write(bytes);
  }

  AnswerSpec spec_;
  net::HttpExchange& exchange_;
  const tokenizer::Tokenizer& tokenizer_;
  Encoder encoder_;
  std::vector<ChoiceState> choices_;
  bool started_ = false;
  bool prompt_shown_ = false;  ///< its tokens, of a chat
};

/// Everything that a body is written from. Shared by the answer and whoever writes it, and touched
/// by one of them at a time.
class CollectedAnswer {
 public:
  CollectedAnswer(AnswerSpec spec, const tokenizer::Tokenizer& tokenizer, net::ByteBudget* budget)
      : spec_(std::move(spec)),
        tokenizer_(tokenizer),
        lease_(budget == nullptr ? net::ByteLease() : net::ByteLease(*budget)),
        choices_(spec_.choices) {}

  void add(const AnswerPiece& piece) {
    ChoiceState& state = choices_[piece.choice];
    state.text += piece.text;
    state.reasoning += piece.reasoning;
    bytes_ += piece.text.size() + piece.reasoning.size();
    if (piece.call != nullptr) {
      add_call(state, *piece.call);
      bytes_ += piece.call->arguments.size();
    }
    if (spec_.logprobs) {
      state.logprobs.insert(state.logprobs.end(), piece.logprobs.begin(), piece.logprobs.end());
      for (const inference::TokenLogprobs& entry : piece.logprobs) {
        bytes_ += (1 + entry.top.size()) * kLogprobBytes;
      }
    }
    if (spec_.options.token_ids) {
      state.tokens.insert(state.tokens.end(), piece.tokens.begin(), piece.tokens.end());
      bytes_ += piece.tokens.size() * kTokenIdBytes;
    }
    if (piece.finish != api::ChoiceFinish::kNone) {
      state.finish = piece.finish;
    }
    lease_.resize(bytes_);
  }

  void add_prompt_tokens(uint32_t prompt, std::span<const TokenId> tokens) {
    if (prompt_tokens_.size() <= prompt) {
      prompt_tokens_.resize(prompt + 1);
    }
    if (prompt_tokens_[prompt].empty()) {
      prompt_tokens_[prompt].assign(tokens.begin(), tokens.end());
      bytes_ += tokens.size() * kTokenIdBytes;
    }
    lease_.resize(bytes_);
  }

  void add_prompt_logprobs(uint32_t prompt, std::string json) {
    if (prompt_logprobs_.size() <= prompt) {
      prompt_logprobs_.resize(prompt + 1);
    }
    bytes_ += json.size();
    prompt_logprobs_[prompt] = std::move(json);
    lease_.resize(bytes_);
  }

  void keep(std::span<const uint32_t> choices) {
    std::vector<ChoiceState> kept;
    kept.reserve(choices.size());
    for (const uint32_t choice : choices) {
      kept.push_back(std::move(choices_[choice]));
    }
    choices_ = std::move(kept);
  }

  const AnswerSpec& spec() const { return spec_; }
  size_t bytes() const { return bytes_; }

  /// Once: what it was written from is gone then.
  std::string write(const api::Usage& usage, std::string_view nvext_json) {
    const api::BodyFrame frame{.identity = {spec_.id, spec_.model, spec_.created_s},
                               .usage = usage,
                               .options = spec_.options,
                               .nvext_json = nvext_json,
                               .prompt_logprobs_json = spec_.endpoint == Endpoint::kChat
                                                           ? prompt_logprobs_of(0)
                                                           : std::string_view(),
                               .prompt_token_ids = prompt_tokens_of(0)};
    std::vector<ChoiceState> choices = std::exchange(choices_, {});
    std::vector<LogprobViews> views;
    views.reserve(choices.size());
    for (ChoiceState& state : choices) {
      for (const Call& call : state.calls) {
        state.call_views.push_back({call.id, call.name, call.arguments});
      }
      uint32_t offset = 0;
      views.emplace_back(tokenizer_, state.logprobs, offset);
    }
    std::string body;
    body.reserve(bytes_ + kFrameBytes);
    if (spec_.endpoint == Endpoint::kChat) {
      append_chat_completion(body, frame, make_choices<api::ChatChoice>(choices, views));
    } else {
      append_text_completion(body, frame, make_choices<api::CompletionChoice>(choices, views));
    }
    return body;
  }

 private:
  // A log-probability in a chat's body, {"token":"…","logprob":-1.2345678,"bytes":[…]}, and the
  // view that it is written from.
  static constexpr size_t kLogprobBytes = 96;
  static constexpr size_t kTokenIdBytes = 8;  // and the comma
  static constexpr size_t kFrameBytes = 1024;

  struct Call {
    std::string id;
    std::string name;
    std::string arguments;
  };
  struct ChoiceState {
    std::string text;
    std::string reasoning;
    std::vector<Call> calls;
    std::vector<api::ToolCall> call_views;  ///< of `calls`, made at the end
    std::vector<inference::TokenLogprobs> logprobs;
    std::vector<TokenId> tokens;
    api::ChoiceFinish finish = api::ChoiceFinish::kStop;
  };

  static void add_call(ChoiceState& state, const api::ToolCallDelta& call) {
    if (call.index >= state.calls.size()) {
      state.calls.resize(call.index + 1);  // pieces come in the order of their index
    }
    Call& known = state.calls[call.index];
    known.id += call.id;
    known.name += call.name;
    known.arguments += call.arguments;
  }

  std::string_view prompt_logprobs_of(size_t prompt) const {
    return prompt < prompt_logprobs_.size() ? prompt_logprobs_[prompt] : std::string_view();
  }

  std::span<const TokenId> prompt_tokens_of(size_t prompt) const {
    return prompt < prompt_tokens_.size() ? prompt_tokens_[prompt] : std::span<const TokenId>();
  }

  template <typename Choice>
  std::vector<Choice> make_choices(const std::vector<ChoiceState>& choices,
                                   const std::vector<LogprobViews>& views) const {
    std::vector<Choice> out(choices.size());
    for (uint32_t i = 0; i < choices.size(); ++i) {
      out[i].index = i;
      if constexpr (requires { out[i].content; }) {
        out[i].content = choices[i].text;
        out[i].reasoning = choices[i].reasoning;
        out[i].tool_calls = choices[i].call_views;
      } else {
        out[i].text = choices[i].text;
        out[i].prompt_logprobs_json = prompt_logprobs_of(i / spec_.choices_per_prompt);
        out[i].prompt_token_ids = prompt_tokens_of(i / spec_.choices_per_prompt);
      }
      out[i].token_ids = choices[i].tokens;
      out[i].finish = choices[i].finish;
      if (spec_.logprobs) {
        out[i].logprobs = views[i].entries();
      }
    }
    return out;
  }

  const AnswerSpec spec_;
  const tokenizer::Tokenizer& tokenizer_;
  net::ByteLease lease_;
  size_t bytes_ = 0;
  std::vector<ChoiceState> choices_;
  std::vector<std::string> prompt_logprobs_;         ///< per prompt; empty: not asked for
  std::vector<std::vector<TokenId>> prompt_tokens_;  ///< the same
};

class UnaryAnswer final : public Answer {
 public:
  UnaryAnswer(std::shared_ptr<CollectedAnswer> collected, net::HttpExchange& exchange)
      : collected_(std::move(collected)), exchange_(exchange) {}

  bool add(const AnswerPiece& piece) override {
    collected_->add(piece);
    return false;
  }

  void finish(const api::Usage& usage, std::string_view nvext_json) override {
    send_body(collected_->write(usage, nvext_json));
  }

  void add_prompt_logprobs(uint32_t prompt, std::string json) override {
    collected_->add_prompt_logprobs(prompt, std::move(json));
  }
  void add_prompt_tokens(uint32_t /*choice*/, uint32_t prompt,
                         std::span<const TokenId> tokens) override {
    collected_->add_prompt_tokens(prompt, tokens);
  }
  void keep(std::span<const uint32_t> choices) override { collected_->keep(choices); }

  BodyWriter take_writer(const api::Usage& usage, std::string nvext_json) override {
    if (collected_->bytes() < kQuickBodyBytesMax) {
      return {};
    }
    return [collected = collected_, usage, nvext = std::move(nvext_json)] {
      return collected->write(usage, nvext);
    };
  }

  void send_body(std::string body) override {
    exchange_.respond_with(200, kJson, std::move(body), answer_headers(collected_->spec()));
  }

  size_t collected_bytes() const override { return collected_->bytes(); }

  void fail(const api::ApiError& error) override {
    const AnswerSpec& spec = collected_->spec();
    respond_error(exchange_, error, spec.error_style, spec.retry_after, answer_headers(spec));
  }

 private:
  const std::shared_ptr<CollectedAnswer> collected_;  // shared with its writer
  net::HttpExchange& exchange_;
};

std::unique_ptr<Answer> make_writer(AnswerSpec spec, net::HttpExchange& exchange,
                                    const tokenizer::Tokenizer& tokenizer,
                                    net::ByteBudget* budget) {
  if (responses_echo(spec) != nullptr) {
    return make_responses_answer(std::move(spec), exchange, tokenizer, budget);
  }
  if (spec.protocol != nullptr) {
    return make_protocol_answer(std::move(spec), exchange, tokenizer, budget);
  }
  if (spec.stream) {
    return std::make_unique<StreamAnswer>(std::move(spec), exchange, tokenizer);
  }
  return std::make_unique<UnaryAnswer>(
      std::make_shared<CollectedAnswer>(std::move(spec), tokenizer, budget), exchange);
}

}  // namespace

std::unique_ptr<Answer> Answer::make(AnswerSpec spec, net::HttpExchange& exchange,
                                     const tokenizer::Tokenizer& tokenizer,
                                     net::ByteBudget* budget) {
  auto capture = AnswerCapture::of(exchange, spec);
  auto answer = make_writer(std::move(spec), exchange, tokenizer, budget);
  return capture ? std::move(*capture).around(std::move(answer)) : std::move(answer);
}

void begin_event_stream(net::HttpExchange& exchange, AnswerSpec& spec) {
  std::vector<net::HttpHeader> headers = answer_headers(spec);
  headers.push_back({"cache-control", "no-cache"});
  headers.push_back({"x-accel-buffering", "no"});
  exchange.start_stream(200, kEventStream, headers);
  exchange.write(std::exchange(spec.annotations, {}));
}

std::vector<net::HttpHeader> answer_headers(const AnswerSpec& spec) {
  std::vector<net::HttpHeader> headers = {{"x-request-id", spec.request_id_echo}};
  if (spec.protocol != nullptr && !spec.protocol->request_id_header.empty()) {
    headers.push_back({spec.protocol->request_id_header, spec.request_id_echo});
  }
  if (!spec.ignored_fields.empty()) {
    headers.push_back({"x-stator-ignored-fields", spec.ignored_fields});
  }
  return headers;
}

void respond_error(net::HttpExchange& exchange, const api::ApiError& error,
                   const api::ErrorStyle& style, Duration retry_after,
                   std::span<const net::HttpHeader> headers) {
  std::string body;
  const int status = api::append_error_body(body, error, style);
  std::vector<net::HttpHeader> all(headers.begin(), headers.end());
  const std::string seconds = fmt::to_string(
      std::max<int64_t>(1, std::chrono::duration_cast<std::chrono::seconds>(retry_after).count()));
  if (describe(error.code()).retry != Retry::kNever) {
    all.push_back({"retry-after", seconds});
  } else if (status >= kRetriedStatusMin) {
    all.push_back({"x-should-retry", "false"});
  }
  if (status == kUnauthorizedStatus) {
    all.push_back({"www-authenticate", "Bearer"});  // RFC 9110, 11.6.1
  }
  exchange.respond(status, kJson, body, all);
}

}  // namespace stator::frontend
