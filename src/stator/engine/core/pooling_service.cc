// SPDX-License-Identifier: Apache-2.0
#include "stator/engine/core/pooling_service.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <deque>
#include <iterator>
#include <optional>
#include <utility>
#include <vector>

#include "stator/core/flat_map.h"
#include "stator/core/mutex.h"
#include "stator/engine/core/engine_thread.h"
#include "stator/engine/core/session_book.h"
#include "stator/kv/event_log.h"

namespace stator::engine {
namespace {

constexpr double kPassSeconds[] = {1e-5, 1e-4, 3e-4, 1e-3, 3e-3, 0.01, 0.03, 0.1, 0.3, 1, 3, 10};

struct PoolMetrics {
  PoolMetrics(Metrics& metrics, const std::string& name) {
    const MetricLabels labels = {{"engine", name}};
    waiting = metrics.gauge("stator_engine_pool_waiting_requests",
                            "pooling requests that have not begun", labels);
    passes = metrics.histogram("stator_engine_pool_pass_seconds", "how long pooling passes took",
                               kPassSeconds, labels);
    tokens =
        metrics.counter("stator_engine_pool_tokens_total", "tokens of pooled sequences", labels);
    for (size_t task = 0; task < inference::kPoolTaskCount; ++task) {
      sequences[task] = metrics.counter(
          "stator_engine_pool_sequences_total", "sequences pooled",
          {{"engine", name},
           {"task", std::string(to_string(static_cast<inference::PoolTask>(task)))}});
    }
    refused = metrics.counter("stator_engine_pool_refused_total",
                              "pooling requests refused because the queue was full", labels);
  }
  Gauge waiting;
  Histogram passes;
  Counter tokens;
  Counter refused;
  std::array<Counter, inference::kPoolTaskCount> sequences;
};

EngineInfo make_info(const PoolingConfig& config, const PoolRunner& runner,
                     const Engine* generating) {
  if (generating != nullptr) {
    EngineInfo info = generating->info();
    info.pool = runner.ability();
    info.pool.generates = true;
    return info;
  }
  const uint32_t limit = runner.max_model_len();
  EngineInfo info{
      .kind = config.kind,
      .version = config.version,
      .block_size = config.block_size,
      .max_model_len = config.max_model_len == 0 ? limit : std::min(limit, config.max_model_len),
      .max_num_batched_tokens = config.max_num_batched_tokens,
      .vocab_size = runner.vocab_size(),
      .kv_events = false,
      .pool = runner.ability()};
  info.pool.generates = false;
  return info;
}

/// A request from its submission to its last sequence.
struct Work {
  SessionId session;
  inference::EngineRequest request;
  size_t next_sequence = 0;
  size_t next_token = 0;
  inference::PoolAnswer answer;
};

/// V1  queue_ ≤ waiting_max; a request leaves it when its first sequence is computed.
/// V2  active_, sequences_ and values_ belong to the engine's thread.
/// V3  Of a session without a generating engine no request without pool is ever live.
/// Locks are never nested, except that of thread_, which is outermost.
class PoolingService final : public Engine {
 public:
  PoolingService(const PoolingConfig& config, std::unique_ptr<PoolRunner> runner, Clock& clock,
                 Metrics& metrics, std::unique_ptr<Engine> generating)
      : config_(config),
        clock_(clock),
        metrics_(metrics, config.name),
        runner_(std::move(runner)),
        generating_(std::move(generating)),
        info_(make_info(config_, *runner_, generating_.get())),
        sequence_tokens_max_(std::min(runner_->max_model_len(), config.max_model_len == 0
                                                                    ? runner_->max_model_len()
                                                                    : config.max_model_len)),
        no_events_(0) {}
  ~PoolingService() override { stop(); }
  PoolingService(const PoolingService&) = delete;
  PoolingService& operator=(const PoolingService&) = delete;

  const EngineInfo& info() const override { return info_; }
  Status start() override;
  void stop() override;
  SessionId open_session(EngineSink& sink) override;
  void close_session(SessionId session) override;
  Status submit(SessionId session, inference::EngineRequest request) override;
  void cancel(SessionId session, inference::RequestKey key) override;
  LoadReport load() const override;
  kv::EventLog& events() override { return generating_ ? generating_->events() : no_events_; }
  ForwardPassLog* forward_passes() override {
    return generating_ ? generating_->forward_passes() : nullptr;
  }
  void reset_prefix_cache() override {
    if (generating_) {
      generating_->reset_prefix_cache();
    }
  }

 private:
  void run_loop();
  bool take_work();
  void drop_cancelled() STATOR_REQUIRES(mutex_);
  void pass();
  void wait_out(TimePoint until);
  void deliver();
  void fail_everything();
  void fail(const Work& work, Error error);

  const PoolingConfig config_;
  Clock& clock_;
  PoolMetrics metrics_;
  const std::unique_ptr<PoolRunner> runner_;
  const std::unique_ptr<Engine> generating_;  // null: nothing is generated
  const EngineInfo info_;
  const uint32_t sequence_tokens_max_;
  kv::EventLog no_events_;

  std::deque<Work> active_;
  std::vector<PoolSequence> sequences_;                // of the pass, and
  std::vector<std::vector<float>> values_;             // what came of them
  FlatMap<SessionId, inference::StepOutput> outputs_;  // to deliver

  mutable Mutex mutex_;
  std::condition_variable_any work_;
  std::deque<Work> queue_ STATOR_GUARDED_BY(mutex_);
  LiveRequests live_ STATOR_GUARDED_BY(mutex_);
  uint32_t running_ STATOR_GUARDED_BY(mutex_) = 0;
  uint64_t cancels_ STATOR_GUARDED_BY(mutex_) = 0;
  uint64_t cancels_seen_ STATOR_GUARDED_BY(mutex_) = 0;
  bool stopping_ STATOR_GUARDED_BY(mutex_) = false;
  FlatMap<SessionId, SessionId> inner_ STATOR_GUARDED_BY(mutex_);  // sessions of generating_

  Sinks sinks_;

  EngineThread thread_;
};

Status PoolingService::start() {
  STATOR_CHECK(thread_.start("pool", [this] { run_loop(); }));
  return generating_ ? generating_->start() : Status();
}

void PoolingService::stop() {
  thread_.end(
      [this] {
        const MutexLock lock(mutex_);
        stopping_ = true;
        work_.notify_all();
      },
      [this] { fail_everything(); });
  if (generating_) {
    generating_->stop();
  }
}

SessionId PoolingService::open_session(EngineSink& sink) {
  std::optional<SessionId> inner;
  if (generating_) {
    inner = generating_->open_session(sink);
  }
  SessionId session;
  {
    const MutexLock lock(mutex_);
    session = live_.open();
    if (inner) {
      inner_[session] = *inner;
    }
  }
  sinks_.add(session, sink);
  return session;
}

void PoolingService::close_session(SessionId session) {
  sinks_.remove(session);
  std::optional<SessionId> inner;
  {
    const MutexLock lock(mutex_);
    live_.close(session);
    ++cancels_;
    if (const auto found = inner_.find(session); found != inner_.end()) {
      inner = found->second;
      inner_.erase(found);
    }
  }
  if (inner) {
    generating_->close_session(*inner);
  }
}

Status PoolingService::submit(SessionId session, inference::EngineRequest request) {
  if (!request.pool) {
    if (!generating_) {
      return Error(Code::kUnsupported, "this model does not generate");
    }
    SessionId inner;
    {
      const MutexLock lock(mutex_);
      const auto found = inner_.find(session);
      if (found == inner_.end()) {
        return Error(Code::kNotFound, "this session is closed");
      }
      inner = found->second;
    }
    return generating_->submit(inner, std::move(request));
  }
  STATOR_CHECK(check_pool_request(request, {.ability = info_.pool,
                                            .vocab_size = info_.vocab_size,
                                            .max_model_len = sequence_tokens_max_}));
  if (!request.lora_name.empty()) {
    return Error(Code::kInvalidArgument,
                 fmt::format("adapter '{}': this engine has no LoRA support", request.lora_name));
  }
  const MutexLock lock(mutex_);
  if (stopping_) {
    return Error(Code::kDraining, "the engine is shutting down");
  }
  if (queue_.size() >= config_.waiting_max) {
    metrics_.refused.add();
    return Error(Code::kOverloaded,
                 fmt::format("the engine's queue is full with {} waiting requests (waiting_max)",
                             config_.waiting_max));
  }
  STATOR_CHECK(live_.add(session, request.key));
  auto place = queue_.end();  // behind all of at least its priority
  while (place != queue_.begin() && std::prev(place)->request.priority < request.priority) {
    --place;
  }
  queue_.insert(place, Work{.session = session, .request = std::move(request), .answer = {}});
  work_.notify_one();
  return {};
}

void PoolingService::cancel(SessionId session, inference::RequestKey key) {
  std::optional<SessionId> inner;
  {
    const MutexLock lock(mutex_);
    if (live_.remove(session, key)) {
      ++cancels_;
      return;
    }
    if (const auto found = inner_.find(session); found != inner_.end()) {
      inner = found->second;
    }
  }
  if (inner) {
    generating_->cancel(*inner, key);
  }
}

LoadReport PoolingService::load() const {
  LoadReport load = generating_ ? generating_->load() : LoadReport();
  const MutexLock lock(mutex_);
  load.running += running_;
  load.waiting += static_cast<uint32_t>(queue_.size());
  return load;
}

// ---- the engine's thread

void PoolingService::run_loop() {
  while (take_work()) {
    pass();
    deliver();
  }
  fail_everything();
}

void PoolingService::drop_cancelled() {
  if (std::exchange(cancels_seen_, cancels_) == cancels_) {
    return;
  }
  const auto is_gone = [this](const Work& work) STATOR_REQUIRES(mutex_) {
    return !live_.has(work.session, work.request.key);
  };
  std::erase_if(active_, is_gone);
  std::erase_if(queue_, is_gone);
}

/// Fills active_ with enough for one pass. False when it is time to stop.
bool PoolingService::take_work() {
  MutexLock lock(mutex_);
  while (true) {
    drop_cancelled();
    size_t tokens = 0;
    for (const Work& work : active_) {
      tokens += work.request.tokens.size() - work.next_token;
    }
    while (!queue_.empty() && tokens < config_.max_num_batched_tokens) {
      tokens += queue_.front().request.tokens.size();
      active_.push_back(std::move(queue_.front()));
      queue_.pop_front();
    }
    running_ = static_cast<uint32_t>(active_.size());
    metrics_.waiting.set(static_cast<double>(queue_.size()));
    if (stopping_) {
      return false;
    }
    if (!active_.empty()) {
      return true;
    }
    work_.wait(lock);
  }
}

/// Computes as many sequences as fit, at least one, and collects what is complete.
void PoolingService::pass() {
  const TimePoint begin = clock_.now();
  sequences_.clear();
  perf::PassShape shape;
  size_t tokens = 0;
  std::vector<std::pair<Work*, size_t>> parts;  // how many sequences of whom
  for (Work& work : active_) {
    const inference::PoolRequest& pool = *work.request.pool;
    size_t taken = 0;
    while (work.next_sequence < pool.lengths.size()) {
      const uint32_t length = pool.lengths[work.next_sequence];
      if (tokens > 0 && tokens + length > config_.max_num_batched_tokens) {
        break;
      }
      const std::span<const TokenId> all = work.request.tokens;
      sequences_.push_back({.tokens = all.subspan(work.next_token, length),
                            .first_length = pool.first_lengths.empty()
                                                ? length
                                                : pool.first_lengths[work.next_sequence],
                            .task = pool.task,
                            .activate = pool.activate});
      shape.add_prompt(0, length);
      tokens += length;
      work.next_token += length;
      ++work.next_sequence;
      ++taken;
    }
    parts.emplace_back(&work, taken);
  }
  values_.assign(sequences_.size(), {});
  runner_->run(sequences_, values_);
  size_t at = 0;
  for (const auto& [work, taken] : parts) {
    inference::PoolAnswer& answer = work->answer;
    const inference::PoolRequest& pool = *work->request.pool;
    answer.width = runner_->width(pool.task);
    for (size_t i = 0; i < taken; ++i, ++at) {
      std::vector<float>& made = values_[at];
      if (pool.task == inference::PoolTask::kTokenEmbed) {
        answer.rows.push_back(static_cast<uint32_t>(made.size() / answer.width));
      }
      if (answer.values.empty() && work->next_sequence == 1) {
        answer.values = std::move(made);
      } else {
        answer.values.insert(answer.values.end(), made.begin(), made.end());
      }
    }
    metrics_.sequences[static_cast<size_t>(pool.task)].add(taken);
  }
  metrics_.tokens.add(tokens);
  wait_out(begin + runner_->pass_time(shape));
  metrics_.passes.observe(std::chrono::duration<double>(clock_.now() - begin).count());
}

/// A simulated pass lasts as long as its model says.
void PoolingService::wait_out(TimePoint until) {
  MutexLock lock(mutex_);
  while (!stopping_) {
    const Duration left = until - clock_.now();
    if (left <= Duration::zero()) {
      return;
    }
    work_.wait_for(lock, left);
  }
}

void PoolingService::deliver() {
  std::erase_if(active_, [this](Work& work) {
    if (work.next_sequence < work.request.pool->lengths.size()) {
      return false;
    }
    const bool finite =
        std::ranges::all_of(work.answer.values, [](float value) { return std::isfinite(value); });
    if (!finite) {
      fail(work, Error(Code::kInternal, "the model computed a number that is not finite"));
      return true;
    }
    work.answer.prompt_tokens = static_cast<uint32_t>(work.request.tokens.size());
    outputs_[work.session].pooled.push_back({work.request.key, std::move(work.answer)});
    return true;
  });
  {
    const MutexLock lock(mutex_);
    running_ = static_cast<uint32_t>(active_.size());
    for (auto& [session, output] : outputs_) {
      std::erase_if(output.pooled,
                    [&, id = session](const inference::Pooled& pooled) STATOR_REQUIRES(mutex_) {
                      return !live_.has(id, pooled.key);  // cancelled meanwhile
                    });
      live_.remove_ended(session, output);
    }
  }
  for (auto& [session, output] : outputs_) {
    if (!output.pooled.empty() || !output.failures.empty()) {
      sinks_.deliver(session, std::move(output));
    }
  }
  outputs_.clear();
}

void PoolingService::fail(const Work& work, Error error) {
  outputs_[work.session].failures.push_back({work.request.key, std::move(error)});
}

void PoolingService::fail_everything() {
  {
    const MutexLock lock(mutex_);
    ++cancels_;
    drop_cancelled();
    std::ranges::move(queue_, std::back_inserter(active_));
    queue_.clear();
  }
  for (const Work& work : active_) {
    fail(work, Error(Code::kDraining, "the engine is shutting down"));
  }
  active_.clear();
  deliver();
}

}  // namespace

std::unique_ptr<Engine> make_pooling_engine(const PoolingConfig& config,
                                            std::unique_ptr<PoolRunner> runner, Clock& clock,
                                            Metrics& metrics, std::unique_ptr<Engine> generating) {
  return std::make_unique<PoolingService>(config, std::move(runner), clock, metrics,
                                          std::move(generating));
}

}  // namespace stator::engine
