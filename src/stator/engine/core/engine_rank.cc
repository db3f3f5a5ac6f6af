// SPDX-License-Identifier: Apache-2.0
#include "stator/engine/core/engine_rank.h"

#include <algorithm>

#include "stator/core/log.h"

namespace stator::engine {
namespace {

void warn_of_forged_blocks(Rank& rank, const std::string& engine) {
  const uint64_t blocks = rank.scheduler.pool().collisions_total();
  if (blocks < rank.warn_at) {
    return;
  }
  rank.warn_at = 2 * blocks;
  log::warn("engine",
            "prompts have KV blocks with the hash of other blocks: somebody forges them. Answers "
            "do not depend on it, routing may; find who sends them",
            {{"engine", engine}, {"blocks", blocks}});
}

}  // namespace

Rank& Ranks::choose(const inference::EngineRequest& request) {
  if (request.dp_rank) {
    return *ranks_[*request.dp_rank];
  }
  return **std::ranges::min_element(ranks_, {}, [](const auto& rank) {
    return rank->scheduler.running_count() + rank->scheduler.waiting_count() +
           (rank->lanes == nullptr ? 0 : rank->lanes->parked());
  });
}

void Ranks::cancel(SessionId session, inference::RequestKey key) {
  for (const auto& rank : ranks_) {
    if (rank->lanes == nullptr || !rank->lanes->cancel(session, key)) {
      rank->scheduler.cancel(session, key);
    }
  }
}

void Ranks::cancel_session(SessionId session) {
  for (const auto& rank : ranks_) {
    rank->scheduler.cancel_session(session);
    if (rank->lanes != nullptr) {
      rank->lanes->cancel_session(session);
    }
  }
}

void Ranks::reset_prefix_cache() {
  for (const auto& rank : ranks_) {
    rank->scheduler.reset_prefix_cache();
    if (rank->lanes != nullptr) {
      rank->lanes->forget();
    }
  }
}

void Ranks::discard_kv() {
  for (const auto& rank : ranks_) {
    rank->runner->discard_kv();
  }
}

void Ranks::offload() {
  for (const auto& rank : ranks_) {
    if (rank->lanes != nullptr) {
      rank->lanes->offload();
    }
  }
}

bool Ranks::idle() const {
  return std::ranges::all_of(ranks_, [](const auto& rank) { return rank->scheduler.idle(); });
}

TimePoint Ranks::next_deadline() const {
  TimePoint next = TimePoint::max();
  for (const auto& rank : ranks_) {
    next = rank->lanes == nullptr ? next : std::min(next, rank->lanes->next_deadline());
  }
  return next;
}

LoadReport Ranks::load() const {
  LoadReport sum;
  for (const auto& rank : ranks_) {
    const LoadReport load = rank->scheduler.load();
    sum.kv_used_blocks += load.kv_used_blocks;
    sum.kv_cached_blocks += load.kv_cached_blocks;
    sum.kv_total_blocks += load.kv_total_blocks;
    sum.running += load.running;
    sum.waiting += load.waiting + (rank->lanes == nullptr ? 0 : rank->lanes->parked());
    sum.prefix_hit_tokens += load.prefix_hit_tokens;
    sum.prefix_query_tokens += load.prefix_query_tokens;
    sum.preemptions += load.preemptions;
  }
  return sum;
}

std::vector<kv::KvEvent> Ranks::take_events() {
  std::vector<kv::KvEvent> events;
  for (const auto& rank : ranks_) {
    const uint32_t dp_rank = rank->pass.dp_rank;
    for (kv::KvEventData& data : rank->scheduler.take_host_events()) {
      events.push_back(
          {.dp_rank = dp_rank, .tier = kv::StorageTier::kHostPinned, .data = std::move(data)});
    }
    for (kv::KvEventData& data : rank->scheduler.take_events()) {
      events.push_back({.dp_rank = dp_rank, .data = std::move(data)});
    }
    if (rank->lanes != nullptr) {
      for (kv::KvEvent& event : rank->lanes->take_tier_events()) {
        event.dp_rank = dp_rank;
        events.push_back(std::move(event));
      }
    }
  }
  return events;
}

void Ranks::report(const std::string& engine) {
  for (const auto& rank : ranks_) {
    rank->metrics.update(rank->scheduler.load(), rank->scheduler);
    warn_of_forged_blocks(*rank, engine);
  }
}

void Ranks::report_idle(ForwardPassLog& passes) {
  for (const auto& rank : ranks_) {
    if (rank->pass.scheduled != PassWork() && rank->scheduler.idle()) {
      rank->pass = {.dp_rank = rank->pass.dp_rank, .counter = rank->pass.counter + 1};
      passes.append(rank->pass);
    }
  }
}

}  // namespace stator::engine
