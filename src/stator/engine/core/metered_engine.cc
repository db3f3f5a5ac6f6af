// SPDX-License-Identifier: Apache-2.0
#include "stator/engine/core/metered_engine.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "stator/core/flat_map.h"
#include "stator/core/mutex.h"

namespace stator::engine {
namespace {

// As NVIDIA Dynamo's work handler has them, so that dashboards and alerts keep their meaning.
constexpr std::array kDurationBounds = {.005, .01, .025, .05, .1,  .25,  .5,   1.0, 2.5,
                                        5.0,  10., 20.,  30., 60., 120., 300., 600.};
constexpr std::array kShortBounds = {.0001, .00025, .0005, .001, .0025, .005, .01,
                                     .025,  .05,    .1,    .25,  .5,    1.0};
constexpr std::array kFirstBounds = {.001, .0025, .005, .01, .025, .05, .1,
                                     .25,  .5,    1.0,  2.5, 5.0,  10.};

double seconds(Duration duration) {
  return std::chrono::duration<double>(duration).count();
}

uint64_t payload_bytes(const inference::EngineRequest& request) {
  uint64_t bytes = request.tokens.size() * sizeof(TokenId) + request.cache_salt.size() +
                   request.lora_name.size() + request.structured_outputs.size() +
                   request.handoff.payload.size();
  if (request.pool) {
    for (const std::string& text : request.pool->texts) {
      bytes += text.size();
    }
  }
  return bytes;
}

uint64_t payload_bytes(const inference::StepOutput& output) {
  uint64_t bytes = output.tokens.size() * sizeof(TokenId) +
                   output.logprobs.size() * sizeof(inference::TokenLogprob);
  for (const inference::Offer& offer : output.offers) {
    bytes += offer.handoff.payload.size();
  }
  for (const inference::Pooled& pooled : output.pooled) {
    bytes += pooled.answer.values.size() * sizeof(float);
  }
  return bytes;
}

std::string_view describe(inference::FinishReason finish) {
  constexpr std::array<std::string_view, 5> kNames = {"", "stop", "length", "cancelled", "error"};
  return kNames[static_cast<size_t>(finish)];
}

/// The series of one worker.
struct Meters {
  Meters(Metrics& metrics, const MeterOptions& options) {
    MetricLabels labels = options.place;
    labels.emplace_back("model", options.model);
    const auto counter = [&](const char* name, const char* help) {
      return metrics.counter(name, help, labels);
    };
    const auto histogram = [&](const char* name, const char* help, std::span<const double> bounds) {
      return metrics.histogram(name, help, bounds, labels);
    };
    requests = counter("dynamo_component_requests_total", "requests that came to the worker");
    request_bytes =
        counter("dynamo_component_request_bytes_total", "token ids and texts of requests");
    response_bytes = counter("dynamo_component_response_bytes_total",
                             "token ids, log-probabilities and vectors of answers");
    cancelled = counter("dynamo_component_cancellation_total", "requests that were cancelled");
    refused = counter("dynamo_work_handler_enqueue_rejected_total",
                      "requests refused because the engine's queue was full");
    inflight = metrics.gauge("dynamo_component_inflight_requests",
                             "requests at the worker, waiting and running", labels);
    duration = histogram("dynamo_component_request_duration_seconds",
                         "arrival at the worker to its last word", kDurationBounds);
    transit = histogram("dynamo_work_handler_network_transit_seconds",
                        "from the frontend to the worker, by the clocks of both", kShortBounds);
    first = histogram("dynamo_work_handler_time_to_first_response_seconds",
                      "arrival at the worker to the first output", kFirstBounds);
    wait =
        histogram("dynamo_work_handler_permit_wait_seconds",
                  "arrival at the worker to the engine's first step for the request", kFirstBounds);
    const auto error = [&](const char* type) {
      MetricLabels with = labels;
      with.emplace_back("error_type", type);
      return metrics.counter("dynamo_component_errors_total", "requests that failed", with);
    };
    failed = error("generate");
    invalid = error("invalid_message");
  }
  Counter requests, request_bytes, response_bytes, cancelled, refused, failed, invalid;
  Gauge inflight;
  Histogram duration, transit, first, wait;
};

/// A request on its way.
struct Running {
  TimePoint received;
  ServedRequest served;
  bool answered = false;
};

class MeteredEngine;

/// Stands between the engine and one session's sink.
class MeteredSink final : public EngineSink {
 public:
  MeteredSink(MeteredEngine& engine, EngineSink& sink) : engine_(engine), sink_(sink) {}
  void on_step(inference::StepOutput output) noexcept override;

  void add(inference::RequestKey key, Running running) {
    const MutexLock lock(mutex_);
    running_.insert_or_assign(key, std::move(running));
  }
  std::optional<Running> take(inference::RequestKey key) {
    const MutexLock lock(mutex_);
    const auto known = running_.find(key);
    if (known == running_.end()) {
      return std::nullopt;
    }
    Running running = std::move(known->second);
    running_.erase(known);
    return running;
  }
  std::vector<Running> take_all() {
    std::vector<Running> all;
    const MutexLock lock(mutex_);
    for (auto& [key, running] : running_) {
      all.push_back(std::move(running));
    }
    running_.clear();
    return all;
  }

 private:
  void look(const inference::StepOutput& output, std::vector<Running>& ended);

  MeteredEngine& engine_;
  EngineSink& sink_;
  Mutex mutex_;
  FlatMap<inference::RequestKey, Running> running_
      STATOR_GUARDED_BY(mutex_);  // bounded by the engine's queue
};

class MeteredEngine final : public Engine {
 public:
  MeteredEngine(std::unique_ptr<Engine> engine, MeterOptions options, Clock& clock,
                Metrics& metrics)
      : options_(std::move(options)),
        clock_(clock),
        meters_(metrics, options_),
        engine_(std::move(engine)) {
    show_load(metrics);
  }
  MeteredEngine(const MeteredEngine&) = delete;
  MeteredEngine& operator=(const MeteredEngine&) = delete;
  ~MeteredEngine() override { stop(); }

  const EngineInfo& info() const override { return engine_->info(); }
  Status start() override { return engine_->start(); }
  void stop() override {
    engine_->stop();
    const MutexLock lock(shown_->mutex);
    shown_->engine = nullptr;
  }
  LoadReport load() const override { return engine_->load(); }
  kv::EventLog& events() override { return engine_->events(); }
  ForwardPassLog* forward_passes() override { return engine_->forward_passes(); }
  void reset_prefix_cache() override { engine_->reset_prefix_cache(); }

  SessionId open_session(EngineSink& sink) override {
    auto own = std::make_shared<MeteredSink>(*this, sink);
    const SessionId session = engine_->open_session(*own);
    const MutexLock lock(mutex_);
    sinks_[session] = std::move(own);
    return session;
  }
  void close_session(SessionId session) override {
    engine_->close_session(session);
    std::shared_ptr<MeteredSink> sink;
    {
      const MutexLock lock(mutex_);
      const auto known = sinks_.find(session);
      if (known == sinks_.end()) {
        return;
      }
      sink = std::move(known->second);
      sinks_.erase(known);
    }
    for (Running& running : sink->take_all()) {
      meters_.cancelled.add();
      running.served.cancelled = true;
      end(std::move(running));
    }
  }

  Status submit(SessionId session, inference::EngineRequest request) override {
    const auto sink = find_sink(session);
    if (sink == nullptr) {
      return engine_->submit(session, std::move(request));
    }
    meters_.requests.add();
    meters_.request_bytes.add(payload_bytes(request));
    meters_.inflight.add(1);
    const inference::RequestKey key = request.key;
    sink->add(key, begin(request));
    Status taken = engine_->submit(session, std::move(request));
    if (!taken) {
      count_refusal(taken.error().code());
      if (auto running = sink->take(key)) {
        running->served.error = taken.error().info().name;
        end(std::move(*running));
      }
    }
    return taken;
  }

  void cancel(SessionId session, inference::RequestKey key) override {
    engine_->cancel(session, key);
    const auto sink = find_sink(session);
    if (auto running = sink == nullptr ? std::nullopt : sink->take(key)) {
      meters_.cancelled.add();
      running->served.cancelled = true;
      end(std::move(*running));
    }
  }

  const Meters& meters() const { return meters_; }
  TimePoint now() const { return clock_.now(); }

  /// M1
  void end(Running running) {
    meters_.inflight.add(-1);
    running.served.took = clock_.now() - running.received;
    meters_.duration.observe(seconds(running.served.took));
    if (options_.on_served && running.served.context != nullptr) {
      options_.on_served(std::move(running.served));
    }
  }

 private:
  Running begin(const inference::EngineRequest& request) const {
    Running running;
    running.received = clock_.now();
    ServedRequest& served = running.served;
    served.prompt_tokens = static_cast<uint32_t>(request.tokens.size());
    served.phase = request.phase;
    served.attempt = request.key.attempt.value();
    const bool timed = request.sent_unix_us != 0;
    if (timed || request.context != nullptr) {
      served.received = clock_.wall_now();
    }
    if (timed) {
      const auto now_us =
          std::chrono::duration_cast<std::chrono::microseconds>(served.received.time_since_epoch());
      const int64_t took_us = now_us.count() - static_cast<int64_t>(request.sent_unix_us);
      meters_.transit.observe(static_cast<double>(std::max<int64_t>(took_us, 0)) * 1e-6);
    }
    if (options_.on_served && request.context != nullptr) {
      served.context = request.context;
      served.model = request.lora_name.empty() ? options_.model : request.lora_name;
    }
    return running;
  }

  void count_refusal(Code code) const {
    if (code == Code::kOverloaded) {
      meters_.refused.add();
    } else if (code == Code::kInvalidArgument || code == Code::kUnsupported) {
      meters_.invalid.add();
    }
  }

  std::shared_ptr<MeteredSink> find_sink(SessionId session) {
    const MutexLock lock(mutex_);
    const auto known = sinks_.find(session);
    return known == sinks_.end() ? nullptr : known->second;
  }

  /// What the engine says about itself, when somebody looks. A scrape may outlive the engine.
  void show_load(Metrics& metrics) {
    {
      const MutexLock lock(shown_->mutex);
      shown_->engine = engine_.get();
    }
    MetricLabels labels = options_.place;
    labels.emplace_back("model", options_.model);
    const auto show = [&](const char* name, const char* help, const MetricLabels& with, auto read) {
      metrics.gauge_callback(name, help, with, [shown = shown_, read] {
        const MutexLock lock(shown->mutex);
        return shown->engine == nullptr ? 0.0 : read(*shown->engine);
      });
    };
    show("dynamo_work_handler_queue_depth", "requests waiting in the engine", labels,
         [](const Engine& engine) { return static_cast<double>(engine.load().waiting); });
    show("dynamo_work_handler_pool_active_tasks", "requests running in the engine", labels,
         [](const Engine& engine) { return static_cast<double>(engine.load().running); });
    show("dynamo_work_handler_pool_capacity", "requests the engine runs at once", labels,
         [](const Engine& engine) {
           return static_cast<double>(engine.info().max_num_seqs) * engine.info().dp_size;
         });
    if (options_.queue_capacity > 0) {
      show("dynamo_work_handler_queue_capacity", "requests that may wait in the engine", labels,
           [capacity = options_.queue_capacity](const Engine&) {
             return static_cast<double>(capacity);
           });
    }
    if (engine_->info().dp_size == 1) {
      labels.emplace_back("dp_rank", "0");
    }
    show("dynamo_component_total_blocks", "KV blocks on the engine's device", labels,
         [](const Engine& engine) { return static_cast<double>(engine.load().kv_total_blocks); });
    show("dynamo_component_gpu_cache_usage_percent", "part of the KV blocks in use, 0 to 1", labels,
         [](const Engine& engine) {
           const LoadReport load = engine.load();
           return load.kv_total_blocks == 0 ? 0.0
                                            : static_cast<double>(load.kv_used_blocks) /
                                                  static_cast<double>(load.kv_total_blocks);
         });
    show("dynamo_component_kv_cache_hit_rate",
         "part of the prompts' tokens that were cached, since the start", labels,
         [](const Engine& engine) {
           const LoadReport load = engine.load();
           return load.prefix_query_tokens == 0 ? 0.0
                                                : static_cast<double>(load.prefix_hit_tokens) /
                                                      static_cast<double>(load.prefix_query_tokens);
         });
  }

  struct Shown {
    Mutex mutex;
    Engine* engine STATOR_GUARDED_BY(mutex) = nullptr;  // null: it has stopped
  };

  const MeterOptions options_;
  Clock& clock_;
  const Meters meters_;
  const std::shared_ptr<Shown> shown_ = std::make_shared<Shown>();  // with the metrics' callbacks
  Mutex mutex_;
  FlatMap<SessionId, std::shared_ptr<MeteredSink>> sinks_ STATOR_GUARDED_BY(mutex_);
  const std::unique_ptr<Engine> engine_;  // last: its thread uses the rest
};

void MeteredSink::look(const inference::StepOutput& output, std::vector<Running>& ended) {
  const Meters& meters = engine_.meters();
  const MutexLock lock(mutex_);
  const auto close = [&](auto known) STATOR_REQUIRES(mutex_) {
    ended.push_back(std::move(known->second));
    running_.erase(known);
  };
  for (const inference::Delta& delta : output.deltas) {
    const auto known = running_.find(delta.key);
    if (known == running_.end()) {
      continue;
    }
    Running& running = known->second;
    if (!std::exchange(running.answered, true)) {
      running.served.first_output = engine_.now() - running.received;
      running.served.cached_tokens = delta.cached_tokens;
      meters.first.observe(seconds(running.served.first_output));
      if (delta.queued_us > 0) {
        running.served.queued = std::chrono::microseconds(delta.queued_us);
        meters.wait.observe(seconds(running.served.queued));
      }
    }
    running.served.output_tokens += delta.token_count;
    if (delta.finish != inference::FinishReason::kNone) {
      running.served.finish = describe(delta.finish);
      close(known);
    }
  }
  for (const inference::Failure& failure : output.failures) {
    if (const auto known = running_.find(failure.key); known != running_.end()) {
      known->second.served.error = failure.error.info().name;
      meters.failed.add();
      close(known);
    }
  }
  for (const inference::Pooled& pooled : output.pooled) {
    if (const auto known = running_.find(pooled.key); known != running_.end()) {
      known->second.served.first_output = engine_.now() - known->second.received;
      meters.first.observe(seconds(known->second.served.first_output));
      close(known);
    }
  }
}

void MeteredSink::on_step(inference::StepOutput output) noexcept {
  static thread_local std::vector<Running> ended;
  engine_.meters().response_bytes.add(payload_bytes(output));
  look(output, ended);
  sink_.on_step(std::move(output));
  for (Running& running : ended) {
    engine_.end(std::move(running));
  }
  ended.clear();
}

}  // namespace

std::unique_ptr<Engine> make_metered_engine(std::unique_ptr<Engine> engine, MeterOptions options,
                                            Clock& clock, Metrics& metrics) {
  return std::make_unique<MeteredEngine>(std::move(engine), std::move(options), clock, metrics);
}

}  // namespace stator::engine
