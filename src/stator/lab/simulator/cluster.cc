// SPDX-License-Identifier: Apache-2.0
#include "stator/lab/simulator/cluster.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "stator/core/assert.h"
#include "stator/router/policy.h"

namespace stator::simulator {
namespace {

constexpr uint32_t kWorkersMax = 1'000'000;
constexpr uint64_t kProgressEvery = 4096;
constexpr std::string_view kModel = "simulated";
constexpr int kYearsMax = 100;  // virtual time is 64 bits of nanoseconds, 292 years

WorkerKey key_of(uint32_t worker, uint32_t rank) {
  return {WorkerId(uint64_t{worker} + 1), rank};
}

Status validate(const ClusterConfig& config) {
  STATOR_CHECK(engine::validate(config.engine));
  const auto refuse = [](std::string message) {
    return Error(Code::kInvalidArgument, std::move(message));
  };
  if (config.workers == 0 || uint64_t{config.workers} + config.prefill_workers > kWorkersMax) {
    return refuse(
        fmt::format("a fleet has 1 to {} workers, of which at least one decodes", kWorkersMax));
  }
  if ((uint64_t{config.workers} + config.prefill_workers) * config.engine.dp_size > kWorkersMax) {
    return refuse(
        fmt::format("a fleet has at most {} data-parallel ranks: take fewer workers, or "
                    "a dp_size below {}",
                    kWorkersMax, config.engine.dp_size));
  }
  if (!(config.arrival_speedup > 0) || !std::isfinite(config.arrival_speedup)) {
    return refuse("the arrival speedup must be a number above 0");
  }
  if (!(config.handoff_bytes_per_token >= 0) || !(config.handoff_bytes_per_second > 0)) {
    return refuse("hand-over needs bytes per token of at least 0 and a bandwidth above 0");
  }
  if (config.startup_time < Duration::zero() || config.restart_after < Duration::zero() ||
      config.time_between_failures < Duration::zero()) {
    return refuse("times of starts and failures must not be negative");
  }
  const uint32_t workers = config.workers + config.prefill_workers;
  for (const ScalingStep& death : config.fail_at) {
    if (death.number >= workers) {
      return refuse(fmt::format("there is no worker {} that could fail: they are 0 to {}",
                                death.number, workers - 1));
    }
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<Cluster>> Cluster::create(const ClusterConfig& config,
                                                 const perf::TimingModel& timing) {
  STATOR_CHECK(validate(config));
  std::unique_ptr<Cluster> cluster(new Cluster(config, timing));
  if (config.prefill_workers > 0) {
    STATOR_CHECK(cluster->add_pool(config.prefill_workers, engine::SimRole::kPrefill));
    STATOR_CHECK(cluster->add_pool(config.workers, engine::SimRole::kDecode));
  } else {
    STATOR_CHECK(cluster->add_pool(config.workers, engine::SimRole::kAggregated));
  }
  for (const ScalingStep& death : config.fail_at) {
    cluster->fates_.push({.time = death.time,
                          .order = ++cluster->fate_count_,
                          .worker = death.number,
                          .fate = Fate::kDies,
                          .life = {}});
  }
  return cluster;
}

Cluster::Cluster(const ClusterConfig& config, const perf::TimingModel& timing)
    : config_(config),
      timing_(timing),
      random_(mix64(config.seed ^ 0xFA11)),
      transfers_(config.handoff_bytes_per_second) {}

Status Cluster::add_pool(uint32_t workers, engine::SimRole role) {
  Pool pool;
  const auto tiers =
      config_.engine.host_blocks > 0 ? RouterGroup::Tiers::kAll : RouterGroup::Tiers::kDevice;
  STATOR_TRY(pool.routers, RouterGroup::create(config_.router_replicas, config_.router,
                                               config_.seed + pools_.size(), clock_, tiers));
  pool.follows_events = router::find_policy(config_.router.mode)->make()->needs().overlap;
  pool.engine = config_.engine;
  pool.engine.role = role;
  pool.engine.publish_events = pool.follows_events;
  pools_.push_back(std::move(pool));
  for (uint32_t i = 0; i < workers; ++i) {
    add_worker(static_cast<uint32_t>(pools_.size() - 1), Duration());
  }
  return {};
}

int64_t Cluster::booked() const {
  int64_t booked = 0;
  for (const Pool& pool : pools_) {
    booked += pool.routers->booked();
  }
  return booked;
}

void Cluster::describe(Report& report) const {
  const auto seconds = [](const Pool& pool) {
    return static_cast<double>(pool.worker_time) * 1e-9;
  };
  report.router = config_.router.mode;
  report.engine = engine::name_of(config_.engine.rules);
  report.workers = config_.workers;
  report.prefill_workers = config_.prefill_workers;
  report.gpus_per_worker = config_.gpus_per_worker;
  report.dp_size = config_.engine.dp_size;
  for (WorkerReport& worker : report.per_worker) {
    worker.busy_ms /= config_.engine.dp_size;  // a sum over ranks so far
  }
  report.seed = config_.seed;
  report.worker_failures = deaths_;
  report.prefill_worker_seconds = splits() ? seconds(pools_.front()) : 0;
  report.decode_worker_seconds = seconds(pools_.back());
}

Status Cluster::run(TraceSource& trace, Recorder& recorder) {
  trace_ = &trace;
  recorder_ = &recorder;
  Arrivals arrivals(trace,
                    {.speedup = config_.arrival_speedup, .concurrency = config_.concurrency});
  arrivals_ = &arrivals;
  STATOR_CHECK(arrivals.start());
  plan_at_ = planner_ == nullptr ? std::nullopt : planner_->first();
  while (true) {
    const auto next = next_time();
    if (!next) {
      if (in_flight_ == 0) {
        break;
      }
      give_up_queues();
      continue;
    }
    if (*next > TimePoint(std::chrono::years(kYearsMax))) {
      return Error(Code::kInvalidArgument,
                   fmt::format("the simulation goes on for more than {} years: look at the trace's "
                               "times, the speed-ups, the timing and the bandwidths",
                               kYearsMax));
    }
    pass_time(*next);
    while (!wakes_.empty() && wakes_.top().time == *next) {
      finish_passes(wakes_.pop().worker);
    }
    finish_handoffs();
    meet_fates();
    hear_of_each_other();
    while (arrivals.is_due(clock_.now(), in_flight_)) {
      STATOR_CHECK(arrivals.take(clock_.now(), request_));
      arrive();
    }
    empty_queues();
    start_passes();
  }
  for (Pool& pool : pools_) {
    pool.routers->sync(clock_.now());
  }
  return {};
}

std::optional<TimePoint> Cluster::next_time() {
  std::optional<TimePoint> next;
  const auto consider = [&](TimePoint time) {
    time = std::max(time, clock_.now());
    next = next ? std::min(*next, time) : time;
  };
  if (!wakes_.empty()) {
    consider(wakes_.top().time);
  }
  if (!handoffs_.empty()) {
    consider(handoffs_.top().time);
  }
  if (const auto transfer = transfers_.next()) {
    consider(*transfer);
  }
  for (Pool& pool : pools_) {
    while (!pool.deadlines.empty() && !pool.queued.contains(pool.deadlines.front().second)) {
      pool.deadlines.pop_front();
    }
    if (!pool.deadlines.empty()) {
      consider(pool.deadlines.front().first);
    }
  }
  const auto arrival = arrivals_->next_time(clock_.now(), in_flight_);
  if (arrival) {
    consider(*arrival);
  }
  // What befalls a fleet without requests concerns nobody.
  if (in_flight_ > 0 || arrival) {
    if (!fates_.empty()) {
      consider(fates_.top().time);
    }
    if (plan_at_) {
      consider(*plan_at_);
    }
  }
  for (const Pool& pool : pools_) {
    if (const auto sync = pool.routers->next_sync(); sync && in_flight_ > 0) {
      consider(*sync);
    }
  }
  return next;
}

void Cluster::hear_of_each_other() {
  for (Pool& pool : pools_) {
    if (const auto sync = pool.routers->next_sync(); sync && *sync <= clock_.now()) {
      pool.routers->sync(clock_.now());
    }
  }
}

void Cluster::pass_time(TimePoint until) {
  Timeline::Gauges gauges;
  const auto time = static_cast<unsigned __int128>((until - clock_.now()).count());
  for (Pool& pool : pools_) {
    const uint64_t there = uint64_t{pool.ready} + pool.draining;
    gauges.queued += pool.queued.size();
    gauges.waiting += pool.waiting;
    gauges.running += pool.running;
    gauges.blocks_in_use += pool.blocks_in_use;
    gauges.blocks += there * pool.engine.blocks * pool.engine.dp_size;
    gauges.workers += there + pool.starting;
    pool.worker_time += time * (there + pool.starting);
  }
  recorder_->on_time(until, gauges);
  clock_.advance(until - clock_.now());
}

void Cluster::arrive() {
  const TimePoint now = clock_.now();
  uint32_t index = static_cast<uint32_t>(lives_.size());
  if (free_lives_.empty()) {
    lives_.emplace_back();
  } else {
    index = free_lives_.back();
    free_lives_.pop_back();
  }
  Live& live = lives_[index];
  TraceRequest& request = request_;
  live.record = {.line = request.line,
                 .request_id = std::move(request.request_id),
                 .session = std::move(request.session),
                 .turn = request.turn,
                 .input_tokens = request.input_tokens,
                 .output_tokens = request.output_tokens,
                 .arrival = now,
                 .admitted = now,
                 .first_token = now,
                 .second_token = now,
                 .last_token = now};
  live.answer_seed = mix64(config_.seed ^ mix64(++arrived_));
  live.carried = 0;
  live.last_token = now;
  live.priority = request.priority;
  live.strict_priority = request.strict_priority;
  live.handoff = 0;
  const PromptShape shape{.trace_block_tokens = trace_->block_tokens(),
                          .block_size = config_.engine.block_size,
                          .input_tokens = request.input_tokens};
  if (request.hash_ids.empty()) {
    make_unique_ids(live.answer_seed, shape, request.hash_ids);
  }
  make_prompt_blocks(request.hash_ids, shape, live.blocks);
  ++in_flight_;
  recorder_->on_arrival(now);
  if (progress_ && arrived_ % kProgressEvery == 0) {
    progress_(arrived_);
  }
  dispatch(index, 0);
}

void Cluster::dispatch(uint32_t index, uint32_t at) {
  const Live& live = lives_[index];
  Pool& pool = pools_[at];
  const std::string line = std::to_string(live.record.line);
  auto submitted = pool.routers->submit(
      {.request_id = live.record.request_id.empty() ? line : live.record.request_id,
       .model = kModel,
       .prompt_tokens = prompt_of(live),
       .block_size = config_.engine.block_size,
       .sequences = live.blocks.sequences,
       .override = {.track_prefill_tokens = at == 0},
       .tier = router::tier_of(live.strict_priority, live.priority),
       .session = live.record.session},
      {.arrival = clock_.now(),
       .strict_priority = live.strict_priority,
       .priority_jump = live.priority},
      clock_.wall_now());
  if (!submitted) {
    refuse(index, submitted.error());
  } else if (auto* decision = std::get_if<router::Decision>(&*submitted)) {
    place(index, at, std::move(*decision));
  } else {
    const auto id = std::get<RouterGroup::Id>(*submitted);
    pool.queued.emplace(id, index);
    if (const Duration wait = config_.router.queue.wait_max; wait > Duration::zero()) {
      pool.deadlines.emplace_back(clock_.now() + wait + Duration(1), id);
    }
  }
}

void Cluster::place(uint32_t index, uint32_t pool, router::Decision decision) {
  Live& live = lives_[index];
  const auto worker = static_cast<uint32_t>(decision.worker.worker.value() - 1);
  live.lease = std::move(decision.lease);
  live.told_tokens = 0;
  live.record.worker = worker;
  live.rank = decision.worker.dp_rank;
  if (pool == 0) {
    live.record.prefill_worker = worker;
    live.record.overlap_blocks =
        live.carried == 0 ? decision.overlap_blocks : live.record.overlap_blocks;
  } else if (config_.shared_links) {
    ++workers_[worker].inbound;
    transfers_.start(clock_.now(), {.id = index,
                                    .source = live.record.prefill_worker,
                                    .target = worker,
                                    .bytes = prompt_of(live) * config_.handoff_bytes_per_token});
    return;
  }
  submit(index, worker);
}

void Cluster::refuse(uint32_t index, const Error& error) {
  end(index, error.code() == Code::kOverloaded ? RequestStatus::kShed : RequestStatus::kUnroutable);
}

/// Whoever may go now, goes; whoever has waited too long is sent away.
void Cluster::empty_queues() {
  for (uint32_t at = 0; at < pools_.size(); ++at) {
    const auto settle = [&](RouterGroup::Outcome outcome) {
      const auto known = pools_[at].queued.find(outcome.id);
      const uint32_t live = known->second;
      pools_[at].queued.erase(known);
      if (outcome.decision) {
        place(live, at, std::move(*outcome.decision));
      } else {
        refuse(live, outcome.decision.error());
      }
    };
    if (pools_[at].queued.empty()) {
      continue;
    }
    for (RouterGroup::Outcome& late : pools_[at].routers->expire(clock_.now())) {
      settle(std::move(late));
    }
    while (auto next = pools_[at].routers->next(clock_.now(), clock_.wall_now())) {
      settle(std::move(*next));
    }
  }
}

/// Nothing will ever happen again, and still some wait: for workers that will never have room.
void Cluster::give_up_queues() {
  for (Pool& pool : pools_) {
    const auto queued = std::exchange(pool.queued, {});
    std::vector<std::pair<RouterGroup::Id, uint32_t>> waiting(queued.begin(), queued.end());
    std::ranges::sort(waiting);
    for (const auto& [id, live] : waiting) {
      pool.routers->remove(id);
      end(live, RequestStatus::kUnroutable);
    }
  }
}

void Cluster::submit(uint32_t index, uint32_t worker) {
  Live& live = lives_[index];
  const bool prefills = splits() && workers_[worker].pool == 0;
  engine::SimRequest request{
      .id = index,
      .prompt_tokens = prompt_of(live),
      .output_tokens = prefills ? 1 : live.record.output_tokens - live.carried,
      .answer_seed = live.answer_seed};
  if (prefills || keeps_blocks()) {
    request.sequences = live.blocks.sequences;
    request.locals = live.blocks.locals;
  } else {
    request.sequences = std::move(live.blocks.sequences);
    request.locals = std::move(live.blocks.locals);
  }
  if (splits() && !prefills) {
    request.prefilled = true;
    request.first_token = live.last_token;
  }
  workers_[worker].engine->submit(live.rank, std::move(request));
  touch(worker);
}

void Cluster::touch(uint32_t worker) {
  if (!std::exchange(workers_[worker].dirty, true)) {
    dirty_.push_back(worker);
  }
}

void Cluster::start_passes() {
  std::ranges::sort(dirty_);
  for (const uint32_t index : dirty_) {
    Worker& worker = workers_[index];
    worker.dirty = false;
    if (worker.engine == nullptr) {
      continue;
    }
    if (worker.engine->busy()) {
      wakes_.set(index, worker.engine->interrupt(clock_.now()));
    } else if (worker.engine->has_work()) {
      wakes_.set(index, worker.engine->start(clock_.now()));
    } else if (worker.state == State::kDraining && worker.inbound == 0) {
      drop_worker(index);
      continue;
    }
    note_load(index, worker.engine->load());
  }
  dirty_.clear();
}

void Cluster::finish_passes(uint32_t index) {
  engine::SimRanks& engine = *workers_[index].engine;
  for (uint32_t rank = 0; rank < engine.size(); ++rank) {
    engine.finish(rank, outcome_);
    recorder_->on_passes(index, outcome_);
    tell_router(index, rank);
    tell_requests(index);
  }
  touch(index);
}

void Cluster::tell_router(uint32_t index, uint32_t rank) {
  Worker& worker = workers_[index];
  uint64_t& told = worker.events[rank];
  RouterGroup& routers = *pools_[worker.pool].routers;
  for (kv::KvEventData& data : outcome_.host_events) {
    routers.apply(key_of(index, rank), {.event_id = ++told,
                                        .dp_rank = rank,
                                        .tier = kv::StorageTier::kHostPinned,
                                        .data = std::move(data)});
  }
  for (kv::KvEventData& data : outcome_.events) {
    routers.apply(key_of(index, rank),
                  {.event_id = ++told, .dp_rank = rank, .data = std::move(data)});
  }
}

void Cluster::tell_requests(uint32_t index) {
  const bool decodes = splits() && workers_[index].pool == 1;
  for (const engine::SimOutcome::Admission& admission : outcome_.admitted) {
    RequestRecord& record = lives_[admission.id].record;
    if (decodes) {
      continue;  // its prompt was counted where it was computed
    }
    if (record.admissions++ == 0) {
      record.admitted = outcome_.start;
      record.cached_tokens = admission.cached_tokens;
      record.host_tokens = admission.host_tokens;
    }
    recorder_->on_admission(index, record, admission);
  }
  for (const uint32_t id : outcome_.first) {
    on_first_token(id);
  }
  for (const auto& [id, time] : outcome_.second) {
    if (lives_[id].carried == 0) {
      lives_[id].record.second_token = time;
    }
  }
  for (const auto& [id, tokens] : outcome_.grown) {
    lives_[id].lease.add_output_tokens(tokens - lives_[id].told_tokens);
    lives_[id].told_tokens = tokens;
  }
  for (const uint32_t id : outcome_.finished) {
    on_last_token(id, index);
  }
  for (const uint32_t id : outcome_.rejected) {
    end(id, RequestStatus::kRejected);
  }
}

/// The first one of its present attempt.
void Cluster::on_first_token(uint32_t index) {
  Live& live = lives_[index];
  if (live.carried == 0) {
    live.record.first_token = outcome_.end;
  } else {
    recorder_->on_gap(outcome_.end - live.last_token);
    if (live.carried == 1) {
      live.record.second_token = outcome_.end;
    }
  }
  live.last_token = outcome_.end;
  live.lease.mark_prefill_completed();
  live.lease.add_output_tokens(1 - live.told_tokens);
  live.told_tokens = 1;
}

void Cluster::on_last_token(uint32_t index, uint32_t worker) {
  Live& live = lives_[index];
  const bool decoded = !splits() || workers_[worker].pool == 1;
  if (decoded || live.record.output_tokens - live.carried == 1) {
    live.record.last_token = outcome_.end;
    end(index, RequestStatus::kCompleted);
    return;
  }
  recorder_->on_prefilled(worker);
  live.lease.release();
  if (config_.shared_links) {
    dispatch(index, 1);
    return;
  }
  const double seconds =
      prompt_of(live) * config_.handoff_bytes_per_token / config_.handoff_bytes_per_second;
  live.handoff = ++handoff_count_;
  handoffs_.push({clock_.now() + transfer_time(seconds), live.handoff, index});
}

void Cluster::finish_handoffs() {
  while (!handoffs_.empty() && handoffs_.top().time <= clock_.now()) {
    const Handoff handoff = handoffs_.top();
    handoffs_.pop();
    if (lives_[handoff.live].handoff == handoff.order) {  // its worker still lived
      lives_[handoff.live].handoff = 0;
      dispatch(handoff.live, 1);
    }
  }
  while (const auto live = transfers_.pop(clock_.now())) {
    const uint32_t worker = lives_[*live].record.worker;
    --workers_[worker].inbound;
    submit(*live, worker);
  }
}

void Cluster::end(uint32_t index, RequestStatus status) {
  Live& live = lives_[index];
  live.record.status = status;
  live.lease.release();
  recorder_->on_end(live.record);
  arrivals_->on_end(live.record.request_id, live.record.session, clock_.now());
  free_lives_.push_back(index);
  --in_flight_;
}

}  // namespace stator::simulator
