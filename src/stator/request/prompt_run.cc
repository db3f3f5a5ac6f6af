// SPDX-License-Identifier: Apache-2.0
#include "stator/request/prompt_run.h"

namespace stator::request {

using Kind = Action::Kind;
using Step = Handover::Step;

std::optional<bool> PromptRun::wants_split(const FleetShape& fleet, const Need& need) {
  terms_.reset();
  whole_only_ = false;
  if (need.scores && fleet.some_split && !fleet.some_whole) {
    return std::nullopt;
  }
  // A prefill worker's one token would be all of it; log-probabilities are not handed over.
  const bool whole = fleet.some_whole && (whole_next_ || need.tokens_left <= 1 || need.scores);
  return !whole && (fleet.some_split || fleet.has_prefill);
}

void PromptRun::begin(Split split, TimePoint now, Actions& out) {
  drop(out);  // of an earlier attempt, whose answer began before it ended
  handover_.begin(split.room, std::move(split.giver), now);
  terms_ = std::move(split.terms);
  lease_ = std::move(split.lease);
  to_prompt_ = {.id = handover_.id(), .kind = handover_.giver().kind};
}

void PromptRun::on_asked(RequestId id, TimePoint now) {
  done_at_ = {};
  at_worker_ = AtWorker{
      .id = id, .worker = handover_.giver().worker, .lease = std::move(lease_), .asked = now};
}

bool PromptRun::hand_over(const Reach& reach, TimePoint now, Actions& out) {
  if (!handover_.active()) {
    return true;
  }
  to_answer_ = handover_.take(reach.giver_lives, now);
  if (to_answer_) {
    if (handover_.together()) {
      to_prompt_ = *to_answer_;
      out.add({.kind = Kind::kAskPrefill, .worker = handover_.giver().worker});
    }
    return true;
  }
  publish_end(now, out);
  drop(out);
  whole_next_ = true;
  // What was to be fetched is computed by the same worker, unless that cannot do so.
  return reach.all_whole;
}

void PromptRun::on_output(TimePoint now, Actions& out) {
  if (!handover_.active()) {
    return;
  }
  from_ = handover_.giver().worker;
  handover_.on_output();
  publish_end(now, out);
  if (done_at_ != TimePoint()) {
    transfer_ = now - std::exchange(done_at_, {});
    out.add({.kind = Kind::kCount, .wait = transfer_, .event = Event::kPromptMoved});
  }
}

PromptRun::Word PromptRun::on_word(const inference::Delta& delta, inference::Handoff* offer,
                                   TimePoint now, Actions& out) {
  if (offer != nullptr) {
    out.add(
        {.kind = Kind::kNote, .worker = at_worker_->worker, .step = telemetry::Step::kHandedOver});
  }
  if (delta.finish == inference::FinishReason::kNone) {
    at_worker_->spoke = at_worker_->spoke || delta.token_count > 0;
    // Engines of ours offer a prompt when it begins to be computed: its decode worker is chosen
    // then, and fetches blocks while the rest is computed.
    return {.step = offer == nullptr ? Step::kNone : handover_.on_offer(std::move(*offer))};
  }
  at_worker_->lease.mark_prefill_completed();
  out.add({.kind = Kind::kReport, .worker = at_worker_->worker, .outcome = WorkOutcome::kServed});
  Word word{.last = true};
  if (offer != nullptr) {
    done_at_ = now;
    word.step = handover_.on_offer(std::move(*offer));
  } else if (handover_.state() != Handover::State::kPrefilling && !handover_.together()) {
    done_at_ = now;  // offered before
  } else {
    // Of an answer in several pieces the first ones are gone.
    word.step = handover_.on_prefill_end(at_worker_->spoke ? inference::FinishReason::kLength
                                                           : delta.finish);
  }
  if (word.step == Step::kUseAnswer) {
    from_ = at_worker_->worker;
    word.answer = std::move(at_worker_);
  }
  at_worker_.reset();
  return word;
}

Step PromptRun::on_lost() {
  at_worker_->lease.mark_failed();
  at_worker_.reset();
  return handover_.on_prefill_lost();
}

Step PromptRun::on_silent(Actions& out) {
  out.add({.kind = Kind::kReport, .worker = at_worker_->worker, .outcome = WorkOutcome::kHung});
  drop(out);
  return handover_.on_prefill_lost();
}

Step PromptRun::on_giver_gone(Actions& out) {
  drop(out);
  return handover_.on_giver_gone();
}

/// The giver of a prompt that did not arrive, because the worker may well do everything itself.
WorkerKey PromptRun::blame(continuity::Loss loss, WorkerKey worker, TimePoint now, Actions& out) {
  const bool fetching =
      handover_.state() == Handover::State::kTaking && loss == continuity::Loss::kFailed;
  const WorkerKey culprit = fetching ? handover_.giver().worker : worker;
  handover_.on_taker_lost(fetching);
  publish_end(now, out);
  drop(out);
  from_.reset();
  whole_next_ = fetching;
  return culprit;
}

void PromptRun::start_over(continuity::Journal& journal, WorkerKey giver, Actions& out) {
  drop(out);
  journal.avoid(giver);
  // Another prefill worker may compute it, once.
  whole_next_ = journal.avoided().size() > 1;
}

bool PromptRun::abandon(TimePoint now, Actions& out) {
  const bool active = handover_.active();
  handover_.abandon();
  publish_end(now, out);
  drop(out);
  return active;
}

void PromptRun::drop(Actions& out) {
  lease_.release();
  if (at_worker_) {
    out.add({.kind = Kind::kDropPrompt,
             .worker = at_worker_->worker,
             .key = {at_worker_->id, Attempt()},
             .reason = session::CancelReason::kSuperseded});
    at_worker_.reset();
  }
}

void PromptRun::publish_end(TimePoint now, Actions& out) {
  if (const auto how = handover_.take_end()) {
    out.add({.kind = Kind::kHandoverEnded, .wait = now - handover_.asked(), .end = *how});
  }
}

}  // namespace stator::request
