// SPDX-License-Identifier: Apache-2.0
#include "stator/frontend/answer_capture.h"

#include <string>
#include <utility>
#include <vector>

#include "stator/frontend/request_record.h"
#include "stator/json/writer.h"
#include "stator/net/byte_budget.h"
#include "stator/telemetry/telemetry.h"

namespace stator::frontend {
namespace {

// Of one answer's text; the rest is not written down.
constexpr size_t kBytesMax = size_t{256} << 10;

struct Call {
  std::string id;
  std::string name;
  std::string arguments;
};

struct Choice {
  uint32_t index = 0;
  std::string content;
  std::string reasoning;
  std::vector<Call> calls;
  api::ChoiceFinish finish = api::ChoiceFinish::kNone;
};

/// What an answer has said so far: at most kBytesMax, and what the log's budget has room for.
class Transcript {
 public:
  explicit Transcript(net::ByteBudget& budget) : lease_(budget) {}

  void add(const AnswerPiece& piece) {
    Choice& choice = at(piece.choice);
    append(choice.content, piece.text);
    append(choice.reasoning, piece.reasoning);
    if (piece.call != nullptr) {
      add_call(choice, *piece.call);
    }
    if (piece.finish != api::ChoiceFinish::kNone) {
      choice.finish = piece.finish;
    }
  }
  void keep(std::span<const uint32_t> kept) {
    std::vector<Choice> choices;
    for (const uint32_t index : kept) {
      choices.push_back(std::move(at(index)));
    }
    choices_ = std::move(choices);
  }
  void set_usage(const api::Usage& usage) { usage_ = usage; }

  void write(json::Writer& json) const {
    json.begin_object().key("choices").begin_array();
    for (size_t i = 0; i < choices_.size(); ++i) {
      write(json, choices_[i], i);
    }
    json.end_array().key("usage").begin_object();
    json.key("prompt_tokens").value(usage_.prompt_tokens);
    json.key("completion_tokens").value(usage_.completion_tokens);
    json.key("cached_tokens").value(usage_.cached_tokens).end_object();
    if (truncated_) {
      json.key("truncated").value(true);
    }
    json.end_object();
  }

 private:
  static void write(json::Writer& json, const Choice& choice, size_t index) {
    json.begin_object().key("index").value(index).key("content").value(choice.content);
    if (!choice.reasoning.empty()) {
      json.key("reasoning").value(choice.reasoning);
    }
    if (!choice.calls.empty()) {
      json.key("tool_calls").begin_array();
      for (const Call& call : choice.calls) {
        json.begin_object().key("id").value(call.id).key("name").value(call.name);
        json.key("arguments").raw(telemetry::redact_body(call.arguments)).end_object();
      }
      json.end_array();
    }
    json.key("finish_reason").value(api::finish_reason_name(choice.finish)).end_object();
  }
  Choice& at(uint32_t index) {
    if (index >= choices_.size()) {
      choices_.resize(index + 1);
    }
    return choices_[index];
  }
  void append(std::string& to, std::string_view text) {
    if (text.empty() || truncated_) {
      return;
    }
    if (bytes_ + text.size() > kBytesMax || !lease_.try_resize(bytes_ + text.size())) {
      truncated_ = true;
      return;
    }
    bytes_ += text.size();
    to += text;
  }
  void add_call(Choice& choice, const api::ToolCallDelta& call) {
    if (call.index >= choice.calls.size()) {
      choice.calls.resize(call.index + 1);  // pieces come in the order of their index
    }
    Call& known = choice.calls[call.index];
    append(known.id, call.id);
    append(known.name, call.name);
    append(known.arguments, call.arguments);
  }

  std::vector<Choice> choices_;
  api::Usage usage_;
  size_t bytes_ = 0;
  bool truncated_ = false;
  net::ByteLease lease_;
};

class CapturedAnswer final : public Answer {
 public:
  CapturedAnswer(std::unique_ptr<Answer> answer, std::string request_id, std::string model,
                 std::shared_ptr<net::RequestNotes> notes)
      : answer_(std::move(answer)),
        request_id_(std::move(request_id)),
        model_(std::move(model)),
        notes_(std::move(notes)),
        said_(*record().telemetry->answers_budget()) {}
  CapturedAnswer(const CapturedAnswer&) = delete;
  CapturedAnswer& operator=(const CapturedAnswer&) = delete;
  ~CapturedAnswer() override { write_down("the client left"); }

  bool add(const AnswerPiece& piece) override {
    said_.add(piece);
    return answer_->add(piece);
  }
  void annotate(std::string_view name, std::string_view json) override {
    answer_->annotate(name, json);
  }
  void add_prompt_logprobs(uint32_t prompt, std::string json) override {
    answer_->add_prompt_logprobs(prompt, std::move(json));
  }
  void add_prompt_tokens(uint32_t choice, uint32_t prompt,
                         std::span<const TokenId> tokens) override {
    answer_->add_prompt_tokens(choice, prompt, tokens);
  }
  void keep(std::span<const uint32_t> choices) override {
    said_.keep(choices);
    answer_->keep(choices);
  }
  void finish(const api::Usage& usage, std::string_view nvext_json) override {
    said_.set_usage(usage);
    answer_->finish(usage, nvext_json);
    write_down({});
  }
  BodyWriter take_writer(const api::Usage& usage, std::string nvext_json) override {
    said_.set_usage(usage);
    return answer_->take_writer(usage, std::move(nvext_json));
  }
  void send_body(std::string body) override {
    answer_->send_body(std::move(body));
    write_down({});
  }
  size_t collected_bytes() const override { return answer_->collected_bytes(); }
  void fail(const api::ApiError& error) override {
    answer_->fail(error);
    write_down(error.message());
  }
  void keep_alive() override { answer_->keep_alive(); }

 private:
  const RequestRecord& record() const { return static_cast<const RequestRecord&>(*notes_); }

  /// Once.
  void write_down(std::string_view error) {
    if (notes_ == nullptr) {
      return;
    }
    const RequestRecord& about = record();
    std::string members;
    json::Writer json(members);
    json.begin_object().key("request_id").value(request_id_).key("model").value(model_);
    json.key("client").value(about.facts.client).key("tenant").value(about.caller.tenant);
    json.key("key_id").value(about.caller.key_id).key("status").value(about.facts.status);
    if (!error.empty()) {
      json.key("error").value(error);
    }
    json.key("body");
    said_.write(json);
    json.end_object();
    about.telemetry->audit("answer", std::string_view(members).substr(1, members.size() - 2));
    notes_.reset();
  }

  const std::unique_ptr<Answer> answer_;
  const std::string request_id_;
  const std::string model_;
  std::shared_ptr<net::RequestNotes> notes_;  // with the request; null once it is written down
  Transcript said_;
};

}  // namespace

std::optional<AnswerCapture> AnswerCapture::of(net::HttpExchange& exchange,
                                               const AnswerSpec& spec) {
  const std::shared_ptr<net::RequestNotes>& notes = exchange.request().notes();
  const auto* record = static_cast<const RequestRecord*>(notes.get());
  if (record == nullptr || record->telemetry == nullptr ||
      record->telemetry->answers_budget() == nullptr) {
    return std::nullopt;
  }
  AnswerCapture capture;
  capture.notes_ = notes;
  capture.request_id_ = spec.request_id;
  capture.model_ = spec.model;
  return capture;
}

std::unique_ptr<Answer> AnswerCapture::around(std::unique_ptr<Answer> answer) && {
  return std::make_unique<CapturedAnswer>(std::move(answer), std::move(request_id_),
                                          std::move(model_), std::move(notes_));
}

}  // namespace stator::frontend
