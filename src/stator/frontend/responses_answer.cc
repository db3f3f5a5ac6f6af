// SPDX-License-Identifier: Apache-2.0
#include "stator/frontend/responses_answer.h"

#include <utility>

#include "stator/api/chunk_encoder.h"
#include "stator/frontend/logprob_views.h"
#include "stator/net/shard.h"

namespace stator::frontend {
namespace {

using protocols::responses::ResponsesEcho;

api::ResponsesEncoder make_encoder(const AnswerSpec& spec) {
  const ResponsesEcho& echo = *responses_echo(spec);
  return {response_frame(spec),
          {.events = spec.stream || echo.background,
           .queued = echo.background,
           .summarizes_reasoning = echo.summarizes_reasoning,
           .encrypts_reasoning = echo.encrypts_reasoning,
           .tools = echo.tools,
           .spelling = spec.options}};
}

class ResponsesAnswer final : public Answer {
 public:
  ResponsesAnswer(AnswerSpec spec, net::HttpExchange& exchange,
                  const tokenizer::Tokenizer& tokenizer, net::ByteBudget* budget)
      : spec_(std::move(spec)),
        echo_(*responses_echo(spec_)),
        exchange_(exchange),
        tokenizer_(tokenizer),
        encoder_(make_encoder(spec_)),
        lease_(budget == nullptr ? net::ByteLease() : net::ByteLease(*budget)) {}

  bool add(const AnswerPiece& piece) override {
    std::string& out = scratch();
    begin(out);
    if (!piece.text.empty()) {
      add_text(out, piece);
    } else if (!piece.reasoning.empty()) {
      encoder_.reasoning(out, piece.reasoning);
    } else if (piece.call != nullptr) {
      encoder_.call(out, *piece.call);
    } else {
      hold(piece.logprobs);
    }
    if (piece.finish != api::ChoiceFinish::kNone) {
      finish_ = piece.finish;
    }
    lease_.resize(encoder_.bytes());
    return send(out);
  }

  void annotate(std::string_view name, std::string_view json) override {
    if (!started_) {
      api::append_sse_annotation(spec_.annotations, name, json);
    }
  }

  void finish(const api::Usage& usage, std::string_view nvext_json) override {
    std::string& out = scratch();
    begin(out);
    if (!held_.empty()) {
      add_text(out, {});
    }
    encoder_.end(out, finish_, usage, now_s(), nvext_json);
    end(out);
  }

  void fail(const api::ApiError& error) override {
    if (!started_ && !echo_.background) {
      respond_error(exchange_, error, spec_.error_style, spec_.retry_after, answer_headers(spec_));
      return;
    }
    std::string& out = scratch();
    begin(out);
    const bool limited = error.code() == Code::kOverloaded || error.code() == Code::kRateLimited;
    encoder_.fail(out, limited ? "rate_limit_exceeded" : "server_error", error.message());
    end(out);
  }

  size_t collected_bytes() const override { return encoder_.bytes(); }

  void keep_alive() override {
    if (started_ && !echo_.background) {
      std::string& out = scratch();
      api::append_sse_keep_alive(out);
      send(out);
    }
  }

 private:
  // One buffer per thread, not per stream: at ten thousand open streams that is what counts.
  static std::string& scratch() {
    static thread_local std::string buffer;
    buffer.clear();
    return buffer;
  }

  int64_t now_s() const { return unix_seconds(exchange_.shard().clock().wall_now()); }

  void begin(std::string& out) {
    if (!std::exchange(begun_, true)) {
      encoder_.begin(out);
    }
  }

  void hold(std::span<const inference::TokenLogprobs> logprobs) {
    if (spec_.logprobs) {
      held_.insert(held_.end(), logprobs.begin(), logprobs.end());
    }
  }

  void add_text(std::string& out, const AnswerPiece& piece) {
    if (!spec_.logprobs) {
      encoder_.text(out, piece.text);
      return;
    }
    hold(piece.logprobs);
    const LogprobViews views(tokenizer_, held_, text_offset_);
    encoder_.text(out, piece.text, views.entries());
    held_.clear();
  }

  bool send(std::string_view bytes) {
    if (bytes.empty()) {
      return false;
    }
    if (!std::exchange(started_, true)) {
      begin_event_stream(exchange_, spec_);
    }
    exchange_.write(bytes);
    return true;
  }

  /// It is stored before its client sees the end; whoever follows sees the end before that.
  void end(std::string_view out) {
    if (echo_.background) {
      send(out);
      store();
      exchange_.finish();
      return;
    }
    store();
    if (spec_.stream) {
      send(out);
      exchange_.finish();
    } else {
      exchange_.respond_with(200, kJson, encoder_.response_json(), answer_headers(spec_));
    }
  }

  void store() {
    if (spec_.responses == nullptr || !echo_.store) {
      return;
    }
    responses::StoredResponse entry = response_entry(spec_);
    entry.status = encoder_.status();
    entry.output_json = encoder_.output_json();
    entry.response_json = encoder_.response_json();
    const auto live =
        echo_.background ? spec_.responses->find_live(spec_.id, spec_.owner) : nullptr;
    if (live != nullptr) {
      entry.events = live->events();
    }
    spec_.responses->put(std::move(entry), now_s());
    if (live != nullptr) {
      live->end(encoder_.response_json());
      spec_.responses->remove_live(spec_.id);
    }
  }

  AnswerSpec spec_;
  const ResponsesEcho& echo_;  // of spec_
  net::HttpExchange& exchange_;
  const tokenizer::Tokenizer& tokenizer_;
  api::ResponsesEncoder encoder_;
  net::ByteLease lease_;
  std::vector<inference::TokenLogprobs> held_;  // of tokens without text yet; bounded by max_tokens
  uint32_t text_offset_ = 0;
  api::ChoiceFinish finish_ = api::ChoiceFinish::kStop;
  bool begun_ = false;
  bool started_ = false;
};

}  // namespace

const ResponsesEcho* responses_echo(const AnswerSpec& spec) {
  return spec.protocol == &protocols::responses::kProtocol
             ? static_cast<const ResponsesEcho*>(spec.echo.get())
             : nullptr;
}

api::ResponseFrame response_frame(const AnswerSpec& spec) {
  return {.id = spec.id,
          .model = spec.model,
          .created_s = spec.created_s,
          .echo_json = responses_echo(spec)->members_json};
}

responses::StoredResponse response_entry(const AnswerSpec& spec) {
  const ResponsesEcho& echo = *responses_echo(spec);
  return {.id = spec.id,
          .owner = spec.owner,
          .previous_id = echo.previous_id,
          .input_json = echo.input_json,
          .output_json = {},
          .response_json = {},
          .events = {}};
}

std::unique_ptr<Answer> make_responses_answer(AnswerSpec spec, net::HttpExchange& exchange,
                                              const tokenizer::Tokenizer& tokenizer,
                                              net::ByteBudget* budget) {
  return std::make_unique<ResponsesAnswer>(std::move(spec), exchange, tokenizer, budget);
}

}  // namespace stator::frontend
