// SPDX-License-Identifier: Apache-2.0
#include "stator/lab/fake_engine/plain_answer.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace stator::fake_engine {
namespace {

class PlainAnswer final : public Answer {
 public:
  PlainAnswer(ServerContext& context, net::HttpExchange& exchange, Fault fault,
              PlainRequest request, PlainCounters& counters, PlainHooks hooks)
      : Answer(context, exchange, std::move(fault)),
        request_(std::move(request)),
        counters_(counters),
        hooks_(std::move(hooks)) {
    const Dialect dialect = context.config.dialect;
    state_.id = request_.id.empty() ? random_hex(context.random, 16) : request_.id;
    state_.created = unix_seconds(context.shard.clock().wall_now());
    state_.received_at = wall_seconds();
    state_.choices.resize(request_.spec.prompts.size() * request_.spec.n);
    switch (request_.route) {
      case PlainRoute::kSglangGenerate:
        encoder_ = make_sglang_encoder(context.model, request_, context.config.incremental);
        break;
      case PlainRoute::kLlamaCompletion:
        encoder_ = make_llamacpp_encoder(context.model, request_);
        break;
      default:
        encoder_ = make_openai_encoder(context.model, request_, dialect);
    }
  }
  ~PlainAnswer() override { *alive_ = false; }

  bool is_named(std::string_view id) const override { return id == state_.id; }

  void begin() override {
    if (!hooks_.before) {
      start(0);
      return;
    }
    hooks_.before(
        [this, alive = alive_](uint64_t altered) {
          if (*alive && !gone()) {
            start(altered);
          }
        },
        [this, alive = alive_](const std::string& message) {
          if (*alive && !gone()) {
            on_failure(Error(Code::kInternal, message));
          }
        });
  }

 private:
  double wall_seconds() const {
    return std::chrono::duration<double>(context_.shard.clock().wall_now().time_since_epoch())
        .count();
  }

  void start(uint64_t altered) {
    ++counters_.requests;
    for (const auto& prompt : request_.spec.prompts) {
      counters_.prompt_tokens += prompt.size();
    }
    request_.spec.altered ^= altered;
    submit(request_.spec);
  }

  void write(ChoiceDelta delta) override {
    PlainChoice& choice = state_.choices[delta.index];
    state_.now = wall_seconds();
    if (choice.tokens.empty()) {
      state_.first_token_at = state_.now;
      counters_.cached_tokens += delta.cached_tokens;
      if (delta.index == 0) {
        state_.cached_tokens = delta.cached_tokens;
      }
    }
    counters_.generation_tokens += delta.tokens.size();
    std::ranges::copy(delta.tokens, std::back_inserter(choice.tokens));
    std::ranges::copy(delta.logprobs, std::back_inserter(choice.logprobs));
    choice.text += delta.text;
    choice.finish = delta.finish;
    choice.stop_reason = delta.stop_reason;
    if (request_.stream) {
      std::string out;
      encoder_->append_chunk(delta, state_, out);
      send(out);
    }
    choice.started = true;
  }

  void finish() override {
    if (hooks_.after) {
      hooks_.after(state_);
    }
    if (!request_.stream) {
      respond(200, encoder_->body(state_));
      return;
    }
    std::string out;
    encoder_->append_end(state_, out);
    if (!out.empty()) {
      send(out);
    }
    end_stream();
  }

  void refuse(const Error& error, bool started) override {
    if (error.code() == Code::kCancelled) {
      ++counters_.aborted;
      for (PlainChoice& choice : state_.choices) {
        if (choice.finish == inference::FinishReason::kNone) {
          choice.finish = inference::FinishReason::kCancelled;
        }
      }
      state_.now = wall_seconds();
      if (!request_.stream) {
        respond(200, encoder_->body(state_));
        return;
      }
      ChoiceDelta last;
      last.finish = inference::FinishReason::kCancelled;
      std::string out;
      encoder_->append_chunk(last, state_, out);
      encoder_->append_end(state_, out);
      send(out);
      end_stream();
      return;
    }
    const int status = error.code() == Code::kInvalidArgument
                           ? 400
                           : (error.code() == Code::kOverloaded ? 503 : 500);
    const std::string body = plain_error_body(context_.config.dialect, status, error.message());
    if (started) {
      send("data: " + body + "\n\n");
      end_stream();
    } else {
      respond(status, body);
    }
  }

  PlainRequest request_;
  PlainCounters& counters_;
  PlainHooks hooks_;
  PlainState state_;
  std::unique_ptr<PlainEncoder> encoder_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // shared with hooks on their way
};

}  // namespace

std::unique_ptr<Answer> make_plain_answer(ServerContext& context, net::HttpExchange& exchange,
                                          Fault fault, PlainRequest request,
                                          PlainCounters& counters, PlainHooks hooks) {
  return std::make_unique<PlainAnswer>(context, exchange, std::move(fault), std::move(request),
                                       counters, std::move(hooks));
}

PlainView plain_view_of(const ServerContext& context) {
  return {.model = context.model,
          .dialect = context.config.dialect,
          .model_name = context.config.model_name,
          .max_model_len = context.host.info().max_model_len,
          .dp_size = context.config.dp_size,
          .now = context.shard.clock().wall_now()};
}

void respond_plain_error(net::HttpExchange& exchange, Dialect dialect, const PlainError& error) {
  respond_json(exchange, error.status, plain_error_body(dialect, error.status, error.message));
}

}  // namespace stator::fake_engine
