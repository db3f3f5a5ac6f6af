// SPDX-License-Identifier: Apache-2.0
// The part of ShardService that deals with prompts that one worker computes and another one goes on
// from. What happens next is decided by HandoffCourse and PrefillRouterService; this carries it
// out.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "stator/frontend/shard_service.h"
#include "stator/router/prefill_router_service.h"

namespace stator::frontend {
namespace {

using continuity::Loss;
using Step = HandoffCourse::Step;
using Otherwise = router::PrefillRouterService::Otherwise;

// As for the first token of an answer: a long prompt takes its time.
constexpr int kPromptPatience = 4;

/// What the prompt's worker is told when the answer's is found later.
engine::Handoff first_handoff(const HandoffCourse& course) {
  return {.id = course.id(), .kind = course.giver().kind};
}

}  // namespace

/// True: another worker computes the prompt first, and the choice waits for it. False: it is to be
/// routed now, to the worker that answers, by choice.terms if there are any.
Result<bool> ShardService::begin_prefill(Active& active, Choice& choice, const ReplayPrompt& prompt,
                                         std::string_view receipt_id,
                                         const router::QueueHints& hints) {
  const GenerationPlan& plan = active.generation.plan();
  const ServedModel& model = *plan.model;
  STATOR_CHECK(check_prefill_pin(plan));
  if (choice.course.active() || plan.dry_run) {
    return false;  // computed already, or both workers are asked at once, or nothing is computed
  }
  choice.terms.reset();
  const bool some_need_it = model.split_workers.load(std::memory_order_relaxed) > 0;
  const bool some_do_without = model.whole_workers.load(std::memory_order_relaxed) > 0;
  const uint32_t tokens_left = plan.stop[choice.prompt].max_tokens - choice.journal.generated();
  const bool scores_prompt = plan.prompt_logprobs && choice.journal.generated() == 0;
  if (scores_prompt && some_need_it && !some_do_without) {
    return Error(Code::kUnsupported,
                 "echo with logprobs needs a worker that computes prompts and answers");
  }
  // A prefill worker's one token would be all of it; log-probabilities are not handed over.
  const bool whole = some_do_without && (choice.whole_next || tokens_left <= 1 || scores_prompt);
  while (!whole && (some_need_it || model.prefill->has_workers())) {
    const std::string id = fmt::format("{}-prefill", receipt_id);
    const router::RouteRequest request = make_route(active, choice, prompt, id);
    STATOR_TRY(auto planned,
               model.prefill->plan(
                   request, some_do_without ? Otherwise::kRunWhole : Otherwise::kFail, hints,
                   [inbox = routed_, id = choice.id,
                    attempt = choice.journal.attempt()](Result<router::Decision> decision) {
                     inbox->put({id, attempt, std::move(decision), RoutedInbox::For::kPrompt});
                   }));
    if (!planned.ticket.empty()) {
      choice.worker = {};
      choice.ticket = std::move(planned.ticket);
      return true;
    }
    if (!planned.split) {
      break;
    }
    if (!split_at(choice, std::move(*planned.split))) {
      continue;
    }
    if (choice.course.together()) {
      return false;
    }
    ask_prefill(active, choice, first_handoff(choice.course));
    return true;
  }
  if (some_need_it) {
    const RoutingWish& wish = plan.routing;
    choice.terms.emplace(wish.required_taints, wish.preferred_taints, wish.override);
    choice.terms->required_taints.emplace_back(router::kRunsWholeTaint);
  }
  return false;
}

/// In a fleet with prefill workers the one that a request names has to be among them.
Status ShardService::check_prefill_pin(const GenerationPlan& plan) const {
  const auto& pinned = plan.routing.prefill_pinned;
  if (!pinned || !plan.model->prefill->has_workers()) {
    return {};
  }
  const discovery::InstanceRecord* record = pool_->find_record(*pinned);
  if (record != nullptr && record->model.name == plan.model->name &&
      record->model.handoff.role == engine::WorkerRole::kPrefill) {
    return {};
  }
  return Error(Code::kNotFound, fmt::format("prefill worker {} does not serve model '{}'",
                                            pinned->value(), plan.model->name));
}

/// False when this shard cannot reach the prefill worker.
bool ShardService::split_at(Choice& choice, router::PrefillRouterService::Split split) {
  const WorkerKey worker = split.prefill.worker;
  const discovery::InstanceRecord* record = pool_->find_record(worker.worker);
  if (record == nullptr || pool_->find_session(worker.worker) == nullptr) {
    choice.journal.avoid(worker);
    return false;
  }
  const engine::HandoffAbility& ability = record->model.handoff;
  choice.course.begin(router::make_bootstrap_room(random_, worker.dp_rank, 1),
                      {.worker = worker,
                       .life = record->incarnation,
                       .kind = ability.kind,
                       .meeting_point = ability.meeting_point},
                      shard_.now());
  choice.terms = std::move(split.terms);
  choice.prompt_lease = std::move(split.prefill.lease);
  return true;
}

/// A prompt that waited for a prefill worker has one, or none will come.
void ShardService::on_prompt_routed(Active& active, Choice& choice,
                                    Result<router::Decision> decision) {
  if (choice.course.active()) {
    return;
  }
  const ServedModel& model = *active.generation.plan().model;
  Status sent;
  if (decision) {
    const ReplayPrompt prompt = active.generation.make_replay_prompt(choice);
    router::Decision taken = std::move(*decision);
    auto terms = model.prefill->find_terms(make_route(active, choice, prompt, {}), taken.worker);
    if (terms && split_at(choice, {std::move(taken), std::move(*terms)}) &&
        !choice.course.together()) {
      ask_prefill(active, choice, first_handoff(choice.course));
      return;
    }
    taken.lease.release();
    sent = dispatch(active, choice);
  } else if (model.whole_workers.load(std::memory_order_relaxed) > 0) {
    choice.whole_next = true;
    sent = dispatch(active, choice);
  } else {
    sent = std::move(decision.error());
  }
  if (!sent) {
    Error cause = sent.error().clone();
    fail_or_park(active, choice, std::move(cause), std::move(sent.error()));
  }
}

void ShardService::ask_prefill(Active& active, Choice& choice, engine::Handoff handoff) {
  const WorkerKey worker = choice.course.giver().worker;
  const RequestId id(++next_request_);
  const TimePoint now = shard_.now();
  engine::EngineRequest request = active.generation.make_engine_request(choice, now);
  request.key = {id, Attempt()};
  request.dp_rank = worker.dp_rank;
  request.phase = engine::Phase::kPrefill;
  request.handoff = std::move(handoff);
  request.stop.max_tokens = request.generated + 1;
  request.stop.min_tokens = std::min(request.stop.min_tokens, request.stop.max_tokens);
  choice.prompt_done = {};
  choice.prompt_at = id;
  add_trace(active, choice, request);
  note(active, choice, telemetry::Step::kPrefill, worker.worker);
  prompts_.emplace(id, std::make_unique<Prompt>(Prompt{.choice = choice.id,
                                                       .worker = worker,
                                                       .lease = std::move(choice.prompt_lease),
                                                       .asked = now}));
  pool_->find_session(worker.worker)->submit(std::move(request));
}

/// Makes `request` go on from the prompt that another worker has computed, if there is one and it
/// may still be used. False: somebody else has to be found first.
bool ShardService::hand_over(Active& active, Choice& choice, engine::EngineRequest& request) {
  if (!choice.course.active()) {
    return true;
  }
  const WorkerKey giver = choice.course.giver().worker;
  const bool together = choice.course.together();
  const discovery::InstanceRecord* record =
      pool_->find_session(giver.worker) == nullptr ? nullptr : pool_->find_record(giver.worker);
  auto handoff = choice.course.take(
      record == nullptr ? std::nullopt : std::optional(record->incarnation), choice.submitted);
  if (!handoff) {
    end_handoff(active, choice);
    choice.journal.avoid(giver);
    choice.whole_next = true;
    // What was to be fetched is computed by the same worker, unless that cannot do so.
    return active.generation.plan().model->split_workers.load(std::memory_order_relaxed) == 0;
  }
  request.phase = engine::Phase::kDecode;
  request.handoff = *handoff;
  if (together) {
    ask_prefill(active, choice, std::move(*handoff));
  }
  return true;
}

/// A prefill worker spoke. False: `delta` is no prompt's.
bool ShardService::take_prompt(WorkerId worker, const engine::Delta& delta,
                               engine::StepOutput& output) {
  const auto found = prompts_.find(delta.key.request);
  if (found == prompts_.end()) {
    return false;
  }
  if (delta.finish == api::FinishReason::kNone) {
    found->second->spoke = found->second->spoke || delta.token_count > 0;
    // Engines of ours offer a prompt when it begins to be computed: its decode worker is chosen
    // then, and fetches blocks while the rest is computed.
    const auto early = std::ranges::find(output.offers, delta.key, &engine::Offer::key);
    if (early != output.offers.end()) {
      const ChoiceRef ref = choices_.at(found->second->choice);
      note(*ref.active, ref.get(), telemetry::Step::kHandedOver, worker);
      carry_on(ref, ref.get().course.on_offer(std::move(early->handoff)),
               Error(Code::kUnavailable, "the prefill worker handed nothing over, retry"));
    }
    return true;
  }
  const std::unique_ptr<Prompt> prompt = std::move(found->second);
  prompts_.erase(found);
  prompt->lease.mark_prefill_completed();
  report(worker, WorkOutcome::kServed);
  const ChoiceRef ref = choices_.at(prompt->choice);
  Choice& choice = ref.get();
  choice.prompt_at = {};
  const auto offer = std::ranges::find(output.offers, delta.key, &engine::Offer::key);
  Step step = Step::kNone;
  if (offer != output.offers.end()) {
    choice.prompt_done = shard_.now();
    note(*ref.active, choice, telemetry::Step::kHandedOver, worker);
    step = choice.course.on_offer(std::move(offer->handoff));
  } else if (choice.course.state() != HandoffCourse::State::kPrefilling &&
             !choice.course.together()) {
    choice.prompt_done = shard_.now();  // offered before
  } else {
    // Of an answer in several pieces the first ones are gone.
    step = choice.course.on_prefill_end(prompt->spoke ? api::FinishReason::kLength : delta.finish);
  }
  if (step != Step::kUseAnswer) {
    carry_on(ref, step, Error(Code::kUnavailable, "the prefill worker handed nothing over, retry"));
    return true;
  }
  choice.worker = prompt->worker;
  choice.prompt_from = prompt->worker;
  choice.lease = std::move(prompt->lease);
  end_handoff(*ref.active, choice);
  engine::Delta answer = delta;
  answer.key = choice.key();
  take(ref, answer, output);
  return true;
}

/// A prompt will not come. False: `key` is none's.
bool ShardService::lose_prompt(WorkerId /*worker*/, engine::RequestKey key, const Error& error) {
  const auto found = prompts_.find(key.request);
  if (found == prompts_.end()) {
    return false;
  }
  const ChoiceRef ref = choices_.at(found->second->choice);
  found->second->lease.mark_failed();
  prompts_.erase(found);
  ref.get().prompt_at = {};
  carry_on(ref, ref.get().course.on_prefill_lost(), error);
  return true;
}

/// What the worker has given, or was to give, is not to be relied on any more.
void ShardService::lose_giver(WorkerId worker, const Error& error) {
  std::vector<RequestId> lost;
  for (const auto& [id, ref] : choices_) {
    const HandoffCourse& course = ref.get().course;
    if (course.active() && course.giver().worker.worker == worker) {
      lost.push_back(id);
    }
  }
  std::ranges::sort(lost);
  for (const RequestId id : lost) {
    if (const auto known = choices_.find(id); known != choices_.end()) {
      const ChoiceRef ref = known->second;
      drop_prompt(ref.get());
      carry_on(ref, ref.get().course.on_giver_gone(), error);
    }
  }
}

void ShardService::lose_stalled_prompts(TimePoint now) {
  const Duration limit = environment_.config.stall_timeout * kPromptPatience;
  if (limit <= Duration::zero()) {
    return;
  }
  std::vector<RequestId> stalled;
  for (const auto& [id, prompt] : prompts_) {
    const auto heard = heard_.find(prompt->worker.worker);
    const TimePoint quiet_since =
        heard == heard_.end() ? prompt->asked : std::max(prompt->asked, heard->second);
    if (now - quiet_since >= limit) {
      stalled.push_back(id);
    }
  }
  for (const RequestId id : stalled) {
    const auto found = prompts_.find(id);
    if (found == prompts_.end()) {
      continue;
    }
    const WorkerId worker = found->second->worker.worker;
    const ChoiceRef ref = choices_.at(found->second->choice);
    metrics_.stalls.add();
    report(worker, WorkOutcome::kHung);
    drop_prompt(ref.get());
    carry_on(ref, ref.get().course.on_prefill_lost(),
             Error(Code::kUnavailable,
                   "a prefill worker went silent for longer than "
                   "frontend.stall_timeout, retry"));
  }
}

void ShardService::carry_on(ChoiceRef ref, Step step, const Error& error) {
  Active& active = *ref.active;
  Choice& choice = ref.get();
  const WorkerKey giver = choice.course.giver().worker;
  end_handoff(active, choice);
  switch (step) {
    case Step::kNone:
    case Step::kUseAnswer:
      return;
    case Step::kDropAnswer:
      drop_prompt(choice);
      cancel_work(choice, session::CancelReason::kSuperseded);
      choice.whole_next = true;
      lose_at(ref, giver, Loss::kFailed, error.clone());
      return;
    case Step::kStartOver:
      choice.ticket = {};
      choice.journal.avoid(giver);
      // Another prefill worker may compute it, once.
      choice.whole_next = choice.journal.avoided().size() > 1;
      break;
    case Step::kRouteAnswer:
      break;
  }
  if (Status sent = dispatch(active, choice); !sent) {
    fail_or_park(active, choice, error.clone(), std::move(sent.error()));
  }
}

/// The prompt is not wanted any more, or no longer there.
void ShardService::drop_prompt(Choice& choice) {
  choice.prompt_lease.release();
  const auto found = prompts_.find(std::exchange(choice.prompt_at, RequestId()));
  if (found == prompts_.end()) {
    return;
  }
  session::WorkerSession* session =
      pool_ == nullptr ? nullptr : pool_->find_session(found->second->worker.worker);
  if (session != nullptr) {
    session->cancel({found->first, Attempt()}, session::CancelReason::kSuperseded);
  }
  prompts_.erase(found);
}

/// Counts the end of the hand-off, if it has just come.
void ShardService::end_handoff(const Active& active, Choice& choice) {
  if (const auto how = choice.course.take_end()) {
    metrics_.handoff_ended(active.generation.plan().answer.model, *how,
                           shard_.now() - choice.course.asked());
  }
}

/// Who is to be avoided for the loss of a choice's worker: the giver of a prompt that did not
/// arrive there, because the same worker may well do everything itself.
WorkerKey ShardService::blame(const Active& active, Choice& choice, Loss loss) {
  const bool taking = choice.course.state() == HandoffCourse::State::kTaking;
  const bool fetching = taking && loss == Loss::kFailed;
  const WorkerKey culprit = fetching ? choice.course.giver().worker : choice.worker;
  choice.course.on_taker_lost(fetching);
  end_handoff(active, choice);
  drop_prompt(choice);
  choice.prompt_from.reset();
  choice.whole_next = fetching;
  return culprit;
}

}  // namespace stator::frontend
