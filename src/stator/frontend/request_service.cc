// SPDX-License-Identifier: Apache-2.0
#include "stator/frontend/request_service.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "stator/core/assert.h"
#include "stator/core/log.h"
#include "stator/frontend/quarantine_check.h"

namespace stator::frontend {
namespace {

using request::Action;
using request::Actions;

request::RecoveryLimits limits_of(const FrontendConfig& config) {
  return {.poison_workers = config.poison_workers,
          .migration_wait = config.migration_wait,
          .accept_timeout = config.accept_timeout,
          .stream_idle_timeout = config.stream_idle_timeout,
          .stall_timeout = config.stall_timeout};
}

}  // namespace

RequestService::RequestService(const Environment& environment)
    : environment_(environment),
      reporter_({.shard = environment.shard,
                 .metrics = environment.metrics,
                 .meters = environment.meters,
                 .catalog = environment.catalog,
                 .findings = environment.fleet.findings(),
                 .gauges = environment.gauges}),
      lines_(environment.shard,
             {.config = environment.config,
              .catalog = environment.catalog,
              .fleet = environment.fleet,
              .metrics = environment.metrics,
              .gauges = environment.gauges},
             environment.random),
      recovery_(limits_of(environment.config), environment.random),
      routed_(std::make_shared<RoutedInbox>(environment.shard, *this)),
      dispatch_({.shard = environment.shard,
                 .lines = lines_,
                 .reporter = reporter_,
                 .recovery = recovery_,
                 .random = environment.random},
                routed_),
      bodies_(environment.shard, environment.compute, environment.answers, *this),
      kept_(environment.journals == nullptr
                ? nullptr
                : std::make_unique<KeptStreams>(*environment.journals, environment.shard,
                                                environment.metrics, *this)),
      events_({.shard = environment.shard,
               .metrics = environment.metrics,
               .lines = lines_,
               .reporter = reporter_,
               .recovery = recovery_,
               .names = names_,
               .requests = *this}) {}

void RequestService::connect(session::WorkerPoolOptions options, discovery::Discovery& discovery,
                             session::Connector& connector, Metrics& metrics) {
  lines_.start(
      std::move(options),
      session::WorkerPool::Wiring{discovery, connector, environment_.shard, lines_, events_},
      events_, metrics);
}

RequestService::~RequestService() {
  STATOR_ASSERT(active_.empty(), "F1: stop() ends every request before the service goes");
}

void RequestService::stop(const Error& error) {
  routed_->close();
  while (!active_.empty()) {
    fail(*active_.begin()->second, error.clone());
  }
  kept_.reset();
}

void RequestService::run(net::HttpExchange& exchange, GenerationPlan&& plan,
                         const PrepareJob& job) {
  const FrontendConfig& config = environment_.config;
  FrontendMetrics& metrics = environment_.metrics;
  plan.migration = {.migrations_max = config.migration_limit,
                    .refusals_max = config.refusals_max,
                    .tokens_max = config.migration_max_seq_len};
  plan.texts = &environment_.texts;
  if (Status allowed = check_quarantine(plan, environment_.fleet, environment_.shard.now());
      !allowed) {
    metrics.quarantined.add();
    const std::string_view type = FrontendMetrics::error_type(allowed.error().code());
    metrics.refused(plan.answer.model, plan.answer.label(), plan.answer.stream, type);
    respond_error(exchange, std::move(allowed.error()), plan.answer.error_style, config.retry_after,
                  answer_headers(plan.answer));
    return;
  }
  std::optional<StreamCopy> copy;
  auto gate = kept_ == nullptr ? nullptr : kept_->open(exchange, plan, job, copy);
  if (gate != nullptr && plan.thinking) {
    plan.ignore_thinking_budget();  // a copy of the journal has what workers
                                    // wrote, nothing else
  }
  net::HttpExchange& out = gate == nullptr ? exchange : *gate;
  const RequestSeries& series =
      metrics.series(plan.answer.model, plan.answer.label(), plan.answer.stream);
  auto owned = std::make_unique<ActiveRequest>(
      *this, std::move(gate),
      ActiveRequest::Wanted{std::move(plan), out, job.received, environment_.answers}, series);
  ActiveRequest& active = *owned;
  active_.emplace(&active, std::move(owned));
  recovery_.set_running(active_.size());
  exchange.set_observer(&active);
  active.notes = exchange.request().notes();
  reporter_.begun(active);
  for (ChoiceRun& choice : active.generation.choices()) {
    choice.name(lines_.next_request());
    names_.emplace(choice.facts().id, ChoiceRef{&active, choice.facts().index});
  }
  if (copy) {
    kept_->begin(active, *copy, job);
  }
  if (const auto timeout = active.generation.plan().timeout) {
    const Duration left = active.generation.received() + *timeout - environment_.shard.now();
    active.deadline = environment_.shard.after(std::max(left, Duration::zero()), [this, &active] {
      fail(active,
           Error(Code::kDeadline, "the request took longer than x-request-timeout-ms allows"));
    });
  }
  if (job.resumed != nullptr) {
    if (Status replayed = kept_->replay(active, job.resumed->journal); !replayed) {
      fail(active, std::move(replayed.error()));
      return;
    }
  }
  start(active);
}

/// Sends every choice that has not ended to a worker: new ones, and those whose
/// frontend is lost.
void RequestService::start(ActiveRequest& active) {
  if (active.run().on_choice_done()) {
    complete(active);
    return;
  }
  for (uint32_t i = 0; i < active.generation.choices().size(); ++i) {
    ChoiceRun& choice = active.generation.choices()[i];
    if (choice.facts().closed) {
      names_.erase(choice.facts().id);
      continue;
    }
    Actions actions;
    std::optional<Error> lost;
    if (choice.journal().generated() > 0) {
      lost.emplace(Code::kUnavailable, "the frontend of this stream was lost, retry");
    }
    choice.start(std::move(lost), recovery_, environment_.shard.now(), actions);
    perform({&active, i}, actions);
    if (!active_.contains(&active)) {
      return;
    }
  }
}

/// Carries out what a choice asks for, and what comes of that.
void RequestService::perform(ChoiceRef ref, Actions& actions) {
  for (size_t i = 0; i < actions.size(); ++i) {
    Action action = std::move(actions[i]);  // the list may grow
    if (!carry_out(ref, action, actions)) {
      return;
    }
  }
}

/// False: the request is over.
bool RequestService::carry_out(ChoiceRef ref, Action& action, Actions& out) {
  ActiveRequest& active = *ref.active;
  ChoiceRun& run = ref.run();
  const TimePoint now = environment_.shard.now();
  switch (action.kind) {
    case Action::Kind::kRoute:
      dispatch_.route(ref, out);
      break;
    case Action::Kind::kPlanPrompt:
      dispatch_.plan_prompt(ref, out);
      break;
    case Action::Kind::kPlanAnswer:
      dispatch_.plan_answer(ref, out);
      break;
    case Action::Kind::kAskPrefill: {
      const RequestId id = lines_.next_request();
      names_.emplace(id, ChoiceRef{&active, ref.index, true});
      dispatch_.ask_prefill(ref, id);
      break;
    }
    case Action::Kind::kSubmit:
      dispatch_.submit(ref);
      break;
    case Action::Kind::kTellWorker:
      out.add({.kind = Action::Kind::kFinish, .finish = inference::FinishReason::kStop});
      break;
    case Action::Kind::kDropPrompt:
      names_.erase(action.key.request);
      [[fallthrough]];
    case Action::Kind::kCancel:
      lines_.cancel(action.worker.worker, action.key, action.reason);
      break;
    case Action::Kind::kPark:
      active.seats[ref.index].retry = environment_.shard.after(action.wait, [this, ref, &run] {
        Actions actions;
        run.on_retry_due(recovery_, environment_.shard.now(), actions);
        perform(ref, actions);
      });
      break;
    case Action::Kind::kEndThinking:
      run.on_thought(active.generation.end_thinking(run, now), recovery_, now, out);
      break;
    case Action::Kind::kFinish:
      active.generation.finish_choice(run, action.finish, now);
      run.on_finished(now, out);
      break;
    case Action::Kind::kDone:
      names_.erase(run.facts().id);
      reporter_.choice_over(active, ref.index);
      return !active.run().on_choice_done() || complete(active);
    case Action::Kind::kFail:
      fail(active, std::move(*action.error));
      return false;
    case Action::Kind::kReport:
      lines_.report_outcome(action.worker.worker, action.outcome);
      break;
    case Action::Kind::kCount:
      if (action.event == request::Event::kPoisoned) {
        quarantine(active.generation.plan(), run.facts().prompt, environment_.fleet, now);
      }
      [[fallthrough]];
    default:
      reporter_.report(active, run, action);
  }
  return true;
}

void RequestService::on_routed(RoutedInbox::Arrival arrival) {
  const auto known = names_.find(arrival.choice);
  if (known != names_.end()) {
    Actions actions;
    const ChoiceRef ref = known->second;
    dispatch_.on_routed(ref, std::move(arrival), actions);
    perform(ref, actions);
  }
}

void RequestService::end_step() {
  if (kept_ != nullptr) {
    kept_->flush();
  }
  shed_answers();
}

/// True: the request goes on, because its body or its copy is not complete yet.
bool RequestService::complete(ActiveRequest& active) {
  auto body = bodies_.take(active);
  if (!body) {
    fail(active, std::move(body.error()));
    return false;
  }
  if (*body == AnswerBodies::Taken::kBody) {
    active.run().on_writing();
    return true;
  }
  active.generation.finish(environment_.shard.now());
  const bool complete = active.gate == nullptr || active.gate->done();
  if (!active.run().on_sent(complete ? request::RequestRun::Copy::kComplete
                                     : request::RequestRun::Copy::kUnderWay)) {
    return true;
  }
  release(active, "");
  return false;
}

void RequestService::on_body(ActiveRequest& active, std::string body) {
  if (active.run().on_written()) {
    active.generation.send_body(std::move(body));
    release(active, "");
  }
}

void RequestService::on_copied(ActiveRequest& active) {
  if (active.run().on_copied()) {
    release(active, "");
  }
}

void RequestService::on_client_gone(ActiveRequest& active) {
  environment_.metrics.disconnected_clients.add();
  release(active, "cancelled");
}

void RequestService::fail(ActiveRequest& active, Error error) {
  if (active.gate != nullptr) {
    active.gate->give_up();
    if (active.gate->done()) {
      release(active, "");  // only its copy was not complete
      return;
    }
  }
  const std::string_view type = FrontendMetrics::error_type(error.code());
  if (error.info().log_level >= LogLevel::kError) {
    log::error("frontend", error.message(), {{"request_id", active.answer().request_id}});
  }
  active.generation.fail(std::move(error));
  release(active, type);
}

void RequestService::release(ActiveRequest& active, std::string_view error_type) {
  Actions actions;
  active.run().stop(
      error_type == "cancelled" ? MigrationOutcome::kCancelled : MigrationOutcome::kFailure,
      environment_.shard.now(), actions);
  perform({&active, 0}, actions);
  for (const ChoiceRun& choice : active.generation.choices()) {
    names_.erase(choice.facts().id);
  }
  reporter_.ended(active, error_type);
  const GenerationPlan& plan = active.generation.plan();
  if (plan.context != nullptr && plan.context->session_final && !plan.routing.session.empty()) {
    plan.model->router->forget_session(plan.routing.session);
  }
  if (kept_ != nullptr) {
    kept_->forget(active);
  }
  bodies_.forget(active);
  active_.erase(&active);
  recovery_.set_running(active_.size());
}

void RequestService::shed_answers() {
  if (bodies_.over_budget()) {
    std::vector<ActiveRequest*> running;
    for (const auto& [active, owned] : active_) {
      running.push_back(active);
    }
    for (auto& [active, error] : bodies_.choose_to_shed(running)) {
      fail(*active, std::move(error));
    }
  }
}

void RequestService::sweep(TimePoint now) {
  bodies_.sweep();
  shed_answers();
  events_.lose_stalled(now);
  lines_.probe(now);
  reporter_.log_moves(now);
  if (kept_ != nullptr) {
    kept_->renew(now);
  }
  const FrontendConfig& config = environment_.config;
  std::vector<ActiveRequest*> stuck;
  for (const auto& [active, owned] : active_) {
    const Duration quiet = now - active->run().last_sign(active->generation.last_activity(), now);
    if (config.stream_idle_timeout > Duration::zero() && quiet >= config.stream_idle_timeout) {
      stuck.push_back(active);
    } else if (config.keep_alive_interval > Duration::zero()) {
      active->generation.keep_alive(now, config.keep_alive_interval);
    }
  }
  for (ActiveRequest* active : stuck) {
    fail(*active, Error(Code::kDeadline,
                        "the worker produced no token within "
                        "frontend.stream_idle_timeout"));
  }
}

}  // namespace stator::frontend
