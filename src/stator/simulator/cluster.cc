// SPDX-License-Identifier: Apache-2.0
#include "stator/simulator/cluster.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "stator/core/assert.h"
#include "stator/router/policy.h"

namespace stator::simulator {
namespace {

constexpr uint32_t kWorkersMax = 1'000'000;
constexpr uint64_t kProgressEvery = 4096;
constexpr std::string_view kModel = "simulated";

WorkerKey key_of(uint32_t worker) {
  return {WorkerId(uint64_t{worker} + 1), 0};
}

}  // namespace

Result<std::unique_ptr<Cluster>> Cluster::create(const ClusterConfig& config,
                                                 const perf::TimingModel& timing) {
  STATOR_CHECK(engine::validate(config.engine));
  if (config.workers == 0 || uint64_t{config.workers} + config.prefill_workers > kWorkersMax) {
    return Error(
        Code::kInvalidArgument,
        fmt::format("a fleet has 1 to {} workers, of which at least one decodes", kWorkersMax));
  }
  if (!(config.arrival_speedup > 0) || !std::isfinite(config.arrival_speedup)) {
    return Error(Code::kInvalidArgument, "the arrival speedup must be a number above 0");
  }
  if (!(config.handoff_bytes_per_token >= 0) || !(config.handoff_bytes_per_second > 0)) {
    return Error(Code::kInvalidArgument,
                 "hand-over needs bytes per token of at least 0 and a bandwidth above 0");
  }
  std::unique_ptr<Cluster> cluster(new Cluster(config, timing));
  if (config.prefill_workers > 0) {
    STATOR_CHECK(cluster->add_pool(config.prefill_workers, engine::SimRole::kPrefill));
    STATOR_CHECK(cluster->add_pool(config.workers, engine::SimRole::kDecode));
  } else {
    STATOR_CHECK(cluster->add_pool(config.workers, engine::SimRole::kAggregated));
  }
  return cluster;
}

Cluster::Cluster(const ClusterConfig& config, const perf::TimingModel& timing)
    : config_(config), timing_(timing) {}

Status Cluster::add_pool(uint32_t workers, engine::SimRole role) {
  Pool pool;
  pool.book = router::LoadBook::make(clock_);
  pool.first = static_cast<uint32_t>(workers_.size());
  STATOR_TRY(pool.router, router::Router::create(config_.router, pool.book,
                                                 Random(config_.seed + pools_.size())));
  pool.follows_events = router::find_policy(config_.router.mode)->make()->needs().overlap;
  engine::SimEngineConfig engine = config_.engine;
  engine.role = role;
  engine.publish_events = pool.follows_events;
  for (uint32_t i = 0; i < workers; ++i) {
    pool.router->add_worker(key_of(static_cast<uint32_t>(workers_.size())),
                            {.total_kv_blocks = engine.blocks,
                             .max_num_batched_tokens = engine.max_num_batched_tokens});
    workers_.push_back({.core = engine::make_sim_core(engine, timing_, config_.passes),
                        .pool = static_cast<uint32_t>(pools_.size())});
  }
  pools_.push_back(std::move(pool));
  return {};
}

int64_t Cluster::booked() const {
  int64_t booked = 0;
  for (const Pool& pool : pools_) {
    booked += pool.router->active_requests();
  }
  return booked;
}

void Cluster::describe(Report& report) const {
  const double seconds = std::chrono::duration<double>(clock_.now().time_since_epoch()).count();
  report.router = config_.router.mode;
  report.engine = config_.engine.rules == engine::SimRules::kTrtllm ? "trtllm" : "vllm";
  report.workers = config_.workers;
  report.prefill_workers = config_.prefill_workers;
  report.gpus_per_worker = config_.gpus_per_worker;
  report.seed = config_.seed;
  report.prefill_worker_seconds = config_.prefill_workers * seconds;
  report.decode_worker_seconds = config_.workers * seconds;
}

Status Cluster::run(TraceSource& trace, Recorder& recorder) {
  trace_ = &trace;
  recorder_ = &recorder;
  Arrivals arrivals(trace,
                    {.speedup = config_.arrival_speedup, .concurrency = config_.concurrency});
  arrivals_ = &arrivals;
  STATOR_CHECK(arrivals.start());
  while (const auto next = next_time()) {
    clock_.advance(*next - clock_.now());
    while (!wakes_.empty() && wakes_.top().time == *next) {
      finish_passes(wakes_.pop().worker);
    }
    while (!handoffs_.empty() && handoffs_.top().time == *next) {
      const uint32_t live = handoffs_.top().live;
      handoffs_.pop();
      dispatch(live, 1);
    }
    while (arrivals.is_due(clock_.now(), in_flight_)) {
      STATOR_CHECK(arrivals.take(clock_.now(), request_));
      arrive();
    }
    start_passes();
  }
  STATOR_ASSERT(in_flight_ == 0, "every request ends");
  return {};
}

std::optional<TimePoint> Cluster::next_time() const {
  std::optional<TimePoint> next;
  const auto consider = [&](TimePoint time) { next = next ? std::min(*next, time) : time; };
  if (!wakes_.empty()) {
    consider(wakes_.top().time);
  }
  if (!handoffs_.empty()) {
    consider(handoffs_.top().time);
  }
  if (const auto arrival = arrivals_->next_time(clock_.now(), in_flight_)) {
    consider(*arrival);
  }
  return next;
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
  live.told_tokens = 0;
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

void Cluster::dispatch(uint32_t index, uint32_t pool) {
  Live& live = lives_[index];
  const std::string line = std::to_string(live.record.line);
  auto decision = pools_[pool].router->route(
      {.request_id = live.record.request_id.empty() ? line : live.record.request_id,
       .model = kModel,
       .prompt_tokens = live.record.input_tokens,
       .block_size = config_.engine.block_size,
       .sequences = live.blocks.sequences,
       .override = {.track_prefill_tokens = pool == 0},
       .session = live.record.session},
      clock_.wall_now());
  if (!decision) {
    end(index, RequestStatus::kUnroutable);
    return;
  }
  const auto worker = static_cast<uint32_t>(decision->worker.worker.value() - 1);
  live.lease = std::move(decision->lease);
  live.told_tokens = 0;
  (pool == 0 ? live.record.prefill_worker : live.record.worker) = worker;
  if (pool == 0) {
    live.record.worker = worker;
    live.record.overlap_blocks = decision->overlap_blocks;
  }
  submit(index, worker);
}

void Cluster::submit(uint32_t index, uint32_t worker) {
  Live& live = lives_[index];
  const bool prefills = splits() && workers_[worker].pool == 0;
  engine::SimRequest request{.id = index,
                             .prompt_tokens = live.record.input_tokens,
                             .output_tokens = prefills ? 1 : live.record.output_tokens,
                             .answer_seed = live.answer_seed};
  if (prefills) {
    request.sequences = live.blocks.sequences;
    request.locals = live.blocks.locals;
  } else {
    request.sequences = std::move(live.blocks.sequences);
    request.locals = std::move(live.blocks.locals);
    request.prefilled = splits();
    request.first_token = live.record.first_token;
  }
  workers_[worker].core->submit(std::move(request));
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
    if (worker.core->busy()) {
      wakes_.set(index, worker.core->interrupt(clock_.now()));
    } else if (worker.core->has_work()) {
      wakes_.set(index, worker.core->start(clock_.now()));
    }
    const uint32_t waiting = worker.core->load().waiting;
    waiting_ = waiting_ + waiting - std::exchange(worker.waiting, waiting);
  }
  dirty_.clear();
  recorder_->on_waiting(waiting_);
}

void Cluster::finish_passes(uint32_t index) {
  workers_[index].core->finish(outcome_);
  recorder_->on_passes(index, outcome_);
  tell_router(index);
  tell_requests(index);
  touch(index);
}

void Cluster::tell_router(uint32_t index) {
  Worker& worker = workers_[index];
  Pool& pool = pools_[worker.pool];
  for (kv::KvEventData& data : outcome_.events) {
    pool.router->apply(key_of(index), {.event_id = ++worker.events, .data = std::move(data)});
  }
}

void Cluster::tell_requests(uint32_t index) {
  const auto tell = [](Live& live, uint32_t tokens) {
    live.lease.add_output_tokens(tokens - live.told_tokens);
    live.told_tokens = tokens;
  };
  for (const auto& [id, cached] : outcome_.admitted) {
    RequestRecord& record = lives_[id].record;
    if (splits() && workers_[index].pool == 1) {
      continue;  // its prompt was counted where it was computed
    }
    if (record.admissions++ == 0) {
      record.admitted = outcome_.start;
      record.cached_tokens = cached;
    }
    recorder_->on_admission(index, record, cached);
  }
  for (const uint32_t id : outcome_.first) {
    lives_[id].record.first_token = outcome_.end;
    lives_[id].lease.mark_prefill_completed();
    tell(lives_[id], 1);
  }
  for (const auto& [id, time] : outcome_.second) {
    lives_[id].record.second_token = time;
  }
  for (const auto& [id, tokens] : outcome_.grown) {
    tell(lives_[id], tokens);
  }
  for (const uint32_t id : outcome_.finished) {
    on_last_token(id, index);
  }
  for (const uint32_t id : outcome_.rejected) {
    end(id, RequestStatus::kRejected);
  }
}

void Cluster::on_last_token(uint32_t index, uint32_t worker) {
  Live& live = lives_[index];
  if (!splits() || workers_[worker].pool == 1 || live.record.output_tokens == 1) {
    live.record.last_token = outcome_.end;
    end(index, RequestStatus::kCompleted);
    return;
  }
  recorder_->on_prefilled(worker);
  live.lease.release();
  const double seconds =
      live.record.input_tokens * config_.handoff_bytes_per_token / config_.handoff_bytes_per_second;
  handoffs_.push({clock_.now() + Duration(std::llround(seconds * 1e9)), ++handoff_count_, index});
}

void Cluster::end(uint32_t index, RequestStatus status) {
  Live& live = lives_[index];
  live.record.status = status;
  live.lease.release();
  recorder_->on_end(live.record);
  arrivals_->on_end(live.record.session, clock_.now());
  free_lives_.push_back(index);
  --in_flight_;
}

}  // namespace stator::simulator
