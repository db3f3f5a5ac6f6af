// SPDX-License-Identifier: Apache-2.0
#include "stator/engine/core/engine_service.h"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "stator/core/assert.h"
#include "stator/core/log.h"
#include "stator/core/mutex.h"
#include "stator/engine/api/sleeper.h"
#include "stator/engine/core/engine_rank.h"
#include "stator/engine/core/engine_thread.h"
#include "stator/engine/core/forward_pass_log.h"
#include "stator/engine/core/phase.h"
#include "stator/engine/core/request_preparation.h"
#include "stator/engine/core/scheduler.h"
#include "stator/engine/core/session_book.h"
#include "stator/engine/core/session_commands.h"
#include "stator/engine/core/tier_lanes.h"
#include "stator/engine/handoff/port.h"
#include "stator/kv/event_log.h"

namespace stator::engine {
namespace {

/// How far behind its model an engine may be and catch up: about a missed slice of the operating
/// system's scheduler.
constexpr Duration kCatchUpMax = std::chrono::milliseconds(20);
/// Room for so many commands stays; a request is some 500 bytes.
constexpr size_t kCommandsKept = 64;

using Command = SessionCommand<PreparedRequest>;

inference::HandoffAbility ability_of(const EngineNeighbours& neighbours) {
  return neighbours.port == nullptr ? inference::HandoffAbility() : neighbours.port->ability();
}

/// V1  Submits in the inbox plus waiting requests ≤ waiting_max, so the scheduler never refuses
///     one; cancels and closes in the inbox ≤ submits ever live, so the inbox is bounded.
/// V2  The ranks belong to the engine's thread (to stop()'s caller if the engine was never
///     started).
/// Locks are never nested, except that of thread_, which is outermost.
class EngineService final : public Engine, public Sleeper {
 public:
  EngineService(const EngineConfig& config, std::vector<std::unique_ptr<ModelRunner>> runners,
                Clock& clock, Metrics& metrics, VocabularySource vocabulary,
                EngineNeighbours neighbours)
      : neighbours_(std::move(neighbours)),
        giver_(neighbours_.port == nullptr ? nullptr : neighbours_.port->giver()),
        config_(config),
        clock_(clock),
        info_{.kind = config.kind,
              .version = config.version,
              .block_size = config.block_size,
              .total_blocks = config.total_blocks,
              .max_model_len = config.max_model_len,
              .max_num_seqs = config.max_num_seqs,
              .max_num_batched_tokens = config.max_num_batched_tokens,
              .vocab_size = runners.front()->vocab_size(),
              .dp_size = static_cast<uint32_t>(runners.size()),
              .structured_output = config.structured_output,
              .structured_replay = config.structured_output,
              .prompt_logprobs = config.prompt_logprobs,
              .token_filters = config.token_filters,
              .handoff = ability_of(neighbours_)},
        events_(config.dp_rank),
        preparation_(config.adapters,
                     vocabulary ? std::make_unique<GrammarCompiler>(std::move(vocabulary), clock,
                                                                    metrics, config.name)
                                : nullptr,
                     [this](PreparedRequest request) { put_prepared(std::move(request)); }) {
    const bool alone = runners.size() == 1;
    for (std::unique_ptr<ModelRunner>& runner : runners) {
      const size_t index = ranks_.size();
      ranks_.add(
          std::make_unique<Rank>(config, std::move(runner), metrics,
                                 alone ? config.name : fmt::format("{}.dp{}", config.name, index)));
      ranks_[index].pass.dp_rank = config.dp_rank + static_cast<uint32_t>(index);
      make_lanes(ranks_[index], metrics);
    }
    load_ = ranks_.load();
  }
  ~EngineService() override { stop(); }
  EngineService(const EngineService&) = delete;
  EngineService& operator=(const EngineService&) = delete;

  const EngineInfo& info() const override { return info_; }
  kv::EventLog& events() override { return events_; }
  ForwardPassLog* forward_passes() override { return &passes_; }
  Status start() override;
  void stop() override;
  SessionId open_session(EngineSink& sink) override;
  void close_session(SessionId session) override;
  Status submit(SessionId session, inference::EngineRequest request) override;
  void cancel(SessionId session, inference::RequestKey key) override;
  LoadReport load() const override;
  void reset_prefix_cache() override;
  void set_asleep(bool asleep) override;
  bool asleep() const override;

 private:
  void make_lanes(Rank& rank, Metrics& metrics);

  // The engine's thread.
  void run_loop();
  bool take_commands();
  void apply(Command& command);
  void apply_submit(PreparedRequest& submit);
  void put_prepared(PreparedRequest submit);
  void step();
  void publish();
  void offer_prompts();
  void commit(TimePoint begin);
  void tell_events();
  void wait_out(TimePoint begin, Duration pass);
  void deliver(std::vector<SessionOutput>& outputs);
  void fail_everything();

  void add(Rank& rank, TierLanes::Parked ready);
  void refuse(SessionId session, inference::RequestKey key, Error error);
  void collect_loads();
  void tell_tier_news();

  void wake() STATOR_REQUIRES(mutex_);

  const EngineNeighbours neighbours_;  // outlive the ranks' lanes
  handoff::Giver* const giver_;        // null: this engine computes prompts for nobody
  const EngineConfig config_;
  Clock& clock_;
  const EngineInfo info_;
  Ranks ranks_;
  std::vector<const StepPlan*> plans_;  // of the ranks, in a step
  std::vector<Command> commands_;
  bool reset_now_ = false;
  bool discard_now_ = false;
  TimePoint pass_end_{};  // of the last modelled pass, unless there was nothing to do since
  kv::EventLog events_;
  ForwardPassLog passes_;

  mutable Mutex mutex_;
  std::condition_variable_any work_;     // the idle engine waits here
  std::condition_variable_any stopped_;  // an engine inside a modelled step waits here
  std::vector<Command> inbox_ STATOR_GUARDED_BY(mutex_);
  size_t inbox_submits_ STATOR_GUARDED_BY(mutex_) = 0;
  size_t preparing_ STATOR_GUARDED_BY(mutex_) = 0;  // submits that want a grammar or an adapter
  LiveRequests live_ STATOR_GUARDED_BY(mutex_);
  LoadReport load_ STATOR_GUARDED_BY(mutex_);
  bool reset_requested_ STATOR_GUARDED_BY(mutex_) = false;
  bool sleeping_ STATOR_GUARDED_BY(mutex_) = false;
  bool tier_news_ STATOR_GUARDED_BY(mutex_) = false;
  bool asleep_ STATOR_GUARDED_BY(mutex_) = false;        // an operator's wish
  bool kv_discarded_ STATOR_GUARDED_BY(mutex_) = false;  // since it sleeps
  bool stopping_ STATOR_GUARDED_BY(mutex_) = false;

  Sinks sinks_;

  EngineThread thread_;
  RequestPreparation preparation_;  // last, as its threads use the rest
};

/// Between the rank and where else its blocks may come from, if there is such a place.
void EngineService::make_lanes(Rank& rank, Metrics& metrics) {
  TierLanes::Sources sources{.lower = neighbours_.lower.get()};
  TierLanes::Options options{.load_timeout = config_.tier_load_timeout,
                             .engine_name = config_.name,
                             .adapters = config_.adapters.get(),
                             .long_prompts = config_.long_prompts,
                             .block_tokens = config_.block_size};
  if (neighbours_.port != nullptr) {
    sources.taker = neighbours_.port->taker();
    options.space = neighbours_.port->options().space;
    options.handoff_timeout = neighbours_.port->options().patience;
    const size_t block_bytes = rank.runner->device_block(BlockId(0)).size();
    if (sources.taker != nullptr && block_bytes > 0) {
      const Status usable = neighbours_.port->register_memory(
          {rank.runner->host_block(0).data(), config_.host_blocks * block_bytes});
      STATOR_ASSERT(usable, "host memory is no range of this process");
    }
  }
  if (sources.lower != nullptr) {
    options.space = sources.lower->options().space;
  }
  if (sources.lower != nullptr || sources.taker != nullptr) {
    rank.lanes = std::make_unique<TierLanes>(
        sources, rank.scheduler, *rank.runner, options, [this] { tell_tier_news(); }, metrics);
  }
}

Status EngineService::start() {
  return thread_.start("engine", [this] { run_loop(); });
}

void EngineService::stop() {
  thread_.end(
      [this] {
        preparation_.stop();
        const MutexLock lock(mutex_);
        stopping_ = true;
        work_.notify_all();
        stopped_.notify_all();
      },
      [this] {
        take_commands();
        fail_everything();
      });
}

SessionId EngineService::open_session(EngineSink& sink) {
  SessionId session;
  {
    const MutexLock lock(mutex_);
    session = live_.open();
  }
  sinks_.add(session, sink);
  return session;
}

void EngineService::close_session(SessionId session) {
  sinks_.remove(session);
  const MutexLock lock(mutex_);
  if (live_.close(session)) {
    inbox_.emplace_back(Close{session});
    wake();
  }
}

Status EngineService::submit(SessionId session, inference::EngineRequest request) {
  STATOR_CHECK(validate(request, config_, info_.vocab_size));
  STATOR_CHECK(check_phase(request.phase, request.handoff.kind, info_.handoff, config_.kind));
  if (request.dp_rank && *request.dp_rank >= info_.dp_size) {
    return Error(Code::kInvalidArgument, fmt::format("dp_rank {}: this engine has {} (dp_size)",
                                                     *request.dp_rank, info_.dp_size));
  }
  const bool prepares = preparation_.wants(request);
  {
    const MutexLock lock(mutex_);
    if (stopping_) {
      return Error(Code::kDraining, "the engine is shutting down");
    }
    if (asleep_) {
      return Error(Code::kUnavailable, "the engine sleeps: POST /engine/wake_up wakes it");
    }
    if (inbox_submits_ + preparing_ + load_.waiting >= config_.waiting_max) {
      return Error(Code::kOverloaded,
                   fmt::format("the engine's queue is full with {} waiting requests (waiting_max)",
                               config_.waiting_max));
    }
    STATOR_CHECK(live_.add(session, request.key));
    if (!prepares) {
      inbox_.emplace_back(PreparedRequest{session, std::move(request)});
      ++inbox_submits_;
      wake();
      return {};
    }
    ++preparing_;
  }
  preparation_.begin({session, std::move(request)});
  return {};
}

/// What was prepared elsewhere reaches the inbox, unless it was cancelled meanwhile.
void EngineService::put_prepared(PreparedRequest submit) {
  const MutexLock lock(mutex_);
  --preparing_;
  if (live_.contains(submit.session, submit.request.key)) {
    inbox_.emplace_back(std::move(submit));
    ++inbox_submits_;
    wake();
  }
}

void EngineService::cancel(SessionId session, inference::RequestKey key) {
  const MutexLock lock(mutex_);
  if (live_.remove(session, key)) {
    inbox_.emplace_back(Cancel{session, key});
    wake();
  }
}

LoadReport EngineService::load() const {
  const MutexLock lock(mutex_);
  LoadReport out = load_;
  out.waiting += static_cast<uint32_t>(inbox_submits_ + preparing_);
  return out;
}

void EngineService::reset_prefix_cache() {
  const MutexLock lock(mutex_);
  reset_requested_ = true;
  wake();
}

void EngineService::set_asleep(bool asleep) {
  const MutexLock lock(mutex_);
  asleep_ = asleep;
  kv_discarded_ = kv_discarded_ && asleep;
  wake();
}

bool EngineService::asleep() const {
  const MutexLock lock(mutex_);
  return asleep_;
}

void EngineService::wake() {
  if (sleeping_) {
    work_.notify_one();
  }
}

void EngineService::run_loop() {
  while (take_commands()) {
    step();
  }
  fail_everything();
}

/// Waits for something to do, then brings the scheduler up to date. False when it is time to stop.
bool EngineService::take_commands() {
  bool go_on = true;
  {
    MutexLock lock(mutex_);
    sleeping_ = true;
    while (!stopping_ && !reset_requested_ && !tier_news_ && inbox_.empty() && ranks_.idle() &&
           (!asleep_ || kv_discarded_)) {
      const TimePoint until = ranks_.next_deadline();
      if (until == TimePoint::max()) {
        work_.wait(lock);
      } else if (const Duration left = until - clock_.now(); left > Duration::zero()) {
        work_.wait_for(lock, left);
      } else {
        break;
      }
      pass_end_ = {};
    }
    sleeping_ = false;
    tier_news_ = false;
    go_on = !stopping_;
    commands_.swap(inbox_);
    load_.waiting += static_cast<uint32_t>(std::exchange(inbox_submits_, 0));
    discard_now_ =
        asleep_ && !kv_discarded_ && inbox_.empty() && commands_.empty() && ranks_.idle();
    kv_discarded_ = kv_discarded_ || discard_now_;
    reset_now_ = std::exchange(reset_requested_, false) || discard_now_;
  }
  for (Command& command : commands_) {
    apply(command);
  }
  commands_.clear();
  if (commands_.capacity() > kCommandsKept) {
    std::vector<Command>().swap(
        commands_);  // thousands came at once: their room is not kept for the next burst
  }
  if (reset_now_) {
    ranks_.reset_prefix_cache();
  }
  if (discard_now_) {
    ranks_.discard_kv();
  }
  collect_loads();
  return go_on;
}

void EngineService::apply(Command& command) {
  if (auto* submit = std::get_if<PreparedRequest>(&command)) {
    apply_submit(*submit);
  } else if (auto* cancel = std::get_if<Cancel>(&command)) {
    ranks_.cancel(cancel->session, cancel->key);
    if (giver_ != nullptr) {
      giver_->cancel(cancel->session, cancel->key);
    }
  } else {
    const SessionId session = std::get<Close>(command).session;
    ranks_.cancel_session(session);
    if (giver_ != nullptr) {
      giver_->cancel_session(session);
    }
  }
}

void EngineService::apply_submit(PreparedRequest& submit) {
  auto guide = submit.grammar
                   ? make_guide(std::move(*submit.grammar), submit.request)
                   : Result<std::unique_ptr<guided::Guide>>(std::move(submit.grammar.error()));
  if (!guide) {
    refuse(submit.session, submit.request.key, std::move(guide.error()));
    return;
  }
  TierLanes::Parked ready{
      .session = submit.session, .request = std::move(submit.request), .guide = std::move(*guide)};
  if (giver_ != nullptr && ready.request.phase == inference::Phase::kPrefill) {
    giver_->accept({.session = ready.session, .request = ready.request.key}, ready.request,
                   owner_of(ready.request, config_.adapters.get(), config_.long_prompts));
  }
  Rank& rank = ranks_.choose(ready.request);
  if (rank.lanes == nullptr || !rank.lanes->park(ready, clock_.now())) {
    add(rank, std::move(ready));
  }
}

void EngineService::add(Rank& rank, TierLanes::Parked ready) {
  const inference::RequestKey key = ready.request.key;
  Status added = rank.scheduler.add(ready.session, std::move(ready.request), clock_.now(), {},
                                    std::move(ready.guide));
  if (!added) {
    refuse(ready.session, key, std::move(added.error()));
  }
}

void EngineService::refuse(SessionId session, inference::RequestKey key, Error error) {
  std::vector<SessionOutput> refused(1);
  refused[0].session = session;
  refused[0].output.failures.push_back({.key = key, .error = std::move(error)});
  if (giver_ != nullptr) {
    giver_->on_outputs(refused);
  }
  deliver(refused);
}

/// Requests whose blocks have come from lower tiers go on.
void EngineService::collect_loads() {
  for (const auto& rank : ranks_) {
    if (rank->lanes != nullptr) {
      for (TierLanes::Parked& ready : rank->lanes->collect(clock_.now())) {
        add(*rank, std::move(ready));
      }
    }
  }
}

/// By threads of the lower tiers.
void EngineService::tell_tier_news() {
  const MutexLock lock(mutex_);
  tier_news_ = true;
  wake();
}

void EngineService::step() {
  const TimePoint begin = clock_.now();
  bool computes = false;
  Duration pass{};
  for (const auto& rank : ranks_) {
    const StepPlan& plan = rank->scheduler.plan(begin);
    if (!plan.copies.empty()) {
      rank->runner->copy_blocks(plan.copies);
    }
    rank->sampled.clear();
    rank->sampled.resize(plan.slices.size());
    rank->tokens = plan.tokens;
    if (passes_.recording() && !plan.empty()) {
      rank->pass.scheduled = rank->scheduler.planned_work();
      rank->pass.queued = rank->scheduler.queue();
    }
    computes = computes || !plan.empty();
    pass = std::max(pass, plan.empty() ? Duration() : rank->runner->pass_time(plan.shape));
    plans_.push_back(&plan);
  }
  tell_events();  // what the plan evicted is gone now, not when the pass is over
  publish();
  offer_prompts();
  for (size_t i = 0; i < ranks_.size(); ++i) {
    if (!plans_[i]->empty()) {
      ranks_[i].runner->run(plans_[i]->slices, ranks_[i].sampled);
      if (giver_ != nullptr) {
        giver_->stage(*plans_[i], *ranks_[i].runner);
      }
    }
  }
  plans_.clear();
  if (computes) {
    wait_out(begin, pass);
    commit(begin);
  }
  ranks_.offload();
  tell_events();
  ranks_.report_idle(passes_);
}

/// Of prompts that begin to be computed for others: their answers' workers may be chosen now.
void EngineService::offer_prompts() {
  if (giver_ == nullptr) {
    return;
  }
  std::vector<SessionOutput> offers;
  for (const StepPlan* plan : plans_) {
    giver_->offers(plan->admitted, offers);
  }
  deliver(offers);
}

void EngineService::commit(TimePoint begin) {
  for (const auto& rank : ranks_) {
    if (!rank->sampled.empty()) {
      std::vector<SessionOutput>& outputs = rank->scheduler.commit(rank->sampled);
      if (giver_ != nullptr) {
        giver_->on_outputs(outputs);
      }
      publish();
      deliver(outputs);
      const Duration wall = clock_.now() - begin;
      rank->metrics.observe_step(rank->tokens, wall);
      if (rank->lanes != nullptr) {
        rank->lanes->saw_pass(rank->tokens, wall);
      }
      if (rank->pass.scheduled != PassWork()) {
        ++rank->pass.counter;
        rank->pass.wall_seconds = std::chrono::duration<double>(wall).count();
        passes_.append(rank->pass);
      }
    }
  }
}

void EngineService::tell_events() {
  if (std::vector<kv::KvEvent> events = ranks_.take_events(); !events.empty()) {
    events_.append(std::move(events));
  }
}

void EngineService::publish() {
  ranks_.report(config_.name);
  const LoadReport load = ranks_.load();
  const MutexLock lock(mutex_);
  load_ = load;
}

/// A modelled pass lasts although nothing computes; only stop() cuts it short. One pass begins when
/// the last one ended by the model, so that late wake-ups do not add up.
void EngineService::wait_out(TimePoint begin, Duration pass) {
  if (pass <= Duration::zero()) {
    return;
  }
  const bool follows = begin - pass_end_ < std::min(pass, kCatchUpMax);
  const TimePoint end = (follows ? pass_end_ : begin) + pass;
  pass_end_ = end;
  MutexLock lock(mutex_);
  while (!stopping_) {
    const Duration left = end - clock_.now();
    if (left <= Duration::zero()) {
      return;
    }
    stopped_.wait_for(lock, left);
  }
}

void EngineService::deliver(std::vector<SessionOutput>& outputs) {
  for (auto& [session, output] : outputs) {
    {
      const MutexLock lock(mutex_);
      live_.remove_ended(session, output);
    }
    sinks_.deliver(session, std::move(output));
  }
}

void EngineService::fail_everything() {
  const Error error(Code::kDraining, "the engine is shutting down");
  if (neighbours_.port != nullptr) {
    neighbours_.port->close();  // nothing is read into blocks any more
  }
  for (const auto& rank : ranks_) {
    deliver(rank->scheduler.fail_all(error));
    if (rank->lanes == nullptr) {
      continue;
    }
    std::vector<SessionOutput> parked;
    for (TierLanes::Parked& waiting : rank->lanes->take_all()) {
      parked.emplace_back().session = waiting.session;
      parked.back().output.failures.push_back({.key = waiting.request.key, .error = error.clone()});
    }
    deliver(parked);
    rank->lanes->close();
  }
  tell_events();
  publish();
}

}  // namespace

Result<std::unique_ptr<Engine>> make_engine(EngineConfig config,
                                            std::vector<std::unique_ptr<ModelRunner>> runners,
                                            Clock& clock, Metrics& metrics,
                                            VocabularySource vocabulary,
                                            EngineNeighbours neighbours) {
  STATOR_ASSERT(!runners.empty(), "an engine has at least one rank");
  const ModelRunner& runner = *runners.front();
  if (!runner.takes_masks()) {
    vocabulary = {};
  }
  config.structured_output = runner.structured_output() || vocabulary;
  config.prompt_logprobs = runner.prompt_logprobs();
  config.takes_phases = neighbours.port != nullptr;
  config.draft_tokens = runner.draft_tokens();
  config.long_prompts = runner.long_prompts();
  if (config.host_blocks > 0 && !runner.supports_host_tier()) {
    return Error(
        Code::kUnsupported,
        fmt::format("engine '{}' has no KV blocks in host memory (host_blocks)", config.kind));
  }
  STATOR_TRY(const EngineConfig resolved, resolve(std::move(config), runner.max_model_len()));
  const bool loads = neighbours.lower != nullptr ||
                     (neighbours.port != nullptr && neighbours.port->taker() != nullptr);
  if ((loads && resolved.host_blocks == 0) ||
      ((loads || neighbours.port != nullptr) && !resolved.enable_prefix_caching)) {
    return Error(Code::kInvalidArgument,
                 "KV tiers below host memory (kv.disk, kv.object, kv.store) and prompts of other "
                 "workers (worker.role) need host memory to load into (kv.host_bytes; simulated: "
                 "engine.host_blocks) and engine.prefix_caching");
  }
  return std::make_unique<EngineService>(resolved, std::move(runners), clock, metrics,
                                         std::move(vocabulary), std::move(neighbours));
}

Result<std::unique_ptr<Engine>> make_engine(EngineConfig config,
                                            std::unique_ptr<ModelRunner> runner, Clock& clock,
                                            Metrics& metrics, VocabularySource vocabulary) {
  std::vector<std::unique_ptr<ModelRunner>> runners;
  runners.push_back(std::move(runner));
  return make_engine(std::move(config), std::move(runners), clock, metrics, std::move(vocabulary));
}

}  // namespace stator::engine
