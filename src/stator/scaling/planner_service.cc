// SPDX-License-Identifier: Apache-2.0
#include "stator/scaling/planner_service.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <utility>

#include "stator/core/log.h"
#include "stator/core/mutex.h"
#include "stator/io/file_descriptor.h"
#include "stator/net/thread.h"
#include "stator/planner/planner_core.h"
#include "stator/scaling/planner_metrics.h"
#include "stator/scaling/planner_view.h"

namespace stator::scaling {
namespace {

constexpr Duration kLook = std::chrono::milliseconds(100);  // at what the connector started

double seconds(TimePoint time) {
  return std::chrono::duration<double>(time.time_since_epoch()).count();
}

/// A file that grows until it is full.
class JournalFile {
 public:
  Status open(const std::string& path, uint64_t bytes_max) {
    file_ =
        io::FileDescriptor(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
    left_ = bytes_max;
    if (!file_.open()) {
      return Error(Code::kIo,
                   fmt::format("cannot write the journal '{}': {}", path, std::strerror(errno)));
    }
    return {};
  }
  void append(std::string_view line) {
    if (!file_.open()) {
      return;
    }
    if (line.size() > left_) {
      log::warn("planner", "the journal is full: nothing more is written");
      file_.reset();
      return;
    }
    left_ -= line.size();
    while (!line.empty()) {
      const ssize_t written = ::write(file_.get(), line.data(), line.size());
      if (written < 0 && errno != EINTR) {
        log::warn("planner", "the journal cannot be written", {{"error", std::strerror(errno)}});
        file_.reset();
        return;
      }
      line.remove_prefix(static_cast<size_t>(std::max<ssize_t>(0, written)));
    }
  }

 private:
  io::FileDescriptor file_;
  uint64_t left_ = 0;
};

/// S1  Only the thread looks, decides and acts; others read view_ under the mutex.
/// S2  The core sees a copy of what was learned that changes between ticks only, so that a journal,
///     which has it, replays bit-equal.
class Service final : public PlannerService {
 public:
  Service(ServiceConfig config, ServiceParts parts, const Clock& clock, Metrics& metrics)
      : config_(std::move(config)),
        parts_(std::move(parts)),
        clock_(clock),
        learner_(*parts_.timing),
        frozen_(*parts_.timing),
        board_(&learner_),
        observer_(config_.observer),
        builder_(config_.draft_tokens),
        metrics_(metrics, config_.planner),
        targets_(parts_.initial) {
    view_.config = config_.planner;
    view_.connector = parts_.connector->name();
    view_.advisory = config_.advisory;
    least_ = {.split = config_.planner.split,
              .workers = config_.planner.min_workers,
              .prefill = planner::pool_of(config_.planner, true).min_workers};
  }
  ~Service() override { stop(); }

  Status open() {
    STATOR_TRY(core_, planner::PlannerCore::create(config_.planner, frozen_));
    if (!config_.journal.empty()) {
      STATOR_CHECK(journal_.open(config_.journal, config_.journal_bytes_max), "journal");
      journal_.append(fmt::format("{{\"policy\":\"{}\",\"timing\":\"{}\",\"spend_limit\":{}}}\n",
                                  planner::name_of(config_.planner), config_.timing,
                                  config_.planner.spend_limit));
    }
    if (!config_.reports.folder.empty()) {
      STATOR_TRY(reports_, PlannerReports::open(config_.reports), "reports");
    }
    thread_ = net::Thread("planner", [this] { run(); });
    return {};
  }

  void stop() override {
    {
      const MutexLock lock(mutex_);
      stopping_ = true;
      wake_.notify_all();
    }
    thread_.join();
  }
  PassBoard& board() override { return board_; }

  std::string render_json() const override { return scaling::render_json(view()); }
  std::string render_html() const override { return scaling::render_html(view()); }
  LeastWorkers least_workers() const override {
    const MutexLock lock(mutex_);
    return least_;
  }
  Status set_least_workers(LeastWorkers least) override {
    const MutexLock lock(mutex_);
    planner::PlannerConfig changed = config_.planner;
    changed.min_workers = least.workers;
    changed.prefill_min_workers = least.split ? least.prefill : 0;
    STATOR_CHECK(planner::validate(changed));
    least_ = least;
    view_.config.min_workers = least.workers;
    return {};
  }

 private:
  PlannerView view() const {
    const MutexLock lock(mutex_);
    return view_;
  }

  void run() {
    double next_s = seconds(clock_.now());
    while (true) {
      parts_.connector->poll();
      const double now_s = seconds(clock_.now());
      if (now_s >= next_s) {
        next_s = tick(now_s);
      }
      MutexLock lock(mutex_);
      if (stopping_) {
        break;
      }
      wake_.wait_for(lock, kLook);
    }
    if (reports_) {
      reports_->close(view());
    }
    // On this thread: children of the connector are told when the thread that made them ends.
    parts_.connector->stop();
  }

  Observation look(double now_s) {
    Observation passes = board_.look(now_s);
    if (parts_.sources.empty()) {
      if (passes.loads.empty() && !passes.window) {
        passes.broken = "no forward pass has come yet";
      }
      return passes;
    }
    observer_.begin();
    for (const auto& source : parts_.sources) {
      source->look(observer_);
    }
    Observation seen = observer_.end(now_s);
    if (!passes.loads.empty()) {
      seen.loads = std::move(passes.loads);
    }
    return seen;
  }

  /// What the connector and discovery know, over what frontends see.
  void count(Observation& seen) {
    if (parts_.count_fleet) {
      if (const auto fleet = parts_.count_fleet()) {
        seen.prefill_ready = fleet->prefill_ready;
        seen.decode_ready = fleet->decode_ready;
        std::erase_if(seen.loads, [&](const WorkerLoad& load) {
          return !fleet->workers.contains(load.worker);
        });
        if (parts_.wants_passes) {
          board_.keep_only(fleet->workers);
        }
      }
    }
    const auto counts = parts_.connector->counts();
    if (!counts) {
      unstable_ = counts.error().message();
      return;
    }
    unstable_ = counts->unstable;
    seen.prefill_ready = counts->prefill_ready ? counts->prefill_ready : seen.prefill_ready;
    seen.decode_ready = counts->decode_ready ? counts->decode_ready : seen.decode_ready;
    targets_.prefill = counts->wanted.prefill ? counts->wanted.prefill : targets_.prefill;
    targets_.decode = counts->wanted.decode ? counts->wanted.decode : targets_.decode;
  }

  /// Where no engine tells its passes: what clients waited for is a pass, nearly.
  void learn_from_clients(const planner::Inputs& inputs) {
    if (!config_.learn_from_clients || board_.passes() > 0 || !inputs.traffic ||
        inputs.decode.engines.empty()) {
      return;
    }
    const Observed& o = builder_.observed();
    double running = 0, context = 0, queued = 0;
    for (const planner::EngineLoad& load : inputs.decode.engines) {
      running += load.running;
      context += load.decode_kv_tokens;
      queued += load.queued_prefill_tokens;
    }
    const auto engines = static_cast<double>(inputs.decode.engines.size());
    const double fresh = o.input_tokens * (1 - o.kv_hit_rate);
    perf::PassShape prompt;
    prompt.add_prompt(0, static_cast<uint64_t>(std::max(1.0, fresh)));
    const double prompts_share =
        std::min(0.9, o.requests_per_s / engines * learner_.prefill_ms(prompt) * 1e-3);
    perf::PassShape decode;
    decode.decode_requests = static_cast<uint32_t>(std::lround(running / engines));
    decode.context_tokens = static_cast<uint64_t>(context / engines);
    learner_.learn(decode, o.itl_ms * (1 - prompts_share));
    if (running / engines < 1 && queued == 0 && inputs.decode.queued == 0) {
      learner_.learn(prompt, o.ttft_ms);
    }
  }

  double tick(double now_s) {
    Observation seen = look(now_s);
    count(seen);
    planner::Inputs inputs = builder_.build(now_s, seen, targets_.prefill, targets_.decode);
    inputs.stable = unstable_.empty();
    learn_from_clients(inputs);
    const perf::CalibrationState learned = learner_.state();
    inputs.calibration.assign(learned.theta.begin(), learned.theta.end());
    inputs.calibration.push_back(static_cast<double>(learned.passes));
    const LeastWorkers least = least_workers();
    if (least.workers != config_.planner.min_workers) {
      inputs.min_workers = least.workers;
    }
    if (least.split && least.prefill != planner::pool_of(config_.planner, true).min_workers) {
      inputs.prefill_min_workers = least.prefill;
    }
    frozen_.set(learned);
    const planner::Decision decision = decide(inputs);
    journal_.append(planner::journal_line(inputs, decision));
    const bool executed = execute(inputs, decision);
    const double took = seconds(clock_.now()) - now_s;
    metrics_.update(inputs, decision, builder_.observed());
    metrics_.count_tick(took);
    publish(inputs, decision, executed, took);
    if (reports_) {
      reports_->add(view(), planner::journal_line(inputs, decision));
    }
    return now_s + std::max(0.01, decision.next_s - inputs.now_s);
  }

  /// Plugins are asked before the policy, for what they expect, and after it; their answers become
  /// part of the inputs.
  planner::Decision decide(planner::Inputs& inputs) {
    if (parts_.plugins == nullptr) {
      return core_->tick(inputs);
    }
    PluginContext context{.inputs = inputs, .tick = ++asked_};
    const planner::Forecast forecast = parts_.plugins->predict(context);
    if (forecast != planner::Forecast()) {
      inputs.forecast = forecast;
    }
    planner::Decision decision = core_->propose(inputs);
    if (inputs.traffic) {
      context.forecast = forecast;
      fill(context.forecast,
           {.requests = decision.predicted_requests_per_s * inputs.traffic->duration_s,
            .input_tokens = inputs.traffic->input_tokens,
            .output_tokens = inputs.traffic->output_tokens,
            .kv_hit_rate = inputs.traffic->kv_hit_rate,
            .accept_length = inputs.traffic->accept_length});
    }
    context.proposal = &decision;
    inputs.opinions = parts_.plugins->opinions(context);
    core_->finish(inputs, decision);
    return decision;
  }

  bool execute(const planner::Inputs& inputs, const planner::Decision& decision) {
    PoolTargets targets;
    if (decision.workers && *decision.workers != inputs.decode.expected) {
      targets.decode = decision.workers;
    }
    if (decision.prefill_workers && *decision.prefill_workers != inputs.prefill.expected &&
        (inputs.prefill.expected > 0 || inputs.prefill.ready > 0)) {
      targets.prefill = decision.prefill_workers;
    }
    problem_.clear();
    if (!targets.decode && !targets.prefill) {
      return false;
    }
    log::info("planner", config_.advisory ? "would change" : "changes",
              {{"decision", decision.text}});
    if (config_.advisory) {
      return false;
    }
    if (!unstable_.empty()) {
      problem_ = "not carried out: " + unstable_;
      log::warn("planner", problem_);
      return false;
    }
    if (const Status done = parts_.connector->set(targets, decision.reason); !done) {
      problem_ = "not carried out: " + done.error().message();
      metrics_.count_failure();
      log::warn("planner", problem_);
      return false;
    }
    targets_.decode = targets.decode ? targets.decode : targets_.decode;
    targets_.prefill = targets.prefill ? targets.prefill : targets_.prefill;
    metrics_.count_change();
    return true;
  }

  void publish(const planner::Inputs& inputs, const planner::Decision& decision, bool executed,
               double took) {
    const double unix_s =
        std::chrono::duration<double>(clock_.wall_now().time_since_epoch()).count();
    const perf::CalibrationError error = learner_.error();
    const auto gpus = [&](const planner::PoolState& pool) {
      return std::max(pool.ready, pool.expected) + pool.draining;
    };
    const MutexLock lock(mutex_);
    if (last_s_ >= 0) {
      view_.gpu_hours += (inputs.now_s - last_s_) / 3600 * config_.planner.gpus_per_worker *
                         (gpus(inputs.decode) + gpus(inputs.prefill));
    }
    last_s_ = inputs.now_s;
    ++view_.ticks;
    view_.changes += executed ? 1 : 0;
    view_.failures += problem_.empty() ? 0 : 1;
    view_.skipped += decision.workers ? 0 : 1;
    view_.tick_seconds = took;
    view_.inputs = inputs;
    view_.decision = decision;
    view_.decided_unix_s = unix_s;
    view_.executed = executed;
    view_.problem = problem_;
    view_.observed = builder_.observed();
    view_.calibration = error;
    view_.passes = board_.passes();
    const Observed& o = view_.observed;
    view_.history.push_back({.unix_s = unix_s,
                             .requests_per_s = o.requests_per_s,
                             .predicted_per_s = decision.predicted_requests_per_s,
                             .ready = inputs.decode.ready,
                             .wanted = decision.workers.value_or(inputs.decode.expected),
                             .ttft_ms = o.ttft_ms,
                             .expected_ttft_ms = decision.estimated_ttft_ms,
                             .itl_ms = o.itl_ms,
                             .expected_itl_ms = decision.estimated_itl_ms,
                             .reason = decision.reason});
    if (view_.history.size() > kHistoryMax) {
      view_.history.pop_front();
    }
    metrics_.set("gpu_hours", "of all workers since the planner started", view_.gpu_hours);
    metrics_.set("calibration_error_percent", "mean error of the step model before each pass",
                 error.calibrated_percent);
    metrics_.set("calibration_base_error_percent", "the same of the model as it was given",
                 error.base_percent);
    metrics_.set("calibration_passes", "that the step model learned from",
                 static_cast<double>(error.passes));
  }

  const ServiceConfig config_;
  ServiceParts parts_;
  const Clock& clock_;
  perf::CalibratedTiming learner_;
  perf::CalibratedTiming frozen_;  // what the core sees
  PassBoard board_;
  PageObserver observer_;
  InputBuilder builder_;
  PlannerMetrics metrics_;
  std::unique_ptr<planner::PlannerCore> core_;
  JournalFile journal_;
  std::optional<PlannerReports> reports_;
  PoolTargets targets_;
  std::string unstable_, problem_;
  double last_s_ = -1;
  uint64_t asked_ = 0;  // ticks in which plugins were asked
  mutable Mutex mutex_;
  std::condition_variable_any wake_;
  bool stopping_ STATOR_GUARDED_BY(mutex_) = false;
  LeastWorkers least_ STATOR_GUARDED_BY(mutex_);
  PlannerView view_ STATOR_GUARDED_BY(mutex_);
  net::Thread thread_;
};

}  // namespace

Result<std::unique_ptr<PlannerService>> PlannerService::start(ServiceConfig config,
                                                              ServiceParts parts,
                                                              const Clock& clock,
                                                              Metrics& metrics) {
  auto service = std::make_unique<Service>(std::move(config), std::move(parts), clock, metrics);
  STATOR_CHECK(service->open());
  return service;
}

}  // namespace stator::scaling
