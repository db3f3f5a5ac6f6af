// SPDX-License-Identifier: Apache-2.0
// What befalls the workers of a fleet: deaths, restarts, scaling.
#include <algorithm>
#include <cmath>

#include "stator/core/assert.h"
#include "stator/lab/simulator/cluster.h"

namespace stator::simulator {
namespace {

WorkerKey key_of(uint32_t worker, uint32_t rank) {
  return {WorkerId(uint64_t{worker} + 1), rank};
}

}  // namespace

void Cluster::schedule(Duration delay, uint32_t worker, Fate fate, bool this_life_only) {
  fates_.push({.time = clock_.now() + delay,
               .order = ++fate_count_,
               .worker = worker,
               .fate = fate,
               .life = this_life_only ? std::optional(workers_[worker].life) : std::nullopt});
}

void Cluster::add_worker(uint32_t pool, Duration startup) {
  workers_.push_back({.engine = nullptr, .pool = pool, .state = State::kGone});
  start_worker(static_cast<uint32_t>(workers_.size() - 1), startup);
}

void Cluster::start_worker(uint32_t index, Duration startup) {
  Worker& worker = workers_[index];
  Pool& pool = pools_[worker.pool];
  worker.engine = std::make_unique<engine::SimRanks>(pool.engine, timing_, config_.passes);
  worker.events.resize(pool.engine.dp_size);
  worker.state = State::kStarting;
  ++worker.life;
  ++pool.starting;
  if (startup > Duration::zero()) {
    schedule(startup, index, Fate::kIsReady, true);
  } else {
    make_ready(index);
  }
}

void Cluster::make_ready(uint32_t index) {
  Worker& worker = workers_[index];
  Pool& pool = pools_[worker.pool];
  worker.state = State::kReady;
  --pool.starting;
  ++pool.ready;
  for (uint32_t rank = 0; rank < pool.engine.dp_size; ++rank) {
    pool.routers->add_worker(key_of(index, rank),
                             {.total_kv_blocks = pool.engine.blocks,
                              .max_num_batched_tokens = pool.engine.max_num_batched_tokens,
                              .dp_size = pool.engine.dp_size});
  }
  if (config_.time_between_failures > Duration::zero()) {
    const double mean = static_cast<double>(config_.time_between_failures.count());
    const double life = std::min(-mean * std::log1p(-random_.uniform()), 1e17);
    schedule(Duration(1 + std::llround(life)), index, Fate::kDies, true);
  }
}

void Cluster::meet_fates() {
  while (!fates_.empty() && fates_.top().time <= clock_.now()) {
    const FleetEvent event = fates_.top();
    fates_.pop();
    if (event.worker >= workers_.size() ||
        (event.life && *event.life != workers_[event.worker].life)) {
      continue;
    }
    const State state = workers_[event.worker].state;
    if (event.fate == Fate::kDies && state != State::kGone) {
      kill_worker(event.worker);
    } else if (event.fate == Fate::kStarts && state == State::kGone) {
      start_worker(event.worker, config_.startup_time);
    } else if (event.fate == Fate::kIsReady && state == State::kStarting) {
      make_ready(event.worker);
    }
  }
  if (plan_at_ && *plan_at_ <= clock_.now()) {
    plan();
  }
}

void Cluster::note_load(uint32_t index, const engine::SimCore::Load& load) {
  Worker& worker = workers_[index];
  Pool& pool = pools_[worker.pool];
  const engine::SimCore::Load before = std::exchange(worker.load, load);
  pool.waiting += load.waiting - uint64_t{before.waiting};
  pool.running += load.running - uint64_t{before.running};
  pool.blocks_in_use += load.blocks_in_use - uint64_t{before.blocks_in_use};
}

/// It is no longer there, and nobody is told of its requests.
void Cluster::drop_worker(uint32_t index) {
  Worker& worker = workers_[index];
  Pool& pool = pools_[worker.pool];
  --(worker.state == State::kStarting ? pool.starting
     : worker.state == State::kReady  ? pool.ready
                                      : pool.draining);
  if (worker.state != State::kStarting) {
    for (uint32_t rank = 0; rank < pool.engine.dp_size; ++rank) {
      pool.routers->remove_worker(key_of(index, rank));
    }
  }
  worker.state = State::kGone;
  worker.engine.reset();
  wakes_.erase(index);
  note_load(index, {});
}

void Cluster::kill_worker(uint32_t index) {
  Worker& worker = workers_[index];
  ++deaths_;
  lost_.clear();
  for (uint32_t rank = 0; rank < worker.engine->size(); ++rank) {
    worker.engine->fail(rank, clock_.now(), outcome_, lost_);
    recorder_->on_passes(index, outcome_);
    tell_requests(index);  // its KV events are of no use to anybody
  }
  std::vector<uint32_t> in_transfer = transfers_.cancel(clock_.now(), index);
  for (const uint32_t live : in_transfer) {
    --workers_[lives_[live].record.worker].inbound;
  }
  for (uint32_t live = 0; live < lives_.size(); ++live) {
    if (lives_[live].handoff != 0 && lives_[live].record.prefill_worker == index) {
      lives_[live].handoff = 0;
      in_transfer.push_back(live);
    }
  }
  const bool drained = worker.state == State::kDraining;
  drop_worker(index);
  const std::vector<engine::SimCore::Lost> lost = lost_;  // migrating may end up here again
  for (const engine::SimCore::Lost& each : lost) {
    migrate(each.id, each.tokens, each.last_token);
  }
  for (const uint32_t live : in_transfer) {
    migrate(live, 1, lives_[live].last_token);
  }
  if (config_.restart_after > Duration::zero() && !drained) {
    schedule(config_.restart_after, index, Fate::kStarts, true);
  }
}

/// It goes on elsewhere with the tokens it has: `tokens` of its present attempt.
void Cluster::migrate(uint32_t index, uint32_t tokens, TimePoint last_token) {
  Live& live = lives_[index];
  live.lease.release();
  if (live.record.migrations == config_.migration_limit) {
    end(index, RequestStatus::kLost);
    return;
  }
  ++live.record.migrations;
  live.carried += tokens;
  live.last_token = tokens > 0 ? last_token : live.last_token;
  const uint32_t blocks = prompt_of(live) / config_.engine.block_size;
  while (live.blocks.sequences.size() < blocks) {
    const blocks::LocalHash local =
        engine::answer_block(live.answer_seed, live.blocks.sequences.size());
    live.blocks.sequences.push_back(live.blocks.sequences.empty()
                                        ? blocks::chain(local)
                                        : blocks::chain(live.blocks.sequences.back(), local));
    live.blocks.locals.push_back(local);
  }
  dispatch(index, 0);
}

PoolView Cluster::view(uint32_t index) const {
  const Pool& pool = pools_[index];
  const double blocks =
      double{1} * (pool.ready + pool.draining) * pool.engine.blocks * pool.engine.dp_size;
  return {.ready = pool.ready,
          .starting = pool.starting,
          .draining = pool.draining,
          .queued = pool.queued.size(),
          .waiting = pool.waiting,
          .running = pool.running,
          .kv_use = blocks > 0 ? static_cast<double>(pool.blocks_in_use) / blocks : 0};
}

void Cluster::plan() {
  const Recorder::Totals totals = recorder_->totals();
  FleetView fleet{.now = clock_.now(),
                  .window = clock_.now() - seen_.now,
                  .arrivals = totals.arrived - seen_.arrivals,
                  .completed = totals.completed - seen_.completed,
                  .input_tokens = totals.input_tokens - seen_.input_tokens,
                  .output_tokens = totals.output_tokens - seen_.output_tokens};
  fleet.decode = view(splits() ? 1 : 0);
  if (splits()) {
    fleet.prefill = view(0);
  }
  for (uint32_t i = 0; i < workers_.size(); ++i) {
    const Worker& worker = workers_[i];
    if (worker.state == State::kReady) {
      fleet.workers.push_back({.worker = i,
                               .computes_prompts = splits() && worker.pool == 0,
                               .waiting = worker.load.waiting,
                               .running = worker.load.running,
                               .kv_tokens = uint64_t{worker.load.blocks_in_use} *
                                            pools_[worker.pool].engine.block_size});
    }
  }
  seen_ = {.now = clock_.now(),
           .arrivals = totals.arrived,
           .completed = totals.completed,
           .input_tokens = totals.input_tokens,
           .output_tokens = totals.output_tokens};
  const ScalingDecision decision = planner_->decide(fleet);
  STATOR_ASSERT(!decision.next || *decision.next > clock_.now(), "a planner lets time pass");
  plan_at_ = decision.next;
  if (decision.workers) {
    scale(splits() ? 1 : 0, *decision.workers);
  }
  if (decision.prefill_workers && splits()) {
    scale(0, *decision.prefill_workers);
  }
}

void Cluster::scale(uint32_t index, uint32_t number) {
  number = std::max(number, 1U);
  while (pools_[index].ready + pools_[index].starting < number) {
    add_worker(index, config_.startup_time);
  }
  for (uint32_t i = static_cast<uint32_t>(workers_.size());
       i-- > 0 && pools_[index].ready + pools_[index].starting > number;) {
    Worker& worker = workers_[i];
    if (worker.pool != index) {
      continue;
    }
    if (worker.state == State::kStarting) {
      drop_worker(i);
    } else if (worker.state == State::kReady) {
      worker.state = State::kDraining;
      --pools_[index].ready;
      ++pools_[index].draining;
      for (uint32_t rank = 0; rank < pools_[index].engine.dp_size; ++rank) {
        pools_[index].routers->set_draining(key_of(i, rank), true);
      }
      touch(i);  // it may be idle already
    }
  }
}

}  // namespace stator::simulator
