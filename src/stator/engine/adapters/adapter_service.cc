// SPDX-License-Identifier: Apache-2.0
#include "stator/engine/adapters/adapter_service.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <iterator>
#include <utility>
#include <variant>
#include <vector>

#include "stator/core/flat_map.h"
#include "stator/core/log.h"
#include "stator/core/mutex.h"
#include "stator/engine/adapters/adapter_commands.h"
#include "stator/engine/adapters/adapter_metrics.h"
#include "stator/engine/adapters/answer_steps.h"
#include "stator/engine/adapters/lower.h"
#include "stator/engine/adapters/parked_requests.h"
#include "stator/engine/adapters/pooling.h"
#include "stator/engine/adapters/upkeep.h"
#include "stator/engine/core/engine_thread.h"
#include "stator/engine/core/pooling_service.h"
#include "stator/engine/core/session_book.h"
#include "stator/kv/event_log.h"
#include "stator/net/http_streams.h"

namespace stator::engine::adapters {
namespace {

using namespace std::chrono_literals;

constexpr std::string_view kLogTarget = "engine::adapter";
// A prompt that another server keeps must reach this one's server within this time of being asked
// for: a frontend counts on it when it looks at the lease.
constexpr Duration kTakePatience = 5s;
// A cancelled request that has not said anything may still be fetching its prompt. It is left to
// do so for at most this long, because the giver keeps the blocks until they were fetched.
constexpr Duration kFetchPatience = 30s;

/// V1  Submits in the inbox plus live streams ≤ inflight_max; cancels and closes ≤ keys ever live.
/// V2  streams_, live_, by_key_, steps_ and parked_ belong to the adapter's thread.
/// V3  forsaken_ counts the live streams that nobody listens to; at most inflight_max.
/// Locks are never nested, except that of thread_, which is outermost.
class AdapterService final : public AdapterEngine,
                             private net::HttpStreamsListener,
                             private ParkedRequests::Owner {
 public:
  AdapterService(AdapterConfig config, EngineFacts facts, std::unique_ptr<Dialect> dialect,
                 Clock& clock, Metrics& metrics);
  ~AdapterService() override { stop(); }
  AdapterService(const AdapterService&) = delete;
  AdapterService& operator=(const AdapterService&) = delete;

  Status open();

  const EngineInfo& info() const override { return info_; }
  const EngineFacts& facts() const override { return facts_; }
  const Traits& traits() const override { return dialect_->traits(); }
  kv::EventLog& events() override { return events_; }
  bool healthy() const override { return upkeep_.healthy(); }
  Status start() override;
  void stop() override;
  SessionId open_session(EngineSink& sink) override;
  void close_session(SessionId session) override;
  Status submit(SessionId session, inference::EngineRequest request) override;
  void cancel(SessionId session, inference::RequestKey key) override;
  LoadReport load() const override;
  void reset_prefix_cache() override;
  bool asleep() const override { return upkeep_.asleep(); }
  std::vector<std::string> adapters() const override;
  bool owes_prompts() const override { return upkeep_.owes_prompts(); }
  void control(Control control, ControlDone done) override;

 private:
  using LiveKey = std::pair<SessionId, inference::RequestKey>;

  // The adapter's thread.
  void run_loop();
  bool take_commands();
  void call(Submit& submit);
  void on_unparked(std::vector<Submit> requests) override;
  void on_park_failed(std::vector<Submit> requests, const Error& why) override;
  void drop(SessionId session, inference::RequestKey key);
  void end_forsaken();
  void drop_session(SessionId session);
  void give_up();
  void on_head(net::HttpStreamId stream, int status, std::string_view content_type) override;
  void on_bytes(net::HttpStreamId stream, std::string_view bytes) override;
  void on_end(net::HttpStreamId stream, Status status) override;
  void emit(Live& live);
  void end_stream(net::HttpStreamId stream);
  void deliver();
  void fail_everything();

  net::HttpClientOptions call_options() const;
  size_t inflight() const;
  Status check(const inference::EngineRequest& request) const;

  const AdapterConfig config_;
  const EngineFacts facts_;
  const std::unique_ptr<Dialect> dialect_;
  Clock& clock_;
  AdapterMetrics metrics_;
  const EngineInfo info_;
  kv::EventLog events_;
  Upkeep upkeep_;

  std::unique_ptr<net::HttpStreams> streams_;
  FlatMap<net::HttpStreamId, std::unique_ptr<Live>> live_;
  FlatMap<LiveKey, net::HttpStreamId> by_key_;
  AnswerSteps steps_;  // of this turn
  std::vector<Command> commands_;
  Raised raised_;
  size_t forsaken_ = 0;
  ParkedRequests parked_;
  // What is read in a turn came after the turn before began, or it would have been read then.
  TimePoint turn_begin_{};
  TimePoint last_turn_begin_{};

  mutable Mutex mutex_;
  std::vector<Command> inbox_ STATOR_GUARDED_BY(mutex_);
  LiveRequests inflight_ STATOR_GUARDED_BY(mutex_);
  bool stopping_ STATOR_GUARDED_BY(mutex_) = false;

  Sinks sinks_;
  EngineThread thread_;
};

EngineInfo make_info(const AdapterConfig& config, const EngineFacts& facts, const Traits& traits) {
  return {.kind = std::string(traits.kind),
          .version = facts.version,
          .block_size = facts.block_size > 0 ? facts.block_size : config.block_size,
          .total_blocks = facts.total_blocks,
          .max_model_len = facts.max_model_len > 0 ? facts.max_model_len : config.max_model_len,
          .max_num_seqs = facts.max_num_seqs,
          .max_num_batched_tokens = 0,
          .vocab_size = config.vocab_size,
          .dp_size = facts.dp_size,
          .kv_events = !facts.kv_sources.empty(),
          .structured_output = traits.structured_output,
          .prompt_logprobs = traits.prompt_logprobs,
          .token_filters = traits.token_filters,
          .media = traits.media.both(config.media),
          .handoff = facts.handoff,
          .pool = pool_ability(traits.kind, facts, config.task)};
}

AdapterService::AdapterService(AdapterConfig config, EngineFacts facts,
                               std::unique_ptr<Dialect> dialect, Clock& clock, Metrics& metrics)
    : config_(std::move(config)),
      facts_(std::move(facts)),
      dialect_(std::move(dialect)),
      clock_(clock),
      metrics_(metrics, config_.name),
      info_(make_info(config_, facts_, dialect_->traits())),
      events_(0),
      upkeep_({.config = config_,
               .facts = facts_,
               .dialect = *dialect_,
               .clock = clock_,
               .metrics = metrics_,
               .events = events_}),
      steps_(*dialect_, facts_, config_.handoff_lease, metrics_),
      parked_(FirstUse(dialect_->traits().lora ? config_.lora_folder : std::string(),
                       config_.loras_max),
              config_.url, upkeep_, *this) {
  if (!config_.lora_folder.empty() && !parked_.enabled()) {
    log::warn(kLogTarget, "engine.lora_folder has no effect: this kind of server loads no adapters",
              {{"engine", config_.kind}, {"url", config_.url}});
  }
}

Status AdapterService::open() {
  // Beside upkeep: exchanges whose answer is complete may still have their last bytes to come,
  // forsaken ones their first.
  STATOR_TRY(streams_, net::HttpStreams::create(
                           {.streams_max = size_t{3} * config_.inflight_max + Upkeep::kStreamsMax,
                            .idle_connections_max = config_.inflight_max},
                           *this, clock_));
  return {};
}

Status AdapterService::start() {
  return thread_.start("adapter", [this] { run_loop(); });
}

void AdapterService::stop() {
  thread_.end(
      [this] {
        const MutexLock lock(mutex_);
        stopping_ = true;
        streams_->wake();
      },
      [this] {
        take_commands();
        fail_everything();
      });
}

SessionId AdapterService::open_session(EngineSink& sink) {
  SessionId session;
  {
    const MutexLock lock(mutex_);
    session = inflight_.open();
  }
  sinks_.add(session, sink);
  return session;
}

void AdapterService::close_session(SessionId session) {
  sinks_.remove(session);
  const MutexLock lock(mutex_);
  if (inflight_.close(session)) {
    inbox_.emplace_back(Close{session});
    streams_->wake();
  }
}

Status AdapterService::check(const inference::EngineRequest& request) const {
  if (request.pool) {
    return check_pool_request(request, {.ability = info_.pool,
                                        .vocab_size = config_.vocab_size,
                                        .max_model_len = info_.max_model_len});
  }
  if (!info_.pool.generates) {
    return Error(Code::kUnsupported, "this engine does not generate");
  }
  return check_request(request, dialect_->traits(), facts_, config_.vocab_size);
}

Status AdapterService::submit(SessionId session, inference::EngineRequest request) {
  if (facts_.dp_size <= 1) {
    request.dp_rank.reset();  // not every server takes a choice of one
  }
  Status checked = check(request);
  if (!checked) {
    metrics_.refused.add();
    return checked;
  }
  auto call =
      request.pool ? lower_pool(request, traits().kind, facts_) : dialect_->lower(request, facts_);
  if (!call) {
    metrics_.refused.add();
    return std::move(call.error());
  }
  std::string adapter = request.lora_name;
  auto raiser = request.pool ? make_pool_raiser(request) : dialect_->make_raiser(request);
  const MutexLock lock(mutex_);
  if (stopping_) {
    return Error(Code::kDraining, "the engine is shutting down");
  }
  if (!upkeep_.healthy() || upkeep_.asleep()) {
    return Error(Code::kUnavailable, fmt::format("the engine at {} {}", config_.url,
                                                 upkeep_.healthy() ? "sleeps until it is woken up"
                                                                   : "does not answer"));
  }
  if (inflight_.size() >= config_.inflight_max) {
    return Error(
        Code::kOverloaded,
        fmt::format("{} requests are in the engine (engine.waiting_max)", inflight_.size()));
  }
  STATOR_CHECK(inflight_.add(session, request.key));
  inbox_.emplace_back(Submit{.session = session,
                             .key = request.key,
                             .generated = request.generated,
                             .stop = std::move(request.stop),
                             .call = with_context(std::move(*call), request.context.get()),
                             .raiser = std::move(raiser),
                             .phase = request.phase,
                             .handoff_id = request.handoff.id,
                             .asked = clock_.now(),
                             .adapter = std::move(adapter)});
  streams_->wake();
  return {};
}

void AdapterService::cancel(SessionId session, inference::RequestKey key) {
  const MutexLock lock(mutex_);
  if (inflight_.remove(session, key)) {
    inbox_.emplace_back(Cancel{session, key});
    streams_->wake();
  }
}

size_t AdapterService::inflight() const {
  const MutexLock lock(mutex_);
  return inflight_.size();
}

LoadReport AdapterService::load() const {
  return upkeep_.load(inflight());
}

void AdapterService::control(Control control, ControlDone done) {
  if (upkeep_.control(std::move(control), std::move(done))) {
    streams_->wake();
  }
}

void AdapterService::reset_prefix_cache() {
  control(ResetPrefixCache{}, [](Status reset) {
    if (!reset) {
      log::warn(kLogTarget, reset.error().message());
    }
  });
}

// ---- the adapter's thread

void AdapterService::run_loop() {
  while (take_commands()) {
    const TimePoint next_look = upkeep_.turn(*streams_);
    last_turn_begin_ = std::exchange(turn_begin_, clock_.now());
    const Duration until_look = std::max(next_look - turn_begin_, Duration::zero());
    streams_->turn(steps_.empty() ? until_look : Duration::zero());
    if (upkeep_.stands_still(turn_begin_, *streams_)) {
      give_up();
    }
    deliver();
    end_forsaken();
  }
  fail_everything();
}

bool AdapterService::take_commands() {
  bool go_on = true;
  {
    const MutexLock lock(mutex_);
    go_on = !stopping_;
    commands_.swap(inbox_);
  }
  for (Command& command : commands_) {
    if (auto* submit = std::get_if<Submit>(&command)) {
      if (!parked_.park(*submit)) {
        call(*submit);
      }
    } else if (auto* cancel = std::get_if<Cancel>(&command)) {
      drop(cancel->session, cancel->key);
    } else {
      drop_session(std::get<Close>(command).session);
    }
  }
  commands_.clear();
  return go_on;
}

net::HttpClientOptions AdapterService::call_options() const {
  return {.connect_timeout = config_.connect_timeout,
          .timeout = Duration::zero(),
          .stall_timeout = config_.stall_timeout};
}

std::vector<std::string> AdapterService::adapters() const {
  std::vector<std::string> out = upkeep_.adapters();
  std::ranges::move(parked_.names(), std::back_inserter(out));
  std::ranges::sort(out);
  const auto repeated = std::ranges::unique(out);
  out.erase(repeated.begin(), repeated.end());
  return out;
}

/// What waited is begun with the next commands.
void AdapterService::on_unparked(std::vector<Submit> requests) {
  const MutexLock lock(mutex_);
  std::ranges::move(requests, std::back_inserter(inbox_));
  streams_->wake();
}

void AdapterService::on_park_failed(std::vector<Submit> requests, const Error& why) {
  for (const Submit& submit : requests) {
    steps_.fail(submit.session, submit.key, why.clone());
  }
}

void AdapterService::call(Submit& submit) {
  if (submit.phase == inference::Phase::kDecode && clock_.now() - submit.asked > kTakePatience) {
    steps_.fail(
        submit.session, submit.key,
        Error(Code::kUnavailable, "this worker stood still while a prompt was handed to it"));
    return;
  }
  net::HttpClientRequest request{.method = "POST",
                                 .url = config_.url + submit.call.path,
                                 .headers = headers_of(config_),
                                 .body = std::move(submit.call.body)};
  std::ranges::move(submit.call.headers, std::back_inserter(request.headers));
  auto stream = streams_->start(std::move(request), call_options());
  if (!stream) {
    steps_.fail(submit.session, submit.key, std::move(stream.error()));
    return;
  }
  by_key_[{submit.session, submit.key}] = *stream;
  live_.emplace(*stream, std::make_unique<Live>(
                             Live{.session = submit.session,
                                  .key = submit.key,
                                  .offset = submit.generated,
                                  .stop = std::move(submit.stop),
                                  .reply = ReplyReader(std::move(submit.raiser), traits().kind),
                                  .phase = submit.phase,
                                  .handoff_id = submit.handoff_id,
                                  .asked = submit.asked}));
}

void AdapterService::drop(SessionId session, inference::RequestKey key) {
  if (parked_.drop(session, key)) {
    metrics_.cancelled.add();
    return;
  }
  if (const auto found = by_key_.find(LiveKey{session, key}); found != by_key_.end()) {
    metrics_.cancelled.add();
    const net::HttpStreamId stream = found->second;
    Live& live = *live_.at(stream);
    if (live.phase == inference::Phase::kDecode && !live.spoke &&
        forsaken_ < config_.inflight_max) {
      live.forsaken = clock_.now() + kFetchPatience;
      ++forsaken_;
      by_key_.erase(found);
      return;
    }
    streams_->cancel(stream);
    end_stream(stream);
  }
}

void AdapterService::end_forsaken() {
  if (forsaken_ == 0) {
    return;
  }
  std::vector<net::HttpStreamId> ended;
  for (const auto& [stream, live] : live_) {
    if (live->forsaken && (live->spoke || clock_.now() >= *live->forsaken)) {
      ended.push_back(stream);
    }
  }
  for (const net::HttpStreamId stream : ended) {
    streams_->cancel(stream);
    end_stream(stream);
  }
}

void AdapterService::drop_session(SessionId session) {
  parked_.drop_session(session);
  std::vector<inference::RequestKey> keys;
  for (const auto& [key, stream] : by_key_) {
    if (key.first == session) {
      keys.push_back(key.second);
    }
  }
  for (const inference::RequestKey& key : keys) {
    drop(session, key);
  }
}

/// The server stands still: what it has must go on elsewhere.
void AdapterService::give_up() {
  std::vector<net::HttpStreamId> lost;
  for (const auto& [stream, live] : live_) {
    lost.push_back(stream);
  }
  std::ranges::sort(lost);
  log::warn(kLogTarget, "the engine stands still: its requests go on elsewhere",
            {{"url", config_.url}, {"requests", lost.size()}});
  on_park_failed(parked_.take_all(),
                 Error(Code::kDisconnected, "the engine sent nothing for engine.silence_timeout"));
  for (const net::HttpStreamId stream : lost) {
    steps_.fail(*live_.at(stream),
                Error(Code::kDisconnected,
                      fmt::format("the engine at {} sent nothing for engine.silence_timeout",
                                  config_.url)));
    streams_->cancel(stream);
    end_stream(stream);
  }
}

void AdapterService::end_stream(net::HttpStreamId stream) {
  if (const auto found = live_.find(stream); found != live_.end()) {
    if (found->second->forsaken) {
      --forsaken_;
    } else {
      by_key_.erase(LiveKey{found->second->session, found->second->key});
    }
    live_.erase(found);
  }
}

void AdapterService::on_head(net::HttpStreamId stream, int status, std::string_view content_type) {
  upkeep_.heard();
  if (upkeep_.on_head(stream, status)) {
    return;
  }
  if (const auto found = live_.find(stream); found != live_.end()) {
    Live& live = *found->second;
    live.unanswered = std::max(last_turn_begin_ - live.asked, Duration::zero());
    live.reply.on_head(status, content_type);
  }
}

void AdapterService::on_bytes(net::HttpStreamId stream, std::string_view bytes) {
  upkeep_.heard();
  const auto found = live_.find(stream);
  if (found == live_.end()) {
    upkeep_.on_bytes(stream, bytes);
    return;
  }
  metrics_.bytes.add(bytes.size());
  Live& live = *found->second;
  raised_.clear();
  Status read = live.reply.on_bytes(bytes, raised_);
  emit(live);
  if (!read) {
    steps_.fail(live, std::move(read.error()));
  }
  if (!read || live.reply.done()) {
    if (!read || live.reply.abort()) {
      streams_->cancel(stream);  // else the end of the chunked body frees the connection for reuse
    }
    end_stream(stream);
  }
}

void AdapterService::on_end(net::HttpStreamId stream, Status status) {
  const auto found = live_.find(stream);
  if (found == live_.end()) {
    upkeep_.on_end(stream, status, *streams_, inflight());
    return;
  }
  Live& live = *found->second;
  raised_.clear();
  if (!status) {
    upkeep_.look_now();
  }
  Status read =
      status ? live.reply.on_end(raised_) : live.reply.on_cut(std::move(status.error()), raised_);
  emit(live);
  if (!read) {
    steps_.fail(live, std::move(read.error()));
  }
  end_stream(stream);
}

void AdapterService::emit(Live& live) {
  if (const auto kept = steps_.add(live, raised_)) {
    upkeep_.gave_prompt(*kept);
  }
}

void AdapterService::deliver() {
  for (auto& [session, step] : steps_.all()) {
    {
      const MutexLock lock(mutex_);
      inflight_.remove_ended(session, step);
    }
    sinks_.deliver(session, std::move(step));
  }
  steps_.clear();
}

void AdapterService::fail_everything() {
  for (const auto& [stream, live] : live_) {
    streams_->cancel(stream);
    if (!live->forsaken) {
      steps_.fail(live->session, live->key, Error(Code::kDraining, "the engine is shutting down"));
    }
  }
  live_.clear();
  by_key_.clear();
  forsaken_ = 0;
  on_park_failed(parked_.take_all(), Error(Code::kDraining, "the engine is shutting down"));
  upkeep_.stop(*streams_);
  deliver();
}

}  // namespace

Result<std::unique_ptr<AdapterEngine>> make_adapter(AdapterConfig config, EngineFacts facts,
                                                    std::unique_ptr<Dialect> dialect, Clock& clock,
                                                    Metrics& metrics) {
  if (config.inflight_max == 0 || config.poll_interval <= Duration::zero()) {
    return Error(Code::kInvalidArgument,
                 "engine.waiting_max and engine.poll_interval must be more than 0");
  }
  if (facts.max_model_len == 0) {
    facts.max_model_len = config.max_model_len;
  }
  if (facts.max_model_len == 0) {
    return Error(Code::kInvalidArgument,
                 fmt::format("neither {} nor the model folder says how many tokens fit: set "
                             "engine.max_model_len (flag --max-model-len)",
                             config.url));
  }
  auto service = std::make_unique<AdapterService>(std::move(config), std::move(facts),
                                                  std::move(dialect), clock, metrics);
  STATOR_CHECK(service->open());
  return service;
}

}  // namespace stator::engine::adapters
