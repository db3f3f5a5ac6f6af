// SPDX-License-Identifier: Apache-2.0
#include "stator/request/choice_run.h"

#include <fmt/format.h>

#include "stator/core/assert.h"

namespace stator::request {
namespace {

using continuity::Journal;
using continuity::Loss;
using Kind = Action::Kind;
using session::CancelReason;

void report(WorkerKey worker, WorkOutcome outcome, Actions& out) {
  out.add({.kind = Kind::kReport, .worker = worker, .outcome = outcome});
}

/// The driver ends the request, this choice with it.
void fail(Error error, Actions& out) {
  out.add({.kind = Kind::kFail, .error = std::move(error)});
}

Error nothing_offered() {
  return Error(Code::kUnavailable, "the prefill worker handed nothing over, retry");
}

void cancel(const ChoiceRun& run, CancelReason reason, Actions& out) {
  out.add(
      {.kind = Kind::kCancel, .worker = run.facts().worker, .key = run.key(), .reason = reason});
}

/// No worker is asked any more.
void give_up(const Journal& journal, Error error, const Recovery& recovery, Actions& out) {
  if (journal.too_long()) {
    out.add({.kind = Kind::kCount, .event = Event::kTooLong});
  }
  if (recovery.is_poison(journal)) {
    out.add({.kind = Kind::kCount, .tokens = journal.workers_killed(), .event = Event::kPoisoned});
    error = Error(Code::kUnavailable,
                  fmt::format("{} workers died while they ran this request; it is not tried again "
                              "(frontend.poison_workers)",
                              journal.workers_killed()));
  } else if (journal.exhausted() && journal.migrations() > 0) {
    error = std::move(error).with_context(fmt::format(
        "after {} moves to other workers (frontend.migration_limit)", journal.migrations()));
  }
  fail(std::move(error), out);
}

}  // namespace

Recovery::Signs signs_of(const ChoiceRun& run, std::optional<TimePoint> heard) {
  return {.worker = run.facts().worker.worker,
          .submitted = run.facts().submitted,
          .last_token = run.facts().last_token,
          .heard = heard,
          .accepted = run.facts().accepted,
          .fresh = run.journal().attempt_is_fresh()};
}

ChoiceRun::State ChoiceRun::state() const {
  if (done() || !search_.active()) {
    return state_;
  }
  if (search_.parked()) {
    return State::kParked;
  }
  return prompt_.handover().active() ? State::kHandover : State::kRouting;
}

void ChoiceRun::start(std::optional<Error> lost, Recovery& recovery, TimePoint now, Actions& out) {
  STATOR_ASSERT(state() == State::kPreparing, "a choice is started once");
  if (lost) {
    lose({Loss::kHandedOff, {}}, std::move(*lost), recovery, now, out);
  } else {
    search_.look(std::nullopt, out);
  }
}

void ChoiceRun::route(const FleetShape& fleet, const Recovery& recovery, TimePoint now,
                      Actions& out) {
  if (done()) {
    return;
  }
  if (prompt_.handover().active() || spec_.dry_run) {
    // Computed already, or both workers are asked at once, or nothing is computed.
    out.add({.kind = Kind::kPlanAnswer});
    return;
  }
  const uint32_t generated = journal_.generated();
  const auto split = prompt_.wants_split(fleet, {.tokens_left = spec_.max_tokens - generated,
                                                 .scores = spec_.scores_prompt && generated == 0});
  if (!split) {
    on_no_route(Error(Code::kUnsupported,
                      "echo with logprobs needs a worker that computes prompts and answers"),
                recovery, now, out);
  } else if (*split) {
    out.add({.kind = Kind::kPlanPrompt});
  } else {
    on_split(std::nullopt, fleet, now, out);
  }
}

void ChoiceRun::on_split(std::optional<Split> split, const FleetShape& fleet, TimePoint now,
                         Actions& out) {
  if (done() || (split && prompt_.handover().active())) {
    return;
  }
  if (!split) {
    prompt_.compute_whole(fleet);
    out.add({.kind = Kind::kPlanAnswer});
    return;
  }
  prompt_.begin(std::move(*split), now, out);
  search_.rest();
  if (prompt_.handover().together()) {
    state_ = State::kHandover;
    out.add({.kind = Kind::kPlanAnswer});
    return;
  }
  state_ = State::kPrefill;
  out.add({.kind = Kind::kAskPrefill, .worker = prompt_.handover().giver().worker});
}

void ChoiceRun::look_again(const Unusable& found, Actions& out) {
  if (done()) {
    return;
  }
  if (found.prefill) {
    prompt_.want_whole();
  }
  if (found.worker) {
    journal_.avoid(*found.worker);
  }
  search_.look(std::nullopt, out);
}

void ChoiceRun::on_waiting(router::QueueTicket ticket) {
  if (done()) {
    return;
  }
  facts_.worker = {};
  search_.wait(std::move(ticket));
}

bool ChoiceRun::take_ticket(Attempt attempt) {
  if (done() || journal_.attempt() != attempt || !lease_.empty()) {
    return false;
  }
  search_.leave_queue();
  return true;
}

void ChoiceRun::on_routed(router::Decision decision, const Reach& reach, TimePoint now,
                          Actions& out) {
  const bool prompt_first = prompt_.handover().state() == Handover::State::kPrefilling;
  if (done() || !lease_.empty() || search_.parked() ||
      (prompt_first && !prompt_.handover().together())) {
    return;  // too late: what was booked is given back with the decision
  }
  if (!reach.reachable) {
    look_again({.worker = decision.worker}, out);
    return;
  }
  facts_.worker = decision.worker;
  facts_.submitted = now;
  if (spec_.dry_run) {
    out.add({.kind = Kind::kTellWorker});
    return;
  }
  if (prompt_.handover().active()) {
    const bool usable = prompt_.hand_over(reach, now, out);
    if (!prompt_.handed_to_answer()) {
      journal_.avoid(prompt_.handover().giver().worker);
    }
    if (!usable) {
      search_.look(std::nullopt, out);
      return;
    }
  }
  lease_ = std::move(decision.lease);
  facts_.expected_cached_tokens = decision.overlap_blocks * decision.receipt.block_size;
  facts_.accepted = false;
  facts_.queue_depth = reach.queue_depth;
  search_.found();
  state_ = prompt_.handed_to_answer() ? State::kHandover : State::kStreaming;
  out.add({.kind = Kind::kSubmit, .worker = facts_.worker});
}

void ChoiceRun::on_no_route(const Error& error, const Recovery& recovery, TimePoint now,
                            Actions& out) {
  if (done()) {
    return;
  }
  // Nobody can go on from a prompt now. Perhaps somebody can do everything.
  if (prompt_.handover().active() && prompt_.abandon(now, out) && !prompt_.want_whole()) {
    search_.look(std::nullopt, out);
    return;
  }
  search_.on_nobody(error, journal_, recovery, now, out);
}

void ChoiceRun::on_retry_due(Recovery& recovery, TimePoint now, Actions& out) {
  if (auto cause = search_.take_parked()) {
    search_.look_after_loss(std::move(*cause), journal_, recovery, now, out);
  }
}

void ChoiceRun::on_accepted(Recovery& recovery, TimePoint now, Actions& out) {
  if (done()) {
    return;
  }
  facts_.accepted = true;
  if (const auto step = prompt_.on_accepted(now); step != Handover::Step::kNone) {
    carry_on(step, Error(Code::kUnavailable, "a prompt was handed over too late, retry"), recovery,
             now, out);
  }
}

void ChoiceRun::on_output(const Output& output, Recovery& recovery, TimePoint now, Actions& out) {
  if (done()) {
    return;
  }
  if (output.progress == Progress::kStale) {
    out.add({.kind = Kind::kCount, .event = Event::kStaleDelta});
    return;
  }
  if (output.progress == Progress::kBroken) {
    out.add({.kind = Kind::kCount, .event = Event::kOffsetGap});
    cancel(*this, CancelReason::kSuperseded, out);
    on_lost(Loss::kFailed,
            Error(Code::kUnavailable, "the worker's output is not contiguous, retry"), recovery,
            now, out);
    return;
  }
  search_.rest();
  state_ = State::kStreaming;
  prompt_.on_output(now, out);
  if (output.tokens > 0) {
    lease_.mark_prefill_completed();
    if (output.offset == 0) {
      facts_.first_token = now;
    }
    facts_.last_token = now;
    if (output.offset == 0 || search_.lost()) {
      out.add({.kind = Kind::kNote,
               .worker = facts_.worker,
               .step = telemetry::Step::kFirstToken,
               .tokens = output.cached_tokens});
    }
    search_.give_back_place();
    search_.end_move(MigrationOutcome::kSuccess, facts_.worker, out);
    // The lease follows the output into new KV blocks, so later decisions see it.
    lease_.add_output_tokens(output.tokens);
  }
  switch (output.progress) {
    case Progress::kThoughtEnough:
      cancel(*this, CancelReason::kSuperseded, out);
      out.add({.kind = Kind::kEndThinking});
      return;
    case Progress::kChoiceDoneCancelEngine:
      cancel(*this, CancelReason::kStopped, out);
      [[fallthrough]];
    case Progress::kChoiceDone:
      report(facts_.worker, WorkOutcome::kServed, out);
      on_finished(now, out);
      return;
    default:
      return;
  }
}

/// Its thinking budget is spent: a next attempt answers from where the reasoning ends. The worker
/// has the prompt and the reasoning in its cache.
void ChoiceRun::on_thought(Journal::Step step, Recovery& recovery, TimePoint now, Actions& out) {
  if (done()) {
    return;
  }
  lease_.release();
  if (step == Journal::Step::kResubmit) {
    search_.look_after_loss(
        Error(Code::kUnavailable, "no worker goes on after the thinking budget, retry"), journal_,
        recovery, now, out);
    return;
  }
  out.add({.kind = Kind::kFinish, .finish = inference::FinishReason::kLength});
}

void ChoiceRun::on_finished(TimePoint now, Actions& out) {
  if (done()) {
    return;
  }
  STATOR_ASSERT(facts_.closed, "R2: whoever wrote the last word closes the choice");
  prompt_.abandon(now, out);
  search_.end();
  search_.end_move(MigrationOutcome::kFailure, facts_.worker, out);  // no other worker has spoken
  state_ = State::kDone;
  out.add({.kind = Kind::kDone});
}

void ChoiceRun::close() {
  facts_.closed = true;
  if (!journal_.attempt_is_fresh()) {
    lease_.mark_prefill_completed();  // an answer in one message: on_output() comes too late for it
  }
  journal_.finish();
  lease_.release();
}

void ChoiceRun::on_lost(Loss how, Error error, Recovery& recovery, TimePoint now, Actions& out) {
  if (done()) {
    return;
  }
  const bool worker_spoke = how == Loss::kRefused || how == Loss::kFailed;
  if (how == Loss::kStalled) {
    cancel(*this, CancelReason::kSuperseded, out);
  } else if (worker_spoke && prompt_.is_refused(error)) {
    how = Loss::kFailed;  // the next one does everything
  } else if (worker_spoke && error.info().retry == Retry::kNever) {
    if (how == Loss::kFailed && error.info().log_level == LogLevel::kError) {
      report(facts_.worker, WorkOutcome::kFailed, out);
    }
    fail(std::move(error), out);
    return;
  } else if (how == Loss::kFailed && error.code() == Code::kDraining) {
    how = Loss::kHandedOff;
    out.add({.kind = Kind::kCount, .event = Event::kDrainHandoff});
  } else if (how == Loss::kFailed && error.code() == Code::kOverloaded &&
             journal_.attempt_is_fresh()) {
    how = Loss::kRefused;
  }
  const WorkerKey culprit = prompt_.blame(how, facts_.worker, now, out);
  if (culprit == facts_.worker && (how == Loss::kFailed || how == Loss::kStalled)) {
    report(facts_.worker, how == Loss::kFailed ? WorkOutcome::kFailed : WorkOutcome::kHung, out);
  }
  lose({how, culprit}, std::move(error), recovery, now, out);
}

void ChoiceRun::lose(Lost what, Error error, Recovery& recovery, TimePoint now, Actions& out) {
  lease_.mark_failed();
  lease_.release();
  search_.leave_queue();
  switch (recovery.judge(journal_, what.loss, what.culprit)) {
    case Journal::Step::kFinishLength:
      out.add({.kind = Kind::kFinish, .finish = inference::FinishReason::kLength});
      return;
    case Journal::Step::kFinishStop:
      out.add({.kind = Kind::kFinish, .finish = inference::FinishReason::kStop});
      return;
    case Journal::Step::kGiveUp:
      give_up(journal_, std::move(error), recovery, out);
      return;
    case Journal::Step::kResubmit:
      break;
  }
  const bool has_tokens = journal_.generated() > 0;
  if (!has_tokens) {
    out.add({.kind = Kind::kCount, .event = Event::kRetried});
  }
  if (what.loss != Loss::kRefused) {
    search_.note({.at = now,
                  .had_tokens = has_tokens,
                  .worker = facts_.worker.worker,
                  .why = describe(what.loss)},
                 facts_.worker, out);
  }
  const Duration wait = recovery.backoff(journal_, what.loss, search_.lost().has_value());
  if (wait > Duration::zero()) {
    search_.park(std::move(error), wait, out);
  } else {
    search_.look_after_loss(std::move(error), journal_, recovery, now, out);
  }
}

ChoiceRun::PromptWord ChoiceRun::on_prompt_output(const PromptOutput& output, Recovery& recovery,
                                                  TimePoint now, Actions& out) {
  if (done() || !prompt_.at_worker()) {
    return PromptWord::kEnded;
  }
  PromptRun::Word word = prompt_.on_word(output.delta, output.offer, now, out);
  if (word.answer) {
    facts_.worker = word.answer->worker;
    lease_ = std::move(word.answer->lease);
    prompt_.publish_end(now, out);
    return PromptWord::kIsAnswer;
  }
  carry_on(word.step, nothing_offered(), recovery, now, out);
  return word.last ? PromptWord::kEnded : PromptWord::kUnderWay;
}

void ChoiceRun::on_prompt_lost(PromptLoss how, const Error& error, Recovery& recovery,
                               TimePoint now, Actions& out) {
  const bool there =
      how == PromptLoss::kGiverGone ? prompt_.handover().active() : prompt_.at_worker().has_value();
  if (done() || !there) {
    return;
  }
  Handover::Step step = Handover::Step::kNone;
  switch (how) {
    case PromptLoss::kFailed:
      step = prompt_.on_lost();
      break;
    case PromptLoss::kSilent:
      step = prompt_.on_silent(out);
      break;
    case PromptLoss::kGiverGone:
      step = prompt_.on_giver_gone(out);
      break;
  }
  carry_on(step, error, recovery, now, out);
}

void ChoiceRun::carry_on(Handover::Step step, const Error& error, Recovery& recovery, TimePoint now,
                         Actions& out) {
  const WorkerKey giver = prompt_.handover().giver().worker;
  prompt_.publish_end(now, out);
  switch (step) {
    case Handover::Step::kNone:
    case Handover::Step::kUseAnswer:
      return;
    case Handover::Step::kDropAnswer:
      prompt_.drop(out);
      cancel(*this, CancelReason::kSuperseded, out);
      prompt_.want_whole();
      lose({Loss::kFailed, giver}, error.clone(), recovery, now, out);
      return;
    case Handover::Step::kStartOver:
      search_.leave_queue();
      prompt_.start_over(journal_, giver, out);
      break;
    case Handover::Step::kRouteAnswer:
      break;
  }
  search_.look(error.clone(), out);
}

void ChoiceRun::stop(MigrationOutcome how, TimePoint now, Actions& out) {
  if (done()) {
    return;
  }
  if (!lease_.empty()) {
    cancel(*this, CancelReason::kClientGone, out);
  }
  prompt_.abandon(now, out);
  search_.end();
  search_.end_move(how, facts_.worker, out);
  lease_.release();
  state_ = State::kDone;
}

}  // namespace stator::request
