// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include "stator/continuity/journal.h"
#include "stator/core/clock.h"
#include "stator/core/ids.h"
#include "stator/core/result.h"
#include "stator/inference/request.h"
#include "stator/inference/step_output.h"
#include "stator/request/action.h"
#include "stator/request/prompt_run.h"
#include "stator/request/recovery.h"
#include "stator/request/worker_search.h"
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
/// I2  The lease is alive exactly while the choice has work at a worker.
/// I3  It has a lease, or a ticket (WorkerSearch), or neither; never both.
/// I4  A prompt at a prefill worker is asked for or dropped, not forgotten (PromptRun).
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
  explicit ChoiceRun(const Spec& spec)
      : spec_(spec), facts_{.index = spec.index, .prompt = spec.prompt}, journal_(spec.journal) {}

  /// What others may know of it.
  struct Facts {
    RequestId id;
    uint32_t index = 0;                   ///< in the answer
    uint32_t prompt = 0;                  ///< which of the request's
    WorkerKey worker;                     ///< the current attempt's, or the last one's
    uint32_t expected_cached_tokens = 0;  ///< there, by the router
    uint64_t queue_depth = 0;             ///< of the router, when it was routed
    TimePoint submitted{};                ///< the current attempt
    TimePoint first_token{};
    TimePoint last_token{};
    bool accepted = false;  ///< the current attempt, by its worker
    bool closed = false;    ///< its text has its last word
  };
  const Facts& facts() const { return facts_; }
  State state() const;
  bool done() const { return state_ == State::kDone; }
  inference::RequestKey key() const { return {facts_.id, journal_.attempt()}; }
  template <typename Self>
  auto& journal(this Self& self) {
    return self.journal_;
  }
  template <typename Self>
  auto& prompt(this Self& self) {
    return self.prompt_;
  }
  const WorkerSearch& search() const { return search_; }
  bool at_worker() const { return !lease_.empty(); }

  // The way to a worker. Those that find nobody park the choice, or fail it with what it lost.
  /// What workers know it by; before its start.
  void name(RequestId id) { facts_.id = id; }
  /// `lost`: it was begun elsewhere, by a process that is lost.
  void start(std::optional<Error> lost, Recovery& recovery, TimePoint now, Actions& out);
  void route(const FleetShape& fleet, const Recovery& recovery, TimePoint now, Actions& out);
  /// Who computes the prompt. None: whoever answers.
  using Split = PromptRun::Split;
  void on_split(std::optional<Split> split, const FleetShape& fleet, TimePoint now, Actions& out);
  /// What was found cannot be used.
  struct Unusable {
    std::optional<WorkerKey> worker{};  ///< out of reach from here, though others may reach it
    bool prefill = false;               ///< no prefill worker came; those that do everything may
  };
  void look_again(const Unusable& found, Actions& out);
  void on_waiting(router::QueueTicket ticket);
  /// Whether a decision of that attempt is still wanted; it has left the queue then.
  bool take_ticket(Attempt attempt);
  void on_routed(router::Decision decision, const Reach& reach, TimePoint now, Actions& out);
  void on_no_route(const Error& error, const Recovery& recovery, TimePoint now, Actions& out);
  void on_retry_due(Recovery& recovery, TimePoint now, Actions& out);

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
  /// Its last word was written.
  void on_finished(TimePoint now, Actions& out);
  /// kRefused: the worker rejected it; kFailed: the engine could not go on; kStalled: the worker is
  /// silent; kVanished: its connection broke.
  void on_lost(continuity::Loss how, Error error, Recovery& recovery, TimePoint now, Actions& out);

  // What the prompt's worker says.
  enum class PromptWord : uint8_t { kUnderWay, kEnded, kIsAnswer };
  struct PromptOutput {
    const inference::Delta& delta;
    inference::Handoff* offer = nullptr;  ///< null: none came with it
  };
  /// kEnded, kIsAnswer: its name ends. kIsAnswer: what came is this choice's output.
  PromptWord on_prompt_output(const PromptOutput& output, Recovery& recovery, TimePoint now,
                              Actions& out);
  enum class PromptLoss : uint8_t {
    kFailed,     ///< the prefill worker refused it or could not go on
    kSilent,     ///< it says nothing
    kGiverGone,  ///< its connection broke, or its engine is gone: nothing it gave is relied on
  };
  void on_prompt_lost(PromptLoss how, const Error& error, Recovery& recovery, TimePoint now,
                      Actions& out);

  /// The text of the choice has its last word: what it holds is given back.
  void close();
  /// The request is over. `how` of a migration that was under way.
  void stop(MigrationOutcome how, TimePoint now, Actions& out);

 private:
  struct Lost {
    continuity::Loss loss;
    WorkerKey culprit;
  };
  void lose(Lost what, Error error, Recovery& recovery, TimePoint now, Actions& out);
  void carry_on(Handover::Step step, const Error& error, Recovery& recovery, TimePoint now,
                Actions& out);

  const Spec spec_;
  State state_ = State::kPreparing;  // while the search rests
  Facts facts_;
  continuity::Journal journal_;
  router::LoadLease lease_;
  PromptRun prompt_;
  WorkerSearch search_;
};

/// What is known of its attempt at a worker that was heard of then.
Recovery::Signs signs_of(const ChoiceRun& run, std::optional<TimePoint> heard);

}  // namespace stator::request
