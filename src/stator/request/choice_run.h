// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include "stator/continuity/journal.h"
#include "stator/core/clock.h"
#include "stator/core/ids.h"
#include "stator/core/result.h"
#include "stator/engine/api/engine.h"
#include "stator/request/action.h"
#include "stator/request/handover.h"
#include "stator/request/recovery.h"
#include "stator/router/prefill_router.h"
#include "stator/router/router_service.h"

namespace stator::request {

/// What a delta did to the text of a choice. kBroken: the attempt's output contradicts itself, so
/// it must be given up. kThoughtEnough: the attempt must be cancelled, and the choice goes on from
/// where its reasoning ends.
enum class Progress : uint8_t {
  kRunning,
  kChoiceDone,
  kChoiceDoneCancelEngine,
  kStale,
  kBroken,
  kThoughtEnough,
};

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

/// One choice of one prompt, from dispatch to its last token: a pure core. Events and the time come
/// in, actions come out; whoever drives it carries them out in order and sends on what comes of
/// them. What it holds of workers is held by leases and a ticket.
///
///   kPreparing ── start() ──► kRouting ── on_split() ──► kPrefill
///                             ▲  │  ▲                      │ on_prompt_output(), an offer
///              on_retry_due() │  │  │ a loss               ▼
///                             │  │  ├────────────────── kHandover
///                  kParked ◄──┘  │  │                      │ on_output()
///                     ▲          │  │                      ▼
///                     └─ a loss ─│──┴────────────────── kStreaming ◄─┐
///                                └──────── on_routed() ──────────────┘
///   any ── the last word, stop() ──► kDone
///
/// I1  Nothing is asked for and nothing is held after kDone.
/// I2  The lease is alive exactly while the choice has work at worker().
/// I3  It has a lease, or a ticket, or neither; never both.
/// I4  While its prompt is at a prefill worker, prompt() says where; it is asked or dropped, not
///     forgotten.
class ChoiceRun {
 public:
  enum class State : uint8_t {
    kPreparing,
    kRouting,    ///< wants a worker; perhaps waits in a router's queue
    kPrefill,    ///< another worker computes the prompt
    kHandover,   ///< it is computed there, and somebody is to go on from it, or has been asked
    kStreaming,  ///< a worker has it
    kParked,     ///< between two workers
    kDone,
  };
  struct Spec {
    uint32_t index = 0;   ///< in the answer
    uint32_t prompt = 0;  ///< which of the request's
    uint32_t max_tokens = 0;
    bool scores_prompt = false;  ///< the prompt's log-probabilities are wanted, too
    bool dry_run = false;        ///< only who would answer is wanted
    continuity::Journal::Spec journal;
  };
  explicit ChoiceRun(const Spec& spec) : spec_(spec), journal_(spec.journal) {}

  /// A prompt at a prefill worker.
  struct Prompt {
    RequestId id;
    WorkerKey worker;
    router::LoadLease lease;
    TimePoint asked;
    bool spoke = false;  ///< before its last word
  };

  State state() const { return state_; }
  bool done() const { return state_ == State::kDone; }
  bool closed() const { return closed_; }
  RequestId id() const { return id_; }
  uint32_t index() const { return spec_.index; }
  uint32_t prompt_index() const { return spec_.prompt; }
  engine::RequestKey key() const { return {id_, journal_.attempt()}; }
  const continuity::Journal& journal() const { return journal_; }
  continuity::Journal& journal() { return journal_; }
  router::LoadLease& lease() { return lease_; }
  WorkerKey worker() const { return worker_; }
  bool at_worker() const { return !lease_.empty(); }
  bool waits() const { return !ticket_.empty() || state_ == State::kParked; }
  const Handover& handover() const { return handover_; }
  const std::optional<Prompt>& prompt() const { return prompt_; }
  std::optional<WorkerKey> prompt_from() const { return prompt_from_; }
  const std::optional<router::DecodeTerms>& terms() const { return terms_; }
  /// The answer's worker has to be one that does everything, and there are others.
  bool whole_only() const { return whole_only_; }
  const std::optional<LostWorker>& lost() const { return lost_; }
  TimePoint submitted() const { return submitted_; }
  TimePoint first_token() const { return first_token_; }
  TimePoint last_token() const { return last_token_; }
  uint32_t expected_cached_tokens() const { return expected_cached_tokens_; }
  uint64_t queue_depth() const { return queue_depth_; }
  /// How long its prompt's KV took to move, if another worker computed it.
  Duration transfer() const { return transfer_; }
  Recovery::Signs signs(std::optional<TimePoint> heard) const;

  // The way to a worker. Those that find nobody park the choice, or fail it with what it lost.
  /// What workers know it by; before its start.
  void name(RequestId id) { id_ = id; }
  void start(Actions& out);
  /// A choice that was begun elsewhere, by a process that is lost.
  void start_again(Error cause, Recovery& recovery, TimePoint now, Actions& out);
  void route(const FleetShape& fleet, const Recovery& recovery, TimePoint now, Actions& out);
  void on_split(uint64_t room, Handover::Giver giver, router::DecodeTerms terms,
                router::LoadLease lease, TimePoint now, Actions& out);
  /// The prompt is to be computed where the answer is.
  void on_no_split(const FleetShape& fleet, Actions& out);
  /// No prefill worker came; those that do everything may.
  void on_no_prefill(Actions& out);
  /// The worker that was found for the prompt has gone meanwhile.
  void look_again(Actions& out);
  void on_waiting(router::QueueTicket ticket);
  /// Whether a decision of that attempt is still wanted; it has left the queue then.
  bool take_ticket(Attempt attempt);
  /// The worker that was chosen cannot be reached from here, though others may reach it.
  void on_unreachable(WorkerKey worker, Actions& out);
  void on_routed(router::Decision decision, const Reach& reach, TimePoint now, Actions& out);
  void on_no_route(Error error, const Recovery& recovery, TimePoint now, Actions& out);
  void on_retry_due(Recovery& recovery, TimePoint now, Actions& out);
  /// What the workers of the actions are given to hand the prompt over; once each.
  std::optional<engine::Handoff> take_handoff() { return std::exchange(to_answer_, std::nullopt); }
  engine::Handoff take_prompt_handoff() { return std::move(to_prompt_); }
  void on_prompt_asked(RequestId id, TimePoint now);

  // What workers say. Of other attempts than the current one nothing may come here.
  void on_accepted(Recovery& recovery, TimePoint now, Actions& out);
  struct Output {
    Progress progress = Progress::kRunning;
    uint32_t offset = 0;
    uint32_t tokens = 0;
    uint32_t cached_tokens = 0;
  };
  void on_output(const Output& output, Recovery& recovery, TimePoint now, Actions& out);
  void on_thought(continuity::Journal::Step step, Recovery& recovery, TimePoint now, Actions& out);
  void on_finished(TimePoint now, Actions& out);
  void on_rejected(Error error, Recovery& recovery, TimePoint now, Actions& out);
  void on_failed(Error error, Recovery& recovery, TimePoint now, Actions& out);
  void on_stalled(Error error, Recovery& recovery, TimePoint now, Actions& out);
  void on_vanished(Error error, Recovery& recovery, TimePoint now, Actions& out);

  // What the prompt's worker says.
  enum class PromptWord : uint8_t { kUnderWay, kEnded, kIsAnswer };
  /// kEnded, kIsAnswer: its name ends. kIsAnswer: what came is this choice's output.
  PromptWord on_prompt_output(const engine::Delta& delta, engine::Handoff* offer,
                              Recovery& recovery, TimePoint now, Actions& out);
  void on_prompt_lost(const Error& error, Recovery& recovery, TimePoint now, Actions& out);
  void on_prompt_stalled(Recovery& recovery, TimePoint now, Actions& out);
  /// Its connection broke, or its engine is gone: whatever it gave is not to be relied on.
  void on_giver_gone(const Error& error, Recovery& recovery, TimePoint now, Actions& out);

  /// The text of the choice has its last word: what it holds is given back.
  void close();
  /// The request is over. `how` of a migration that was under way.
  void stop(MigrationOutcome how, TimePoint now, Actions& out);

 private:
  void plan_whole(const FleetShape& fleet, Actions& out);
  void reroute(std::optional<Error> cause, Actions& out);
  void resubmit(Error cause, Recovery& recovery, TimePoint now, Actions& out);
  void park_or_fail(Error cause, const Error& error, const Recovery& recovery, TimePoint now,
                    Actions& out);
  void park(Error cause, Duration wait, Actions& out);
  bool refuses_handoff(const Error& error) const;
  void carry_on(Handover::Step step, const Error& error, Recovery& recovery, TimePoint now,
                Actions& out);
  struct Lost {
    continuity::Loss loss;
    WorkerKey culprit;
  };
  void lose(continuity::Loss loss, Error error, Recovery& recovery, TimePoint now, Actions& out);
  void lose_at(Lost what, Error error, Recovery& recovery, TimePoint now, Actions& out);
  WorkerKey blame(continuity::Loss loss, TimePoint now, Actions& out);
  void give_up(Error error, const Recovery& recovery, Actions& out);
  void fail(Error error, Actions& out);
  void cancel(session::CancelReason reason, Actions& out) const;
  void drop_prompt(Actions& out);
  void end_handover(TimePoint now, Actions& out);
  void end(TimePoint now, Actions& out);
  void end_move(MigrationOutcome how, Actions& out);
  void report(WorkerId worker, WorkOutcome outcome, Actions& out) const;

  const Spec spec_;
  State state_ = State::kPreparing;
  bool closed_ = false;
  RequestId id_;
  continuity::Journal journal_;
  WorkerKey worker_;
  router::LoadLease lease_;
  router::QueueTicket ticket_;                // while a router lets it wait
  Handover handover_;                         // of its prompt, where another worker computes it
  std::optional<router::DecodeTerms> terms_;  // for whoever answers, if not as the client said
  router::LoadLease prompt_lease_;            // until the prefill worker is asked
  std::optional<Prompt> prompt_;
  std::optional<WorkerKey> prompt_from_;  // who computed it for the current attempt
  std::optional<engine::Handoff> to_answer_;
  engine::Handoff to_prompt_;
  bool whole_next_ = false;  // after a hand-over that failed: the next worker does everything
  bool whole_only_ = false;
  std::optional<Error> cause_;  // why it looks for another worker
  uint32_t expected_cached_tokens_ = 0;
  uint64_t queue_depth_ = 0;
  TimePoint submitted_{};  // the current attempt
  bool accepted_ = false;  // the same, by its worker
  TimePoint prompt_done_{};
  Duration transfer_{};
  TimePoint first_token_{};
  TimePoint last_token_{};
  std::optional<LostWorker> lost_;  // until another one's first token
  RetryPlace place_;
};

}  // namespace stator::request
