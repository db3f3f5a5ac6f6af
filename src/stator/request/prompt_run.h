// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include "stator/continuity/journal.h"
#include "stator/core/clock.h"
#include "stator/core/ids.h"
#include "stator/core/result.h"
#include "stator/inference/step_output.h"
#include "stator/request/action.h"
#include "stator/request/handover.h"
#include "stator/router/load_lease.h"
#include "stator/router/prefill_router.h"

namespace stator::request {

/// Which workers a model has, as far as it matters where its prompts are computed.
struct FleetShape {
  bool some_split = false;   ///< some answer only prompts that others computed
  bool some_whole = false;   ///< some compute both
  bool has_prefill = false;  ///< some compute prompts only
};

/// What the driver sees when a worker was chosen.
struct Reach {
  bool reachable = true;                     ///< there is a session to it
  std::optional<Incarnation> giver_lives{};  ///< that of the hand-over's giver, if it is there
  bool all_whole = true;                     ///< every worker of the model can do everything
  uint64_t queue_depth = 0;                  ///< of the router
};

/// Where the prompt of a choice is computed, and its way to the worker that answers. Part of a
/// ChoiceRun: a pure core.
///
/// Q1  A prompt at a prefill worker is at_worker() until its last word comes, it is lost, or it is
///     dropped (kDropPrompt); then its lease is given back.
/// Q2  There is at most one.
class PromptRun {
 public:
  /// A prompt at a prefill worker.
  struct AtWorker {
    RequestId id;
    WorkerKey worker;
    router::LoadLease lease;
    TimePoint asked;
    bool spoke = false;  ///< before its last word
  };

  const Handover& handover() const { return handover_; }
  /// Who gives, or gave, the prompt that is on its way.
  bool given_by(WorkerId worker) const {
    return handover_.active() && handover_.giver().worker.worker == worker;
  }
  const std::optional<AtWorker>& at_worker() const { return at_worker_; }
  /// Who computed it for the current attempt, if not the one who answers.
  std::optional<WorkerKey> from() const { return from_; }
  /// For whoever answers, if not as the client said.
  const std::optional<router::DecodeTerms>& terms() const { return terms_; }
  /// The answer's worker has to be one that does everything, and there are others.
  bool whole_only() const { return whole_only_; }
  /// How long its KV took to move.
  Duration transfer() const { return transfer_; }

  /// Whether another worker is to compute it. None: there is nobody who could do it.
  struct Need {
    uint32_t tokens_left = 0;
    bool scores = false;  ///< log-probabilities of the prompt, which are not handed over
  };
  std::optional<bool> wants_split(const FleetShape& fleet, const Need& need);
  void compute_whole(const FleetShape& fleet) { whole_only_ = fleet.some_split; }
  /// The next worker does everything. True: that was said before.
  bool want_whole() { return std::exchange(whole_next_, true); }

  /// Another worker that was found for the prompt.
  struct Split {
    uint64_t room = 0;
    Handover::Giver giver;
    router::DecodeTerms terms{};
    router::LoadLease lease{};
  };
  void begin(Split split, TimePoint now, Actions& out);
  void on_asked(RequestId id, TimePoint now);
  /// What the workers of kAskPrefill and kSubmit are given; once each.
  inference::Handoff take_for_prompt() { return std::move(to_prompt_); }
  std::optional<inference::Handoff> take_for_answer() {
    return std::exchange(to_answer_, std::nullopt);
  }
  bool handed_to_answer() const { return to_answer_.has_value(); }

  /// The answer's worker was chosen. False: another one has to be found, for it cannot compute the
  /// prompt, and that is not to be had any more from who computed it.
  bool hand_over(const Reach& reach, TimePoint now, Actions& out);
  /// A worker that will not go on from a prompt of others may well do the whole request.
  bool is_refused(const Error& error) const {
    return handover_.state() == Handover::State::kTaking && error.info().retry == Retry::kNever;
  }
  Handover::Step on_accepted(TimePoint now) { return handover_.on_accepted(now); }
  void on_output(TimePoint now, Actions& out);

  /// What came of the prompt's worker's word.
  struct Word {
    Handover::Step step = Handover::Step::kNone;
    bool last = false;
    std::optional<AtWorker> answer{};  ///< kUseAnswer: it goes on with this
  };
  Word on_word(const inference::Delta& delta, inference::Handoff* offer, TimePoint now,
               Actions& out);
  Handover::Step on_lost();
  Handover::Step on_silent(Actions& out);
  Handover::Step on_giver_gone(Actions& out);
  /// The worker that answers was lost: who is to be avoided for it.
  WorkerKey blame(continuity::Loss loss, WorkerKey worker, TimePoint now, Actions& out);
  /// The giver is not to be asked again, or once.
  void start_over(continuity::Journal& journal, WorkerKey giver, Actions& out);
  /// The hand-over is given up, and what is under way for it. False: there was none.
  bool abandon(TimePoint now, Actions& out);
  void drop(Actions& out);
  /// Publishes the end of the hand-over, if it has just come.
  void publish_end(TimePoint now, Actions& out);

 private:
  Handover handover_;
  std::optional<AtWorker> at_worker_;
  router::LoadLease lease_;  // until the prefill worker is asked
  std::optional<router::DecodeTerms> terms_;
  std::optional<WorkerKey> from_;
  std::optional<inference::Handoff> to_answer_;
  inference::Handoff to_prompt_;
  bool whole_next_ = false;  // after a hand-over that failed
  bool whole_only_ = false;
  TimePoint done_at_{};
  Duration transfer_{};
};

}  // namespace stator::request
