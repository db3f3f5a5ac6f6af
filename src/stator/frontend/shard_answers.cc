// SPDX-License-Identifier: Apache-2.0
// The part of ShardService that deals with answers which are collected and sent as one body.
#include <utility>
#include <vector>

#include "stator/core/log.h"
#include "stator/frontend/shard_service.h"

namespace stator::frontend {

/// Ends the largest collected answers until the budget of all shards holds again. Larger ones of
/// other shards go at their next sweep.
void ShardService::shed_answers() {
  net::ByteBudget* const budget = environment_.answers;
  const size_t excess = budget == nullptr ? 0 : budget->excess();
  if (excess == 0) {
    return;
  }
  std::vector<Active*> owners;
  std::vector<net::Holding> holdings;
  for (const auto& [active, owned] : active_) {
    if (const size_t bytes = active->generation.collected_bytes(); bytes > 0) {
      owners.push_back(active);
      holdings.push_back({bytes, active->generation.received()});
    }
  }
  for (const size_t i : net::choose_to_shed(holdings, excess, budget->fair_share())) {
    budget->count_refusal();
    log::warn("frontend", "an answer became too large to be collected",
              {{"request_id", owners[i]->generation.plan().answer.request_id},
               {"bytes", holdings[i].bytes}});
    fail(
        *owners[i],
        Error(Code::kTooLarge,
              "the answer became too large to be collected beside those of others "
              "(frontend.answers_bytes_max): ask for it with \"stream\": true, or for less of it"));
  }
}

/// True: the compute pool writes its body, or had no room and it has failed.
bool ShardService::hand_to_writer(Active& active) {
  Answer::BodyWriter writer = active.generation.take_writer(shard_.now());
  if (!writer) {
    return false;
  }
  auto body = std::make_shared<Writing::Body>();
  const uint64_t id = ++last_writing_;
  Status taken =
      environment_.compute.submit({.bytes = active.generation.collected_bytes(),
                                   .run = [this, id, body, writer = std::move(writer)] {
                                     body->text = writer();
                                     body->done.store(true, std::memory_order_release);
                                     // A message that a full inbox refuses is made up for by
                                     // collect_written().
                                     static_cast<void>(shard_.post([this, id] { on_written(id); }));
                                   }});
  if (!taken) {
    fail(active, std::move(taken.error()));
    return true;
  }
  active.writing = id;
  writing_.emplace(id, Writing{&active, std::move(body)});
  return true;
}

void ShardService::on_written(uint64_t id) {
  const auto known = writing_.find(id);
  if (known == writing_.end()) {
    return;  // the client left, or the request failed
  }
  const Writing written = std::move(known->second);
  writing_.erase(known);
  written.active->generation.send_body(std::move(written.body->text));
  release(*written.active, "");
}

/// Once a second or so.
void ShardService::collect_written() {
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
