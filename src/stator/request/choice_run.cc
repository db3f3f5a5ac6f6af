// SPDX-License-Identifier: Apache-2.0
#include "stator/request/choice_run.h"

#include <fmt/format.h>

#include "stator/core/assert.h"

namespace stator::request {
namespace {

using namespace std::chrono_literals;
using continuity::Journal;
using continuity::Loss;
using Kind = Action::Kind;
using session::CancelReason;

// How often a request without a worker looks for one, beside being told of new ones.
constexpr Duration kParkedRetry = 100ms;

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

}  // namespace

Recovery::Signs ChoiceRun::signs(std::optional<TimePoint> heard) const {
  return {.worker = facts_.worker.worker,
          .submitted = facts_.submitted,
          .last_token = facts_.last_token,
          .heard = heard,
          .accepted = facts_.accepted,
          .fresh = journal_.attempt_is_fresh()};
}

void ChoiceRun::start(Actions& out) {
  STATOR_ASSERT(state_ == State::kPreparing, "a choice is started once");
  reroute(std::nullopt, out);
}

void ChoiceRun::start_again(Error cause, Recovery& recovery, TimePoint now, Actions& out) {
  STATOR_ASSERT(state_ == State::kPreparing, "a choice is started once");
  lose_at({Loss::kHandedOff, {}}, std::move(cause), recovery, now, out);
}

/// It wants a worker; `cause` is what it fails with when there is none.
void ChoiceRun::reroute(std::optional<Error> cause, Actions& out) {
  if (cause) {
    cause_ = std::move(cause);
  }
  state_ = prompt_.handover().active() ? State::kHandover : State::kRouting;
  out.add({.kind = Kind::kRoute});
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
    on_no_split(fleet, out);
  }
}

void ChoiceRun::on_split(uint64_t room, Handover::Giver giver, router::DecodeTerms terms,
                         router::LoadLease lease, TimePoint now, Actions& out) {
  if (done() || prompt_.handover().active()) {
    return;
  }
  prompt_.begin(room, std::move(giver), std::move(terms), std::move(lease), now, out);
  if (prompt_.handover().together()) {
    state_ = State::kHandover;
    out.add({.kind = Kind::kPlanAnswer});
    return;
  }
  state_ = State::kPrefill;
  out.add({.kind = Kind::kAskPrefill, .worker = prompt_.handover().giver().worker});
}

void ChoiceRun::on_no_split(const FleetShape& fleet, Actions& out) {
  if (!done()) {
    prompt_.compute_whole(fleet);
    out.add({.kind = Kind::kPlanAnswer});
  }
}

void ChoiceRun::on_no_prefill(Actions& out) {
  if (!done()) {
    prompt_.want_whole();
    reroute(std::nullopt, out);
  }
}

void ChoiceRun::look_again(std::optional<WorkerKey> worker, Actions& out) {
  if (done()) {
    return;
  }
  if (worker) {
    journal_.avoid(*worker);
  }
  reroute(std::nullopt, out);
}

void ChoiceRun::on_waiting(router::QueueTicket ticket) {
  if (done()) {
    return;
  }
  facts_.worker = {};
  cause_.reset();
  ticket_ = std::move(ticket);
}

bool ChoiceRun::take_ticket(Attempt attempt) {
  if (done() || journal_.attempt() != attempt || !lease_.empty()) {
    return false;
  }
  ticket_ = {};
  return true;
}

void ChoiceRun::on_routed(router::Decision decision, const Reach& reach, TimePoint now,
                          Actions& out) {
  const bool prompt_first = prompt_.handover().state() == Handover::State::kPrefilling;
  if (done() || !lease_.empty() || state_ == State::kParked ||
      (prompt_first && !prompt_.handover().together())) {
    return;  // too late: what was booked is given back with the decision
  }
  if (!reach.reachable) {
    look_again(decision.worker, out);
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
      reroute(std::nullopt, out);
      return;
    }
  }
  lease_ = std::move(decision.lease);
  facts_.expected_cached_tokens = decision.overlap_blocks * decision.receipt.block_size;
  facts_.accepted = false;
  facts_.queue_depth = reach.queue_depth;
  cause_.reset();
  state_ = prompt_.handed_to_answer() ? State::kHandover : State::kStreaming;
  out.add({.kind = Kind::kSubmit, .worker = facts_.worker});
}

void ChoiceRun::on_no_route(Error error, const Recovery& recovery, TimePoint now, Actions& out) {
  if (done()) {
    return;
  }
  // Nobody can go on from a prompt now. Perhaps somebody can do everything.
  if (prompt_.handover().active() && prompt_.abandon(now, out) && !prompt_.want_whole()) {
    reroute(std::nullopt, out);
    return;
  }
  // What it lost says more than "nobody left".
  Error cause = cause_ ? std::move(*cause_) : error.clone();
  cause_.reset();
  park_or_fail(std::move(cause), error, recovery, now, out);
}

/// Nobody takes it now. What was generated already is worth a wait; a new request is told at once.
void ChoiceRun::park_or_fail(Error cause, const Error& error, const Recovery& recovery,
                             TimePoint now, Actions& out) {
  if (error.info().retry != Retry::kNever && recovery.has_patience(facts_.lost, now)) {
    journal_.forgive();
    park(std::move(cause), kParkedRetry, out);
    return;
  }
  fail(std::move(cause), out);
}

void ChoiceRun::park(Error cause, Duration wait, Actions& out) {
  cause_ = std::move(cause);
  state_ = State::kParked;
  out.add({.kind = Kind::kPark, .wait = wait});
}

void ChoiceRun::on_retry_due(Recovery& recovery, TimePoint now, Actions& out) {
  if (state_ == State::kParked) {
    Error cause = std::move(*cause_);
    cause_.reset();
    resubmit(std::move(cause), recovery, now, out);
  }
}

void ChoiceRun::resubmit(Error cause, Recovery& recovery, TimePoint now, Actions& out) {
  if (place_.empty()) {
    auto place = recovery.take_place(journal_);
    if (!place) {
      out.add({.kind = Kind::kCount, .event = Event::kRetryBudgetSpent});
      const Error error = cause.clone();
      park_or_fail(std::move(cause), error, recovery, now, out);
      return;
    }
    place_ = std::move(*place);
  }
  reroute(std::move(cause), out);
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
    cancel(CancelReason::kSuperseded, out);
    lose(Loss::kFailed, Error(Code::kUnavailable, "the worker's output is not contiguous, retry"),
         recovery, now, out);
    return;
  }
  state_ = State::kStreaming;
  prompt_.on_output(now, out);
  if (output.tokens > 0) {
    if (output.offset == 0) {
      facts_.first_token = now;
    }
    facts_.last_token = now;
    if (output.offset == 0 || facts_.lost) {
      out.add({.kind = Kind::kNote,
               .worker = facts_.worker,
               .step = telemetry::Step::kFirstToken,
               .tokens = output.cached_tokens});
    }
    place_.release();
    if (facts_.lost) {
      end_move(MigrationOutcome::kSuccess, out);
    }
    // The lease follows the output into new KV blocks, so later decisions see it.
    lease_.add_output_tokens(output.tokens);
  }
  switch (output.progress) {
    case Progress::kThoughtEnough:
      cancel(CancelReason::kSuperseded, out);
      out.add({.kind = Kind::kEndThinking});
      return;
    case Progress::kChoiceDoneCancelEngine:
      cancel(CancelReason::kStopped, out);
      [[fallthrough]];
    case Progress::kChoiceDone:
      report(facts_.worker, WorkOutcome::kServed, out);
      end(now, out);
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
    resubmit(Error(Code::kUnavailable, "no worker goes on after the thinking budget, retry"),
             recovery, now, out);
    return;
  }
  out.add({.kind = Kind::kFinish, .finish = inference::FinishReason::kLength});
}

void ChoiceRun::on_finished(TimePoint now, Actions& out) {
  if (!done()) {
    end(now, out);
  }
}

/// Its last word was written.
void ChoiceRun::end(TimePoint now, Actions& out) {
  STATOR_ASSERT(facts_.closed, "R2: whoever wrote the last word closes the choice");
  prompt_.abandon(now, out);
  ticket_ = {};
  place_.release();
  if (facts_.lost) {  // no other worker has said a word
    end_move(MigrationOutcome::kFailure, out);
  }
  state_ = State::kDone;
  out.add({.kind = Kind::kDone});
}

void ChoiceRun::end_move(MigrationOutcome how, Actions& out) {
  out.add({.kind = Kind::kRecovered,
           .worker = facts_.worker,
           .migration = how,
           .lost = *std::exchange(facts_.lost, std::nullopt)});
}

void ChoiceRun::close() {
  facts_.closed = true;
  journal_.finish();
  lease_.release();
}

void ChoiceRun::on_rejected(Error error, Recovery& recovery, TimePoint now, Actions& out) {
  if (done()) {
    return;
  }
  if (prompt_.is_refused(error)) {
    lose(Loss::kFailed, std::move(error), recovery, now, out);
  } else if (error.info().retry == Retry::kNever) {
    fail(std::move(error), out);
  } else {
    lose(Loss::kRefused, std::move(error), recovery, now, out);
  }
}

void ChoiceRun::on_failed(Error error, Recovery& recovery, TimePoint now, Actions& out) {
  if (done()) {
    return;
  }
  if (!prompt_.is_refused(error) && error.info().retry == Retry::kNever) {
    if (error.info().log_level == LogLevel::kError) {
      report(facts_.worker, WorkOutcome::kFailed, out);
    }
    fail(std::move(error), out);
    return;
  }
  Loss loss = Loss::kFailed;
  if (prompt_.is_refused(error)) {
    loss = Loss::kFailed;
  } else if (error.code() == Code::kDraining) {
    loss = Loss::kHandedOff;
    out.add({.kind = Kind::kCount, .event = Event::kDrainHandoff});
  } else if (error.code() == Code::kOverloaded && journal_.attempt_is_fresh()) {
    loss = Loss::kRefused;
  }
  lose(loss, std::move(error), recovery, now, out);
}

void ChoiceRun::on_lost(Loss loss, Error error, Recovery& recovery, TimePoint now, Actions& out) {
  if (done()) {
    return;
  }
  if (loss == Loss::kStalled) {
    cancel(CancelReason::kSuperseded, out);
  }
  lose(loss, std::move(error), recovery, now, out);
}

void ChoiceRun::lose(Loss loss, Error error, Recovery& recovery, TimePoint now, Actions& out) {
  const WorkerKey culprit = prompt_.blame(loss, facts_.worker, now, out);
  if (culprit == facts_.worker && (loss == Loss::kFailed || loss == Loss::kStalled)) {
    report(facts_.worker, loss == Loss::kFailed ? WorkOutcome::kFailed : WorkOutcome::kHung, out);
  }
  lose_at({loss, culprit}, std::move(error), recovery, now, out);
}

void ChoiceRun::lose_at(Lost what, Error error, Recovery& recovery, TimePoint now, Actions& out) {
  lease_.mark_failed();
  lease_.release();
  ticket_ = {};
  switch (recovery.judge(journal_, what.loss, what.culprit)) {
    case Journal::Step::kFinishLength:
      out.add({.kind = Kind::kFinish, .finish = inference::FinishReason::kLength});
      return;
    case Journal::Step::kFinishStop:
      out.add({.kind = Kind::kFinish, .finish = inference::FinishReason::kStop});
      return;
    case Journal::Step::kGiveUp:
      give_up(std::move(error), recovery, out);
      return;
    case Journal::Step::kResubmit:
      break;
  }
  const bool has_tokens = journal_.generated() > 0;
  if (!has_tokens) {
    out.add({.kind = Kind::kCount, .event = Event::kRetried});
  }
  if (what.loss != Loss::kRefused) {
    const LostWorker lost{.at = now,
                          .had_tokens = has_tokens,
                          .worker = facts_.worker.worker,
                          .why = describe(what.loss)};
    out.add({.kind = Kind::kCount, .event = Event::kMigrated, .lost = lost});
    out.add({.kind = Kind::kNote, .worker = facts_.worker, .step = telemetry::Step::kLost});
    if (!facts_.lost) {
      facts_.lost = lost;
    }
  }
  const Duration wait = recovery.backoff(journal_, what.loss, facts_.lost.has_value());
  if (wait > Duration::zero()) {
    park(std::move(error), wait, out);
  } else {
    resubmit(std::move(error), recovery, now, out);
  }
}

void ChoiceRun::give_up(Error error, const Recovery& recovery, Actions& out) {
  if (journal_.too_long()) {
    out.add({.kind = Kind::kCount, .event = Event::kTooLong});
  }
  if (recovery.is_poison(journal_)) {
    out.add({.kind = Kind::kCount, .tokens = journal_.workers_killed(), .event = Event::kPoisoned});
    error = Error(Code::kUnavailable,
                  fmt::format("{} workers died while they ran this request; it is not tried again "
                              "(frontend.poison_workers)",
                              journal_.workers_killed()));
  } else if (journal_.exhausted() && journal_.migrations() > 0) {
    error = std::move(error).with_context(fmt::format(
        "after {} moves to other workers (frontend.migration_limit)", journal_.migrations()));
  }
  fail(std::move(error), out);
}

ChoiceRun::PromptWord ChoiceRun::on_prompt_output(const inference::Delta& delta,
                                                  inference::Handoff* offer, Recovery& recovery,
                                                  TimePoint now, Actions& out) {
  if (done() || !prompt_.at_worker()) {
    return PromptWord::kEnded;
  }
  PromptRun::Word word = prompt_.on_word(delta, offer, now, out);
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
      cancel(CancelReason::kSuperseded, out);
      prompt_.want_whole();
      lose_at({Loss::kFailed, giver}, error.clone(), recovery, now, out);
      return;
    case Handover::Step::kStartOver:
      ticket_ = {};
      prompt_.start_over(journal_, giver, out);
      break;
    case Handover::Step::kRouteAnswer:
      break;
  }
  reroute(error.clone(), out);
}

void ChoiceRun::stop(MigrationOutcome how, TimePoint now, Actions& out) {
  if (done()) {
    return;
  }
  if (!lease_.empty()) {
    cancel(CancelReason::kClientGone, out);
  }
  prompt_.abandon(now, out);
  place_.release();
  if (facts_.lost) {
    end_move(how, out);
  }
  ticket_ = {};
  cause_.reset();
  lease_.release();
  state_ = State::kDone;
}

void ChoiceRun::cancel(CancelReason reason, Actions& out) const {
  out.add({.kind = Kind::kCancel, .worker = facts_.worker, .key = key(), .reason = reason});
}

}  // namespace stator::request
