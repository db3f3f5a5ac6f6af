// SPDX-License-Identifier: Apache-2.0
#include "stator/frontend/request_dispatch.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "stator/router/prefill_router_service.h"

namespace stator::frontend {
namespace {

using Otherwise = router::PrefillRouterService::Otherwise;

/// The class of requests that the client wishes (x-dynamo-meta-policy-class).
std::string_view policy_class_of(const GenerationPlan& plan) {
  if (plan.context != nullptr) {
    for (const auto& [name, value] : plan.context->metadata) {
      if (name == "policy-class") {
        return value;
      }
    }
  }
  return {};
}

request::FleetShape shape_of(const ServedModel& model) {
  return {.some_split = model.split_workers.load(std::memory_order_relaxed) > 0,
          .some_whole = model.whole_workers.load(std::memory_order_relaxed) > 0,
          .has_prefill = model.prefill->has_workers()};
}

/// In a fleet with prefill workers the one that a request names has to be among
/// them.
Status check_prefill_pin(const GenerationPlan& plan, const WorkerLines& lines) {
  const auto& pinned = plan.routing.prefill_pinned;
  if (!pinned || !plan.model->prefill->has_workers()) {
    return {};
  }
  const discovery::InstanceRecord* record = lines.find_record(*pinned);
  if (record != nullptr && record->model.name == plan.model->name &&
      record->model.handoff.role == inference::WorkerRole::kPrefill) {
    return {};
  }
  return Error(Code::kNotFound, fmt::format("prefill worker {} does not serve model '{}'",
                                            pinned->value(), plan.model->name));
}

router::QueueHints hints_of(const Generation& generation, const request::PromptView& prompt) {
  const GenerationPlan& plan = generation.plan();
  const TimePoint received = generation.received();
  router::QueueHints hints{
      .arrival = received,
      .strict_priority = plan.routing.strict_priority,
      .priority_jump = static_cast<double>(plan.priority) + plan.routing.latency_sensitivity,
      .tenant = plan.routing.tenant,
      .tenant_weight = plan.routing.tenant_weight,
      .policy_class = policy_class_of(plan),
      .held_bytes = prompt.tokens() * sizeof(TokenId)};
  if (plan.timeout) {
    hints.deadline = received + *plan.timeout;
  }
  return hints;
}

}  // namespace

/// What routers are asked about a choice, and what that looks at.
struct RequestDispatch::Question {
  Question(const ChoiceRef& ref, std::string id)
      : prompt(ref.active->generation.view_prompt(ref.run())), receipt_id(std::move(id)) {
    const ChoiceRun& run = ref.run();
    const GenerationPlan& plan = ref.active->generation.plan();
    const RoutingWish& wish = plan.routing;
    request = {.request_id = receipt_id,
               .model = plan.model->name,
               .prompt_tokens = prompt.tokens(),
               .block_size = plan.model->block_size,
               .sequences = prompt.useful(),
               .tracked = prompt.sequences(),
               .constraints = {.pinned = wish.pinned,
                               .pinned_rank = wish.pinned_rank,
                               .allowed = wish.allowed,
                               .excluded = run.journal().avoided(),
                               .required_taints = wish.required_taints,
                               .preferred_taints = wish.preferred_taints},
               .prefill_pinned = wish.prefill_pinned,
               .prefill_pinned_rank = wish.prefill_rank,
               .override = wish.override,
               .expected_output_tokens = wish.expected_output_tokens,
               // What was begun is worth more than what was not.
               .tier = run.journal().generated() > 0
                           ? router::BrownOut::kTierMax
                           : router::tier_of(wish.strict_priority, plan.priority),
               .session = wish.session,
               .media_json = plan.media_json};
    if (run.prompt().terms()) {
      request.constraints.required_taints = run.prompt().terms()->required_taints;
      request.constraints.preferred_taints = run.prompt().terms()->preferred_taints;
      request.override = run.prompt().terms()->override;
    } else if (run.prompt().whole_only()) {
      taints = wish.required_taints;
      taints.emplace_back(router::kRunsWholeTaint);
      request.constraints.required_taints = taints;
    }
  }
  Question(const Question&) = delete;
  Question& operator=(const Question&) = delete;

  const request::PromptView prompt;
  const std::string receipt_id;
  std::vector<std::string> taints;
  router::RouteRequest request;
};

std::move_only_function<void(Result<router::Decision>)> RequestDispatch::waiter(
    const ChoiceRun& run, RoutedInbox::For what) const {
  return [inbox = inbox_, id = run.facts().id, attempt = run.journal().attempt(),
          what](Result<router::Decision> decision) {
    inbox->put({id, attempt, std::move(decision), what});
  };
}

void RequestDispatch::route(ChoiceRef ref, request::Actions& out) {
  const GenerationPlan& plan = ref.active->generation.plan();
  if (Status pin = check_prefill_pin(plan, environment_.lines); !pin) {
    ref.run().on_no_route(pin.error(), environment_.recovery, now(), out);
    return;
  }
  ref.run().route(shape_of(*plan.model), environment_.recovery, now(), out);
}

void RequestDispatch::plan_prompt(ChoiceRef ref, request::Actions& out) {
  ChoiceRun& run = ref.run();
  const GenerationPlan& plan = ref.active->generation.plan();
  const ServedModel& model = *plan.model;
  const request::FleetShape fleet = shape_of(model);
  const Question asked(ref, receipt_id_of(plan, run) + "-prefill");
  auto planned = model.prefill->plan(
      asked.request, fleet.some_whole ? Otherwise::kRunWhole : Otherwise::kFail,
      hints_of(ref.active->generation, asked.prompt), waiter(run, RoutedInbox::For::kPrompt));
  if (!planned) {
    run.on_no_route(planned.error(), environment_.recovery, now(), out);
  } else if (!planned->ticket.empty()) {
    run.on_waiting(std::move(planned->ticket));
  } else if (planned->split) {
    take_split(ref, std::move(*planned->split), out);
  } else {
    run.on_split(std::nullopt, fleet, now(), out);
  }
}

void RequestDispatch::take_split(ChoiceRef ref, router::PrefillRouterService::Split split,
                                 request::Actions& out) {
  WorkerLines& lines = environment_.lines;
  const WorkerKey worker = split.prefill.worker;
  const discovery::InstanceRecord* record = lines.find_record(worker.worker);
  if (record == nullptr || lines.find_session(worker.worker) == nullptr) {
    ref.run().look_again({.worker = worker}, out);
    return;
  }
  const inference::HandoffAbility& ability = record->model.handoff;
  ref.run().on_split(
      ChoiceRun::Split{.room = router::make_bootstrap_room(environment_.random, worker.dp_rank, 1),
                       .giver = {.worker = worker,
                                 .life = record->incarnation,
                                 .kind = ability.kind,
                                 .meeting_point = ability.meeting_point},
                       .terms = std::move(split.terms),
                       .lease = std::move(split.prefill.lease)},
      shape_of(*ref.active->generation.plan().model), now(), out);
}

void RequestDispatch::plan_answer(ChoiceRef ref, request::Actions& out) {
  ChoiceRun& run = ref.run();
  const GenerationPlan& plan = ref.active->generation.plan();
  const Question asked(ref, receipt_id_of(plan, run));
  auto routed = plan.model->router->route_or_wait(asked.request,
                                                  hints_of(ref.active->generation, asked.prompt),
                                                  waiter(run, RoutedInbox::For::kAnswer));
  if (!routed) {
    run.on_no_route(routed.error(), environment_.recovery, now(), out);
  } else if (routed->decision) {
    take_answer(ref, std::move(*routed->decision), out);
  } else {
    run.on_waiting(std::move(routed->ticket));
    environment_.reporter.step(*ref.active, run, telemetry::Step::kQueued);
  }
}

void RequestDispatch::take_answer(ChoiceRef ref, router::Decision decision, request::Actions& out) {
  ChoiceRun& run = ref.run();
  WorkerLines& lines = environment_.lines;
  const ServedModel& model = *ref.active->generation.plan().model;
  request::Reach reach{.reachable = lines.find_session(decision.worker.worker) != nullptr,
                       .all_whole = model.split_workers.load(std::memory_order_relaxed) == 0,
                       .queue_depth = model.router->waiting()};
  if (run.prompt().handover().active()) {
    const WorkerId giver = run.prompt().handover().giver().worker.worker;
    const discovery::InstanceRecord* record =
        lines.find_session(giver) == nullptr ? nullptr : lines.find_record(giver);
    if (record != nullptr) {
      reach.giver_lives = record->incarnation;
    }
  }
  run.on_routed(std::move(decision), reach, now(), out);
}

void RequestDispatch::on_routed(ChoiceRef ref, RoutedInbox::Arrival arrival,
                                request::Actions& out) {
  ChoiceRun& run = ref.run();
  if (!run.take_ticket(arrival.attempt)) {
    return;
  }
  const bool is_prompt = arrival.what == RoutedInbox::For::kPrompt;
  if (is_prompt && run.prompt().handover().active()) {
    return;
  }
  const ServedModel& model = *ref.active->generation.plan().model;
  if (!arrival.decision) {
    if (is_prompt && model.whole_workers.load(std::memory_order_relaxed) > 0) {
      run.look_again({.prefill = true}, out);
    } else {
      run.on_no_route(arrival.decision.error(), environment_.recovery, now(), out);
    }
    return;
  }
  if (!is_prompt) {
    take_answer(ref, std::move(*arrival.decision), out);
    return;
  }
  const Question asked(ref, {});
  const WorkerKey worker = arrival.decision->worker;
  if (auto terms = model.prefill->find_terms(asked.request, worker)) {
    take_split(ref, {std::move(*arrival.decision), std::move(*terms)}, out);
  } else {
    run.look_again({}, out);
  }
}

/// A request for the prompt alone.
void RequestDispatch::ask_prefill(ChoiceRef ref, RequestId id) {
  ActiveRequest& active = *ref.active;
  ChoiceRun& run = ref.run();
  const WorkerKey worker = run.prompt().handover().giver().worker;
  inference::EngineRequest request = active.generation.make_engine_request(run, now());
  request.key = {id, Attempt()};
  request.dp_rank = worker.dp_rank;
  request.phase = inference::Phase::kPrefill;
  request.handoff = run.prompt().take_for_prompt();
  request.stop.max_tokens = request.generated + 1;
  request.stop.min_tokens = std::min(request.stop.min_tokens, request.stop.max_tokens);
  environment_.reporter.add_trace(active, run, request);
  environment_.reporter.step(active, run, telemetry::Step::kPrefill, worker);
  run.prompt().on_asked(id, now());
  environment_.lines.find_session(worker.worker)->submit(std::move(request));
}

void RequestDispatch::submit(ChoiceRef ref) {
  ActiveRequest& active = *ref.active;
  ChoiceRun& run = ref.run();
  inference::EngineRequest request =
      active.generation.make_engine_request(run, run.facts().submitted);
  if (auto handoff = run.prompt().take_for_answer()) {
    request.phase = inference::Phase::kDecode;
    request.handoff = std::move(*handoff);
  }
  RequestReporter& reporter = environment_.reporter;
  const WorkerKey worker = run.facts().worker;
  reporter.step(active, run, telemetry::Step::kRouted, worker, run.facts().expected_cached_tokens);
  reporter.add_trace(active, run, request);
  reporter.step(active, run, telemetry::Step::kSubmitted, worker);
  environment_.lines.find_session(worker.worker)->submit(std::move(request));
}

}  // namespace stator::frontend
