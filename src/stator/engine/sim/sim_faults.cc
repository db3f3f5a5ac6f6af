// SPDX-License-Identifier: Apache-2.0
#include "stator/engine/sim/sim_faults.h"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <limits>
#include <optional>
#include <utility>

#include "stator/core/config.h"
#include "stator/core/flat_map.h"
#include "stator/core/metrics.h"
#include "stator/core/mutex.h"
#include "stator/core/random.h"
#include "stator/engine/api/engine.h"
#include "stator/kv/event_log.h"

namespace stator::engine {
namespace {

enum class Stroke : uint8_t { kRefuse, kFail, kHang };

struct Struck {
  Stroke stroke = Stroke::kFail;
  uint32_t left = 0;  // tokens until then
  bool over = false;  // nothing more may be told
};

struct FaultMetrics {
  explicit FaultMetrics(Metrics& metrics) {
    const auto count = [&](const char* kind) {
      return metrics.counter("stator_sim_faults_total",
                             "faults that a simulated engine was set to have", {{"kind", kind}});
    };
    refused = count("refuse");
    failed = count("fail");
    hung = count("hang");
    frozen = count("freeze");
    died = count("die");
  }
  Counter refused, failed, hung, frozen, died;
};

class FaultyEngine;

/// Stands between the engine and one session's sink.
class FaultySink final : public EngineSink {
 public:
  FaultySink(FaultyEngine& engine, EngineSink& sink) : engine_(engine), sink_(sink) {}
  void on_step(inference::StepOutput output) noexcept override;
  void strike(inference::RequestKey key, Struck struck) {
    const MutexLock lock(mutex_);
    struck_.insert_or_assign(key, struck);
  }
  void forget(inference::RequestKey key) {
    const MutexLock lock(mutex_);
    struck_.erase(key);
  }

 private:
  void filter(inference::StepOutput& output);
  void tell(const inference::StepOutput& output, const inference::Delta& delta, uint32_t tokens,
            inference::StepOutput& told) const;

  FaultyEngine& engine_;
  EngineSink& sink_;
  Mutex mutex_;
  FlatMap<inference::RequestKey, Struck> struck_ STATOR_GUARDED_BY(mutex_);
};

class FaultyEngine final : public Engine {
 public:
  FaultyEngine(std::unique_ptr<Engine> engine, const SimFaults& faults, std::function<void()> die,
               Metrics& metrics)
      : faults_(faults),
        die_(std::move(die)),
        metrics_(metrics),
        random_(faults.seed),
        engine_(std::move(engine)) {}
  ~FaultyEngine() override { stop(); }
  FaultyEngine(const FaultyEngine&) = delete;
  FaultyEngine& operator=(const FaultyEngine&) = delete;

  const EngineInfo& info() const override { return engine_->info(); }
  Status start() override { return engine_->start(); }
  void stop() override {
    {
      const MutexLock lock(mutex_);
      stopping_ = true;
    }
    thaw_.notify_all();
    engine_->stop();
  }

  SessionId open_session(EngineSink& sink) override {
    auto own = std::make_unique<FaultySink>(*this, sink);
    const SessionId session = engine_->open_session(*own);
    const MutexLock lock(mutex_);
    sinks_[session] = std::move(own);
    return session;
  }
  void close_session(SessionId session) override {
    engine_->close_session(session);
    const MutexLock lock(mutex_);
    sinks_.erase(session);
  }

  Status submit(SessionId session, inference::EngineRequest request) override {
    const inference::RequestKey key = request.key;
    std::shared_ptr<FaultySink> sink;
    std::optional<Stroke> stroke;
    {
      const MutexLock lock(mutex_);
      stroke = choose();
      if (const auto at = sinks_.find(session); at != sinks_.end()) {
        sink = at->second;
      }
    }
    if (stroke == Stroke::kRefuse) {
      metrics_.refused.add();
      return Error(Code::kOverloaded, "the simulated engine refuses this one (sim_fault.refuse)");
    }
    const bool strikes = stroke && sink != nullptr;
    if (strikes) {
      sink->strike(key, {.stroke = *stroke, .left = faults_.after_tokens});
    }
    Status submitted = engine_->submit(session, std::move(request));
    if (!submitted && strikes) {
      sink->forget(key);
    }
    return submitted;
  }
  void cancel(SessionId session, inference::RequestKey key) override {
    engine_->cancel(session, key);
    std::shared_ptr<FaultySink> sink;
    {
      const MutexLock lock(mutex_);
      const auto at = sinks_.find(session);
      sink = at == sinks_.end() ? nullptr : at->second;
    }
    if (sink != nullptr) {
      sink->forget(key);
    }
  }

  LoadReport load() const override { return engine_->load(); }
  kv::EventLog& events() override { return engine_->events(); }
  ForwardPassLog* forward_passes() override { return engine_->forward_passes(); }
  void reset_prefix_cache() override { engine_->reset_prefix_cache(); }

  /// Before `tokens` are told, on the engine's thread.
  void on_tokens(uint64_t tokens) noexcept {
    const uint64_t before = std::exchange(told_, told_ + tokens);
    const auto reaches = [&](uint64_t bound) {
      return bound > 0 && before < bound && told_ >= bound;
    };
    if (reaches(faults_.die_after_tokens)) {
      metrics_.died.add();
      die_();
    }
    if (reaches(faults_.freeze_after_tokens)) {
      metrics_.frozen.add();
      MutexLock lock(mutex_);
      thaw_.wait_for(lock, faults_.freeze_time,
                     [this]() STATOR_REQUIRES(mutex_) { return stopping_; });
    }
  }
  void count(Stroke stroke) { (stroke == Stroke::kFail ? metrics_.failed : metrics_.hung).add(); }

 private:
  std::optional<Stroke> choose() STATOR_REQUIRES(mutex_) {
    const double draw = random_.uniform();
    if (draw < faults_.refuse_rate) {
      return Stroke::kRefuse;
    }
    if (draw < faults_.refuse_rate + faults_.fail_rate) {
      return Stroke::kFail;
    }
    if (draw < faults_.refuse_rate + faults_.fail_rate + faults_.hang_rate) {
      return Stroke::kHang;
    }
    return std::nullopt;
  }

  const SimFaults faults_;
  const std::function<void()> die_;
  FaultMetrics metrics_;
  uint64_t told_ = 0;  // tokens; of the engine's thread

  Mutex mutex_;
  std::condition_variable_any thaw_;
  Random random_ STATOR_GUARDED_BY(mutex_);
  bool stopping_ STATOR_GUARDED_BY(mutex_) = false;
  FlatMap<SessionId, std::shared_ptr<FaultySink>> sinks_ STATOR_GUARDED_BY(mutex_);

  const std::unique_ptr<Engine> engine_;  // the last one made, the first one gone
};

void FaultySink::on_step(inference::StepOutput output) noexcept {
  filter(output);
  engine_.on_tokens(output.tokens.size());
  if (!output.deltas.empty() || !output.failures.empty() || !output.pooled.empty()) {
    sink_.on_step(std::move(output));
  }
}

/// Leaves out what those struck must not say.
void FaultySink::filter(inference::StepOutput& output) {
  const MutexLock lock(mutex_);
  if (struck_.empty()) {
    return;
  }
  inference::StepOutput told;
  told.offers = std::move(output.offers);
  for (inference::Failure& failure : output.failures) {
    const auto at = struck_.find(failure.key);
    const bool silent = at != struck_.end() && at->second.over;
    struck_.erase(failure.key);
    if (!silent) {
      told.failures.push_back(std::move(failure));
    }
  }
  for (const inference::Delta& delta : output.deltas) {
    const auto at = struck_.find(delta.key);
    if (at == struck_.end()) {
      tell(output, delta, delta.token_count, told);
      continue;
    }
    Struck& struck = at->second;
    if (!struck.over) {
      const uint32_t tokens = std::min(struck.left, delta.token_count);
      struck.left -= tokens;
      if (tokens > 0) {
        tell(output, delta, tokens, told);
      }
      if (tokens < delta.token_count) {
        struck.over = true;
        engine_.count(struck.stroke);
        if (struck.stroke == Stroke::kFail) {
          told.failures.push_back(
              {.key = delta.key,
               .error = Error(Code::kDisconnected, "the simulated engine fails (sim_fault.fail)")});
        }
      }
    }
    if (delta.finish != inference::FinishReason::kNone) {
      struck_.erase(at);
    }
  }
  output = std::move(told);
}

/// The first `tokens` of a delta; its end goes with its last one.
void FaultySink::tell(const inference::StepOutput& output, const inference::Delta& delta,
                      uint32_t tokens, inference::StepOutput& told) const {
  inference::Delta part = delta;
  part.token_begin = static_cast<uint32_t>(told.tokens.size());
  part.token_count = tokens;
  if (tokens < delta.token_count) {
    part.finish = inference::FinishReason::kNone;
    part.stopped_by_token = false;
  }
  const auto ids = output.tokens_of(delta).first(tokens);
  told.tokens.insert(told.tokens.end(), ids.begin(), ids.end());
  if (const auto logprobs = output.logprobs_of(delta); !logprobs.empty()) {
    const auto first = logprobs.first(tokens);
    told.logprobs.insert(told.logprobs.end(), first.begin(), first.end());
  }
  told.deltas.push_back(part);
}

}  // namespace

Status validate(const SimFaults& faults) {
  const double struck = faults.refuse_rate + faults.fail_rate + faults.hang_rate;
  if (struck > 1) {
    return Error(Code::kInvalidArgument,
                 fmt::format("sim_fault.refuse, sim_fault.fail and sim_fault.hang add up to {}, "
                             "must be at most 1",
                             struck));
  }
  const double messages = faults.lose_events + faults.repeat_events + faults.reorder_events;
  if (messages > 1) {
    return Error(Code::kInvalidArgument,
                 fmt::format("sim_fault.lose_events, sim_fault.repeat_events and "
                             "sim_fault.reorder_events add up to {}, must be at most 1",
                             messages));
  }
  return {};
}

void describe(ConfigSchema& schema, SimFaults& faults) {
  schema.number("sim_fault.refuse", faults.refuse_rate, 0, 1,
                "part of the requests that a simulated engine refuses as if it were full",
                {.flag = "sim-fault-refuse"});
  schema.number("sim_fault.fail", faults.fail_rate, 0, 1,
                "part of the requests that fail after sim_fault.after_tokens",
                {.flag = "sim-fault-fail"});
  schema.number("sim_fault.hang", faults.hang_rate, 0, 1,
                "part of the requests of which nothing more is heard after sim_fault.after_tokens",
                {.flag = "sim-fault-hang"});
  schema.integer("sim_fault.after_tokens", faults.after_tokens, 0, 1 << 30,
                 "of an answer, before it fails or hangs", {.flag = "sim-fault-after-tokens"});
  schema.integer("sim_fault.freeze_after_tokens", faults.freeze_after_tokens, 0, int64_t{1} << 60,
                 "of all answers, after which a simulated engine stands still once, 0 = never",
                 {.flag = "sim-fault-freeze-after-tokens"});
  schema.duration("sim_fault.freeze_time", faults.freeze_time, "how long it does",
                  {.flag = "sim-fault-freeze-time"});
  schema.integer("sim_fault.die_after_tokens", faults.die_after_tokens, 0, int64_t{1} << 60,
                 "of all answers, after which the process is killed, 0 = never",
                 {.flag = "sim-fault-die-after-tokens"});
  schema.integer("sim_fault.seed", faults.seed, 0, std::numeric_limits<int64_t>::max(),
                 "of the choice of requests and messages", {.flag = "sim-fault-seed"});
  schema.number("sim_fault.lose_events", faults.lose_events, 0, 1,
                "part of the messages with KV events that never reach the broker; needs one",
                {.flag = "sim-fault-lose-events"});
  schema.number("sim_fault.repeat_events", faults.repeat_events, 0, 1,
                "part of them that come twice", {.flag = "sim-fault-repeat-events"});
  schema.number("sim_fault.reorder_events", faults.reorder_events, 0, 1,
                "part of them that come behind the next one", {.flag = "sim-fault-reorder-events"});
}

std::unique_ptr<Engine> make_faulty_engine(std::unique_ptr<Engine> engine, const SimFaults& faults,
                                           std::function<void()> die, Metrics& metrics) {
  return std::make_unique<FaultyEngine>(std::move(engine), faults, std::move(die), metrics);
}

}  // namespace stator::engine
