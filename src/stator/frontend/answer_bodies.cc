// SPDX-License-Identifier: Apache-2.0
#include "stator/frontend/answer_bodies.h"

#include <algorithm>
#include <utility>

#include "stator/core/log.h"

namespace stator::frontend {

std::vector<AnswerBodies::Shed> AnswerBodies::choose_to_shed(
    std::span<ActiveRequest* const> running) const {
  std::vector<ActiveRequest*> owners;
  std::vector<net::Holding> holdings;
  for (ActiveRequest* active : running) {
    if (const size_t bytes = active->generation.collected_bytes(); bytes > 0) {
      owners.push_back(active);
      holdings.push_back({bytes, active->generation.received()});
    }
  }
  std::vector<Shed> chosen;
  for (const size_t i : net::choose_to_shed(holdings, budget_->excess(), budget_->fair_share())) {
    budget_->count_refusal();
    log::warn("frontend", "an answer became too large to be collected",
              {{"request_id", owners[i]->answer().request_id}, {"bytes", holdings[i].bytes}});
    chosen.push_back({owners[i], Error(Code::kTooLarge,
                                       "the answer became too large to be collected "
                                       "beside those of others "
                                       "(frontend.answers_bytes_max): ask for it with "
                                       "\"stream\": true, or for less of it")});
  }
  return chosen;
}

Result<AnswerBodies::Taken> AnswerBodies::take(ActiveRequest& active) {
  Answer::BodyWriter writer = active.generation.take_writer(shard_.now());
  if (!writer) {
    return Taken::kNothing;
  }
  auto body = std::make_shared<Body>();
  const uint64_t id = ++last_id_;
  STATOR_CHECK(compute_.submit({.bytes = active.generation.collected_bytes(),
                                .run = [this, id, body, writer = std::move(writer)] {
                                  body->text = writer();
                                  body->done.store(true, std::memory_order_release);
                                  // A message that a full inbox refuses is made up for by sweep().
                                  static_cast<void>(shard_.post([this, id] { on_written(id); }));
                                }}));
  writing_.emplace(id, Writing{&active, std::move(body)});
  return Taken::kBody;
}

void AnswerBodies::forget(const ActiveRequest& active) {
  const auto found = std::ranges::find_if(
      writing_, [&](const auto& entry) { return entry.second.active == &active; });
  if (found != writing_.end()) {
    writing_.erase(found->first);
  }
}

void AnswerBodies::on_written(uint64_t id) {
  const auto known = writing_.find(id);
  if (known == writing_.end()) {
    return;  // the client left, or the request failed
  }
  const Writing written = std::move(known->second);
  writing_.erase(known);
  owner_.on_body(*written.active, std::move(written.body->text));
}

void AnswerBodies::sweep() {
  std::vector<uint64_t> done;
  for (const auto& [id, writing] : writing_) {
    if (writing.body->done.load(std::memory_order_acquire)) {
      done.push_back(id);
    }
  }
  for (const uint64_t id : done) {
    on_written(id);
  }
}

}  // namespace stator::frontend
