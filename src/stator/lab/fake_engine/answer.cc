// SPDX-License-Identifier: Apache-2.0
#include "stator/lab/fake_engine/answer.h"

#include <csignal>
#include <utility>
#include <vector>

namespace stator::fake_engine {

std::string random_hex(Random& random, size_t bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string out;
  for (size_t i = 0; i < bytes * 2; ++i) {
    out.push_back(kDigits[random.below(16)]);
  }
  return out;
}

Answer::Answer(ServerContext& context, net::HttpExchange& exchange, Fault fault)
    : context_(context), exchange_(&exchange), fault_(std::move(fault)) {
  exchange.set_observer(this);
}

Answer::~Answer() {
  if (exchange_ != nullptr) {
    exchange_->set_observer(nullptr);
  }
  if (job_) {
    context_.host.cancel(*job_);
  }
}

void Answer::on_client_gone(net::ClientGone /*reason*/) {
  exchange_ = nullptr;
  retire();
}

void Answer::abort_job() {
  if (job_) {
    context_.host.cancel(*std::exchange(job_, std::nullopt));
  }
  on_failure(Error(Code::kCancelled, "aborted"));
}

void Answer::submit(GenerateSpec spec) {
  if (gone() || (fault_.after_tokens == 0 && strike())) {
    return;
  }
  open_ = static_cast<uint32_t>(spec.prompts.size()) * spec.n;
  auto job = context_.host.submit(std::move(spec), *this);
  if (!job) {
    refuse(job.error(), started_);
    retire();
    return;
  }
  job_ = *job;
}

void Answer::on_delta(ChoiceDelta delta) {
  if (fault_.kind == FaultKind::kSlow) {
    slow_.push_back(std::move(delta));
    if (!slow_timer_.pending()) {
      slow_timer_ = context_.shard.after(fault_.delay, [this] { deliver_next_slow(); });
    }
    return;
  }
  deliver(std::move(delta));
}

void Answer::deliver_next_slow() {
  if (retired_ || slow_.empty()) {
    return;
  }
  ChoiceDelta delta = std::move(slow_.front());
  slow_.pop_front();
  if (!slow_.empty()) {
    slow_timer_ = context_.shard.after(fault_.delay, [this] { deliver_next_slow(); });
  }
  deliver(std::move(delta));
}

void Answer::deliver(ChoiceDelta delta) {
  if (struck_ || gone()) {
    return;
  }
  tokens_ += static_cast<uint32_t>(delta.tokens.size());
  const bool ends = delta.finish != inference::FinishReason::kNone;
  write(std::move(delta));
  if (fault_.after_tokens > 0 && tokens_ >= fault_.after_tokens && strike()) {
    return;
  }
  if (ends && --open_ == 0) {
    job_.reset();
    finish();
    retire();
  }
}

void Answer::on_failure(const Error& error) {
  job_.reset();
  if (!retired_ && !struck_) {
    refuse(error, started_);
    retire();
  }
}

bool Answer::strike() {
  if (struck_) {
    return true;
  }
  switch (fault_.kind) {
    case FaultKind::kHang:
      struck_ = true;
      return true;
    case FaultKind::kDie:
      std::raise(SIGKILL);
      return true;
    case FaultKind::kRestart:
      struck_ = true;
      context_.restart(fault_.delay);
      return true;
    case FaultKind::kClose:
      struck_ = true;
      close_connection();
      return true;
    default:
      return false;
  }
}

void Answer::close_connection() {
  if (gone()) {
    return;
  }
  if (!started_) {
    exchange_->start_stream(200, "application/json");
  }
  net::HttpExchange* exchange = std::exchange(exchange_, nullptr);
  exchange->set_observer(nullptr);
  exchange->abort();
  retire();
}

void Answer::respond(int status, std::string_view body, std::string_view content_type) {
  if (gone()) {
    return;
  }
  net::HttpExchange* exchange = std::exchange(exchange_, nullptr);
  exchange->set_observer(nullptr);
  exchange->respond(status, content_type, body);
}

void Answer::send(std::string_view bytes) {
  if (gone()) {
    return;
  }
  if (!std::exchange(started_, true)) {
    exchange_->start_stream(200, "text/event-stream; charset=utf-8");
  }
  exchange_->write(bytes);
}

void Answer::end_stream() {
  if (gone()) {
    return;
  }
  net::HttpExchange* exchange = std::exchange(exchange_, nullptr);
  exchange->set_observer(nullptr);
  exchange->finish();
}

void Answer::retire() {
  if (!std::exchange(retired_, true)) {
    if (job_) {
      context_.host.cancel(*std::exchange(job_, std::nullopt));
    }
    context_.answers.retire(id_);
  }
}

void AnswerBook::begin(std::unique_ptr<Answer> answer) {
  Answer& placed = *answer;
  placed.id_ = next_id_++;
  answers_.emplace(placed.id_, std::move(answer));
  if (answers_.size() > answers_max_) {
    refused_.add();
    placed.on_failure(Error(Code::kOverloaded, "too many requests are open (requests_max)"));
    return;
  }
  placed.begin();
}

void AnswerBook::retire(uint64_t id) {
  // Later: the answer is still on the stack.
  const bool posted = shard_.post([this, id] { answers_.erase(id); });
  static_cast<void>(posted);  // false only while the shard stops; clear() takes it then
}

size_t AnswerBook::abort(std::string_view id) {
  std::vector<Answer*> named;
  for (const auto& [key, answer] : answers_) {
    if (!answer->retired_ && (id.empty() || answer->is_named(id))) {
      named.push_back(answer.get());
    }
  }
  for (Answer* answer : named) {
    answer->abort_job();
  }
  return named.size();
}

}  // namespace stator::fake_engine
