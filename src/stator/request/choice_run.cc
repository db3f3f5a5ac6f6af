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

Error nothing_offered() {
  return Error(Code::kUnavailable, "the prefill worker handed nothing over, retry");
}

}  // namespace

Recovery::Signs ChoiceRun::signs(std::optional<TimePoint> heard) const {
  return {.worker = worker_.worker,
          .submitted = submitted_,
          .last_token = last_token_,
          .heard = heard,
          .accepted = accepted_,
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
  state_ = handover_.active() ? State::kHandover : State::kRouting;
  out.add({.kind = Kind::kRoute});
}

void ChoiceRun::route(const FleetShape& fleet, const Recovery& recovery, TimePoint now,
                      Actions& out) {
  if (done()) {
    return;
  }
  if (handover_.active() || spec_.dry_run) {
    // Computed already, or both workers are asked at once, or nothing is computed.
    out.add({.kind = Kind::kPlanAnswer});
    return;
  }
  terms_.reset();
  whole_only_ = false;
  const uint32_t tokens_left = spec_.max_tokens - journal_.generated();
  const bool scores = spec_.scores_prompt && journal_.generated() == 0;
  if (scores && fleet.some_split && !fleet.some_whole) {
    on_no_route(Error(Code::kUnsupported,
                      "echo with logprobs needs a worker that computes prompts and answers"),
                recovery, now, out);
    return;
  }
  // A prefill worker's one token would be all of it; log-probabilities are not handed over.
  const bool whole = fleet.some_whole && (whole_next_ || tokens_left <= 1 || scores);
  if (!whole && (fleet.some_split || fleet.has_prefill)) {
    out.add({.kind = Kind::kPlanPrompt});
    return;
  }
  plan_whole(fleet, out);
}

void ChoiceRun::plan_whole(const FleetShape& fleet, Actions& out) {
  whole_only_ = fleet.some_split;
  out.add({.kind = Kind::kPlanAnswer});
}

void ChoiceRun::on_split(uint64_t room, Handover::Giver giver, router::DecodeTerms terms,
                         router::LoadLease lease, TimePoint now, Actions& out) {
  if (done() || handover_.active()) {
    return;
  }
  drop_prompt(out);  // of an earlier attempt, whose answer began before it ended
  handover_.begin(room, std::move(giver), now);
  terms_ = std::move(terms);
  prompt_lease_ = std::move(lease);
  if (handover_.together()) {
    state_ = State::kHandover;
    out.add({.kind = Kind::kPlanAnswer});
    return;
  }
  state_ = State::kPrefill;
  to_prompt_ = {.id = handover_.id(), .kind = handover_.giver().kind};
  out.add({.kind = Kind::kAskPrefill, .worker = handover_.giver().worker});
}

void ChoiceRun::on_no_split(const FleetShape& fleet, Actions& out) {
  if (!done()) {
    plan_whole(fleet, out);
  }
}

void ChoiceRun::on_no_prefill(Actions& out) {
  if (!done()) {
    whole_next_ = true;
    reroute(std::nullopt, out);
  }
}

void ChoiceRun::look_again(Actions& out) {
  if (!done()) {
    reroute(std::nullopt, out);
  }
}

void ChoiceRun::on_waiting(router::QueueTicket ticket) {
  if (done()) {
    return;
  }
  worker_ = {};
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

void ChoiceRun::on_unreachable(WorkerKey worker, Actions& out) {
  if (!done()) {
    journal_.avoid(worker);
    reroute(std::nullopt, out);
  }
}

void ChoiceRun::on_routed(router::Decision decision, const Reach& reach, TimePoint now,
                          Actions& out) {
  const bool prompt_first = handover_.state() == Handover::State::kPrefilling;
  if (done() || !lease_.empty() || state_ == State::kParked ||
      (prompt_first && !handover_.together())) {
    return;  // too late: what was booked is given back with the decision
  }
  if (!reach.reachable) {
    on_unreachable(decision.worker, out);
    return;
  }
  worker_ = decision.worker;
  submitted_ = now;
  if (spec_.dry_run) {
    out.add({.kind = Kind::kTellWorker});
    return;
  }
  if (handover_.active()) {
    const WorkerKey giver = handover_.giver().worker;
    to_answer_ = handover_.take(reach.giver_lives, now);
    if (!to_answer_) {
      end_handover(now, out);
      drop_prompt(out);
      journal_.avoid(giver);
      whole_next_ = true;
      // What was to be fetched is computed by the same worker, unless that cannot do so.
      if (!reach.all_whole) {
        reroute(std::nullopt, out);
        return;
      }
    } else if (handover_.together()) {
      to_prompt_ = *to_answer_;
      out.add({.kind = Kind::kAskPrefill, .worker = giver});
    }
  }
  lease_ = std::move(decision.lease);
  expected_cached_tokens_ = decision.overlap_blocks * decision.receipt.block_size;
  accepted_ = false;
  queue_depth_ = reach.queue_depth;
  cause_.reset();
  state_ = to_answer_ ? State::kHandover : State::kStreaming;
  out.add({.kind = Kind::kSubmit, .worker = worker_});
}

void ChoiceRun::on_no_route(Error error, const Recovery& recovery, TimePoint now, Actions& out) {
  if (done()) {
    return;
  }
  if (handover_.active()) {
    // Nobody can go on from it now. Perhaps somebody can do everything.
    handover_.abandon();
    end_handover(now, out);
    drop_prompt(out);
    if (!std::exchange(whole_next_, true)) {
      reroute(std::nullopt, out);
      return;
    }
  }
  // What it lost says more than "nobody left".
  Error cause = cause_ ? std::move(*cause_) : error.clone();
  cause_.reset();
  park_or_fail(std::move(cause), error, recovery, now, out);
}

/// Nobody takes it now. What was generated already is worth a wait; a new request is told at once.
void ChoiceRun::park_or_fail(Error cause, const Error& error, const Recovery& recovery,
                             TimePoint now, Actions& out) {
  if (error.info().retry != Retry::kNever && recovery.has_patience(lost_, now)) {
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

void ChoiceRun::on_prompt_asked(RequestId id, TimePoint now) {
  prompt_done_ = {};
  prompt_ = Prompt{.id = id,
                   .worker = handover_.giver().worker,
                   .lease = std::move(prompt_lease_),
                   .asked = now};
}

void ChoiceRun::on_accepted(Recovery& recovery, TimePoint now, Actions& out) {
  if (done()) {
    return;
  }
  accepted_ = true;
  if (const auto step = handover_.on_accepted(now); step != Handover::Step::kNone) {
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
  if (handover_.active()) {
    prompt_from_ = handover_.giver().worker;
    handover_.on_output();
    end_handover(now, out);
    if (prompt_done_ != TimePoint()) {
      transfer_ = now - std::exchange(prompt_done_, {});
      out.add({.kind = Kind::kCount, .wait = transfer_, .event = Event::kPromptMoved});
    }
  }
  if (output.tokens > 0) {
    if (output.offset == 0) {
      first_token_ = now;
    }
    last_token_ = now;
    if (output.offset == 0 || lost_) {
      out.add({.kind = Kind::kNote,
               .worker = worker_,
               .step = telemetry::Step::kFirstToken,
               .tokens = output.cached_tokens});
    }
    place_.release();
    if (lost_) {
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
      report(worker_.worker, WorkOutcome::kServed, out);
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
  out.add({.kind = Kind::kFinish, .finish = api::FinishReason::kLength});
}

void ChoiceRun::on_finished(TimePoint now, Actions& out) {
  if (!done()) {
    end(now, out);
  }
}

/// Its last word was written.
void ChoiceRun::end(TimePoint now, Actions& out) {
  STATOR_ASSERT(closed_, "R2: whoever wrote the last word closes the choice");
  handover_.abandon();
  end_handover(now, out);
  drop_prompt(out);
  ticket_ = {};
  place_.release();
  if (lost_) {  // no other worker has said a word
    end_move(MigrationOutcome::kFailure, out);
  }
  state_ = State::kDone;
  out.add({.kind = Kind::kDone});
}

void ChoiceRun::end_move(MigrationOutcome how, Actions& out) {
  out.add({.kind = Kind::kRecovered,
           .worker = worker_,
           .migration = how,
           .lost = *std::exchange(lost_, std::nullopt)});
}

void ChoiceRun::close() {
  closed_ = true;
  journal_.finish();
  lease_.release();
}

/// A worker that will not go on from a prompt of others may well do the whole request.
bool ChoiceRun::refuses_handoff(const Error& error) const {
  return handover_.state() == Handover::State::kTaking && error.info().retry == Retry::kNever;
}

void ChoiceRun::on_rejected(Error error, Recovery& recovery, TimePoint now, Actions& out) {
  if (done()) {
    return;
  }
  if (refuses_handoff(error)) {
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
  if (!refuses_handoff(error) && error.info().retry == Retry::kNever) {
    if (error.info().log_level == LogLevel::kError) {
      report(worker_.worker, WorkOutcome::kFailed, out);
    }
    fail(std::move(error), out);
    return;
  }
  Loss loss = Loss::kFailed;
  if (refuses_handoff(error)) {
    loss = Loss::kFailed;
  } else if (error.code() == Code::kDraining) {
    loss = Loss::kHandedOff;
    out.add({.kind = Kind::kCount, .event = Event::kDrainHandoff});
  } else if (error.code() == Code::kOverloaded && journal_.attempt_is_fresh()) {
    loss = Loss::kRefused;
  }
  lose(loss, std::move(error), recovery, now, out);
}

void ChoiceRun::on_stalled(Error error, Recovery& recovery, TimePoint now, Actions& out) {
  if (!done()) {
    cancel(CancelReason::kSuperseded, out);
    lose(Loss::kStalled, std::move(error), recovery, now, out);
  }
}

void ChoiceRun::on_vanished(Error error, Recovery& recovery, TimePoint now, Actions& out) {
  if (!done()) {
    lose(Loss::kVanished, std::move(error), recovery, now, out);
  }
}

void ChoiceRun::lose(Loss loss, Error error, Recovery& recovery, TimePoint now, Actions& out) {
  const WorkerKey culprit = blame(loss, now, out);
  if (culprit == worker_ && (loss == Loss::kFailed || loss == Loss::kStalled)) {
    report(worker_.worker, loss == Loss::kFailed ? WorkOutcome::kFailed : WorkOutcome::kHung, out);
  }
  lose_at({loss, culprit}, std::move(error), recovery, now, out);
}

/// Who is to be avoided for the loss of a choice's worker: the giver of a prompt that did not
/// arrive there, because the same worker may well do everything itself.
WorkerKey ChoiceRun::blame(Loss loss, TimePoint now, Actions& out) {
  const bool fetching = handover_.state() == Handover::State::kTaking && loss == Loss::kFailed;
  const WorkerKey culprit = fetching ? handover_.giver().worker : worker_;
  handover_.on_taker_lost(fetching);
  end_handover(now, out);
  drop_prompt(out);
  prompt_from_.reset();
  whole_next_ = fetching;
  return culprit;
}

void ChoiceRun::lose_at(Lost what, Error error, Recovery& recovery, TimePoint now, Actions& out) {
  lease_.mark_failed();
  lease_.release();
  ticket_ = {};
  switch (recovery.judge(journal_, what.loss, what.culprit)) {
    case Journal::Step::kFinishLength:
      out.add({.kind = Kind::kFinish, .finish = api::FinishReason::kLength});
      return;
    case Journal::Step::kFinishStop:
      out.add({.kind = Kind::kFinish, .finish = api::FinishReason::kStop});
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
    const LostWorker lost{
        .at = now, .had_tokens = has_tokens, .worker = worker_.worker, .why = describe(what.loss)};
    out.add({.kind = Kind::kCount, .event = Event::kMigrated, .lost = lost});
    out.add({.kind = Kind::kNote, .worker = worker_, .step = telemetry::Step::kLost});
    if (!lost_) {
      lost_ = lost;
    }
  }
  const Duration wait = recovery.backoff(journal_, what.loss, lost_.has_value());
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

/// The driver ends the request, this choice with it.
void ChoiceRun::fail(Error error, Actions& out) {
  cause_.reset();
  out.add({.kind = Kind::kFail, .error = std::move(error)});
}

ChoiceRun::PromptWord ChoiceRun::on_prompt_output(const engine::Delta& delta,
                                                  engine::Handoff* offer, Recovery& recovery,
                                                  TimePoint now, Actions& out) {
  if (done() || !prompt_) {
    return PromptWord::kEnded;
  }
  const auto handed_over = [&] {
    out.add({.kind = Kind::kNote, .worker = prompt_->worker, .step = telemetry::Step::kHandedOver});
  };
  if (delta.finish == api::FinishReason::kNone) {
    prompt_->spoke = prompt_->spoke || delta.token_count > 0;
    // Engines of ours offer a prompt when it begins to be computed: its decode worker is chosen
    // then, and fetches blocks while the rest is computed.
    if (offer != nullptr) {
      handed_over();
      carry_on(handover_.on_offer(std::move(*offer)), nothing_offered(), recovery, now, out);
    }
    return PromptWord::kUnderWay;
  }
  prompt_->lease.mark_prefill_completed();
  report(prompt_->worker.worker, WorkOutcome::kServed, out);
  Handover::Step step = Handover::Step::kNone;
  if (offer != nullptr) {
    prompt_done_ = now;
    handed_over();
    step = handover_.on_offer(std::move(*offer));
  } else if (handover_.state() != Handover::State::kPrefilling && !handover_.together()) {
    prompt_done_ = now;  // offered before
  } else {
    // Of an answer in several pieces the first ones are gone.
    step = handover_.on_prefill_end(prompt_->spoke ? api::FinishReason::kLength : delta.finish);
  }
  Prompt prompt = std::move(*prompt_);
  prompt_.reset();
  if (step == Handover::Step::kUseAnswer) {
    worker_ = prompt.worker;
    prompt_from_ = prompt.worker;
    lease_ = std::move(prompt.lease);
    end_handover(now, out);
    return PromptWord::kIsAnswer;
  }
  if (step != Handover::Step::kNone) {
    carry_on(step, nothing_offered(), recovery, now, out);
  } else {
    end_handover(now, out);
  }
  return PromptWord::kEnded;
}

void ChoiceRun::on_prompt_lost(const Error& error, Recovery& recovery, TimePoint now,
                               Actions& out) {
  if (done() || !prompt_) {
    return;
  }
  prompt_->lease.mark_failed();
  prompt_.reset();
  carry_on(handover_.on_prefill_lost(), error, recovery, now, out);
}

void ChoiceRun::on_prompt_stalled(Recovery& recovery, TimePoint now, Actions& out) {
  if (done() || !prompt_) {
    return;
  }
  report(prompt_->worker.worker, WorkOutcome::kHung, out);
  drop_prompt(out);
  carry_on(handover_.on_prefill_lost(),
           Error(Code::kUnavailable,
                 "a prefill worker went silent for longer than frontend.stall_timeout, retry"),
           recovery, now, out);
}

void ChoiceRun::on_giver_gone(const Error& error, Recovery& recovery, TimePoint now, Actions& out) {
  if (done() || !handover_.active()) {
    return;
  }
  drop_prompt(out);
  carry_on(handover_.on_giver_gone(), error, recovery, now, out);
}

void ChoiceRun::carry_on(Handover::Step step, const Error& error, Recovery& recovery, TimePoint now,
                         Actions& out) {
  const WorkerKey giver = handover_.giver().worker;
  end_handover(now, out);
  switch (step) {
    case Handover::Step::kNone:
    case Handover::Step::kUseAnswer:
      return;
    case Handover::Step::kDropAnswer:
      drop_prompt(out);
      cancel(CancelReason::kSuperseded, out);
      whole_next_ = true;
      lose_at({Loss::kFailed, giver}, error.clone(), recovery, now, out);
      return;
    case Handover::Step::kStartOver:
      drop_prompt(out);
      ticket_ = {};
      journal_.avoid(giver);
      // Another prefill worker may compute it, once.
      whole_next_ = journal_.avoided().size() > 1;
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
  drop_prompt(out);
  if (!lease_.empty()) {
    cancel(CancelReason::kClientGone, out);
  }
  handover_.abandon();
  end_handover(now, out);
  place_.release();
  if (lost_) {
    end_move(how, out);
  }
  ticket_ = {};
  cause_.reset();
  lease_.release();
  state_ = State::kDone;
}

void ChoiceRun::cancel(CancelReason reason, Actions& out) const {
  out.add({.kind = Kind::kCancel, .worker = worker_, .key = key(), .reason = reason});
}

/// The prompt is not wanted any more, or no longer there.
void ChoiceRun::drop_prompt(Actions& out) {
  prompt_lease_.release();
  if (prompt_) {
    out.add({.kind = Kind::kDropPrompt,
             .worker = prompt_->worker,
             .key = {prompt_->id, Attempt()},
             .reason = CancelReason::kSuperseded});
    prompt_.reset();
  }
}

/// Publishes the end of the hand-over, if it has just come.
void ChoiceRun::end_handover(TimePoint now, Actions& out) {
  if (const auto how = handover_.take_end()) {
    out.add({.kind = Kind::kHandoverEnded, .wait = now - handover_.asked(), .end = *how});
  }
}

void ChoiceRun::report(WorkerId worker, WorkOutcome outcome, Actions& out) const {
  out.add({.kind = Kind::kReport, .worker = {worker, 0}, .outcome = outcome});
}

}  // namespace stator::request
