// SPDX-License-Identifier: Apache-2.0
#include "stator/frontend/protocol_answer.h"

#include <utility>

#include "stator/api/chunk_encoder.h"
#include "stator/core/assert.h"
#include "stator/frontend/logprob_views.h"
#include "stator/protocols/output.h"

namespace stator::frontend {
namespace {

protocols::AnswerHead head_of(const AnswerSpec& spec) {
  return {.id = spec.id,
          .model = spec.model,
          .created_s = spec.created_s,
          .tokens_as_token_ids = spec.options.tokens_as_token_ids,
          .echo = spec.echo};
}

protocols::Piece to_piece(const AnswerPiece& piece) {
  return {.text = piece.text,
          .reasoning = piece.reasoning,
          .call = piece.call,
          .finish = piece.finish,
          .stop_string = piece.stop_string,
          .logprobs = {},
          .tokens = piece.tokens,
          .token_logprobs =
              piece.tokens.empty() ? std::span<const inference::TokenLogprobs>() : piece.logprobs};
}

class ProtocolStream final : public Answer {
 public:
  ProtocolStream(AnswerSpec spec, net::HttpExchange& exchange,
                 const tokenizer::Tokenizer& tokenizer)
      : spec_(std::move(spec)),
        exchange_(exchange),
        tokenizer_(tokenizer),
        writer_(spec_.protocol->make_stream_writer(head_of(spec_))) {}

  bool add(const AnswerPiece& piece) override {
    std::string& out = scratch();
    if (!started_) {
      STATOR_ASSERT(piece.usage != nullptr, "a protocol's pieces carry the running totals");
      writer_->begin(out, *piece.usage);
    }
    write(out, piece);
    if (out.empty()) {
      return false;
    }
    send(out);
    return true;
  }

  void annotate(std::string_view name, std::string_view json) override {
    if (!started_) {
      api::append_sse_annotation(spec_.annotations, name, json);
    }
  }

  void finish(const api::Usage& usage, std::string_view nvext_json) override {
    std::string& out = scratch();
    writer_->finish(out, {.usage = usage, .nvext_json = nvext_json});
    send(out);
    exchange_.finish();
  }

  void fail(const api::ApiError& error) override {
    if (!started_) {
      respond_error(exchange_, error, spec_.error_style, spec_.retry_after, answer_headers(spec_));
      return;
    }
    std::string& out = scratch();
    writer_->fail(out, {.status = api::http_status(error.code(), spec_.error_style),
                        .message = error.message()});
    send(out);
    exchange_.finish();
  }

  void keep_alive() override {
    if (started_) {
      std::string& out = scratch();
      writer_->keep_alive(out);
      send(out);
    }
  }

 private:
  void write(std::string& out, const AnswerPiece& piece) {
    protocols::Piece shown = to_piece(piece);
    if (!spec_.logprobs || spec_.protocol->plain) {
      writer_->add(out, shown);
      return;
    }
    // Tokens whose text is held back come with the next piece that shows something.
    held_.insert(held_.end(), piece.logprobs.begin(), piece.logprobs.end());
    const bool visible = !piece.text.empty() || !piece.reasoning.empty() || piece.call != nullptr ||
                         piece.finish != api::ChoiceFinish::kNone;
    if (!visible) {
      return;
    }
    const LogprobViews views(tokenizer_, held_, text_offset_);
    shown.logprobs = views.entries();
    writer_->add(out, shown);
    held_.clear();
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
  const std::unique_ptr<protocols::StreamWriter> writer_;
  std::vector<inference::TokenLogprobs> held_;  // bounded by max_tokens
  uint32_t text_offset_ = 0;
  bool started_ = false;
};

/// What a body is written from. Shared by the answer and whoever writes it, and touched by one of
/// them at a time.
struct Collected {
  Collected(AnswerSpec spec_in, net::ByteBudget* budget)
      : spec(std::move(spec_in)),
        lease(budget == nullptr ? net::ByteLease() : net::ByteLease(*budget)) {}

  std::string write(const api::Usage& usage, std::string_view nvext_json) const {
    std::string body;
    body.reserve(output.bytes() + kFrameBytes);
    spec.protocol->append_body(body, head_of(spec), output,
                               {.usage = usage, .nvext_json = nvext_json});
    return body;
  }

  static constexpr size_t kFrameBytes = 1024;
  const AnswerSpec spec;
  net::ByteLease lease;
  protocols::Output output;
};

class ProtocolBody final : public Answer {
 public:
  ProtocolBody(std::shared_ptr<Collected> collected, net::HttpExchange& exchange)
      : collected_(std::move(collected)), exchange_(exchange) {}

  bool add(const AnswerPiece& piece) override {
    collected_->output.add(to_piece(piece));
    collected_->lease.resize(collected_->output.bytes());
    return false;
  }

  void finish(const api::Usage& usage, std::string_view nvext_json) override {
    send_body(collected_->write(usage, nvext_json));
  }

  BodyWriter take_writer(const api::Usage& usage, std::string nvext_json) override {
    if (collected_->output.bytes() < kQuickBodyBytesMax) {
      return {};
    }
    return [collected = collected_, usage, nvext = std::move(nvext_json)] {
      return collected->write(usage, nvext);
    };
  }

  void send_body(std::string body) override {
    exchange_.respond_with(200, kJson, std::move(body), answer_headers(collected_->spec));
  }

  size_t collected_bytes() const override { return collected_->output.bytes(); }

  void fail(const api::ApiError& error) override {
    const AnswerSpec& spec = collected_->spec;
    respond_error(exchange_, error, spec.error_style, spec.retry_after, answer_headers(spec));
  }

 private:
  const std::shared_ptr<Collected> collected_;  // shared with its writer
  net::HttpExchange& exchange_;
};

}  // namespace

std::unique_ptr<Answer> make_protocol_answer(AnswerSpec spec, net::HttpExchange& exchange,
                                             const tokenizer::Tokenizer& tokenizer,
                                             net::ByteBudget* budget) {
  if (spec.stream) {
    return std::make_unique<ProtocolStream>(std::move(spec), exchange, tokenizer);
  }
  return std::make_unique<ProtocolBody>(std::make_shared<Collected>(std::move(spec), budget),
                                        exchange);
}

}  // namespace stator::frontend
