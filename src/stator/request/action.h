// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <absl/container/inlined_vector.h>

#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>

#include "stator/core/clock.h"
#include "stator/core/ids.h"
#include "stator/core/result.h"
#include "stator/inference/request.h"
#include "stator/inference/sampling.h"
#include "stator/request/handover.h"
#include "stator/request/outcomes.h"
#include "stator/session/worker_session.h"
#include "stator/telemetry/request_facts.h"

namespace stator::request {

/// What is counted on the way.
enum class Event : uint8_t {
  kStaleDelta,
  kOffsetGap,
  kRetried,       ///< a request without a token goes to another worker
  kMigrated,      ///< a choice does, whatever it has
  kDrainHandoff,  ///< a draining worker gave it back
  kRetryBudgetSpent,
  kTooLong,      ///< to be moved
  kPoisoned,     ///< so many (`tokens`) workers died under it: it is kept away from others
  kPromptMoved,  ///< its KV reached the answer's worker after `wait`
};

/// The worker that a choice lost, until another one's first token.
struct LostWorker {
  TimePoint at{};
  bool had_tokens = false;
  WorkerId worker = {};
  std::string_view why = {};  ///< static text, for the log
};

/// One thing that a run asks of whoever drives it. Data: it can be compared, printed and replayed.
struct Action {
  enum class Kind : uint8_t {
    kRoute,          ///< look at the fleet, then call ChoiceRun::route()
    kPlanPrompt,     ///< ask the prefill router who computes the prompt
    kPlanAnswer,     ///< ask the router who answers
    kAskPrefill,     ///< send the prompt to the worker that was found for it
    kSubmit,         ///< send the request to ChoiceRun::worker()
    kTellWorker,     ///< nothing is generated: the client wants to know who would answer
    kCancel,         ///< cancel `key` at `worker`
    kDropPrompt,     ///< the same for a prompt, whose name ends
    kPark,           ///< call on_retry_due() after `wait`
    kEndThinking,    ///< write the end of its reasoning, then call on_thought()
    kFinish,         ///< write its last word, `finish`, then call on_finished()
    kDone,           ///< the choice is over
    kFail,           ///< the request is over, with `error`
    kReport,         ///< the `outcome` of work at `worker`
    kNote,           ///< it takes a `step` at `worker`
    kCount,          ///< `event`
    kHandoverEnded,  ///< a hand-over ended so after `took`
    kRecovered,      ///< `lost` is over, with the `migration` outcome
  };
  Kind kind;
  WorkerKey worker{};
  inference::RequestKey key{};
  session::CancelReason reason{};
  Duration wait{};  ///< kPark; else how long it took
  inference::FinishReason finish{};
  WorkOutcome outcome{};
  telemetry::Step step{};
  uint32_t tokens = 0;  ///< kNote: found in the worker's cache
  Event event{};
  HandoverEnd end{};
  MigrationOutcome migration{};
  LostWorker lost{};
  std::optional<Error> error{};
};

/// In the order in which they are to be carried out. Few: a request has about three in its life.
class Actions {
 public:
  Action& add(Action action) { return list_.emplace_back(std::move(action)); }
  bool empty() const { return list_.empty(); }
  size_t size() const { return list_.size(); }
  Action& operator[](size_t i) { return list_[i]; }
  auto begin() const { return list_.begin(); }
  auto end() const { return list_.end(); }
  void clear() { list_.clear(); }

 private:
  absl::InlinedVector<Action, 4> list_;
};

}  // namespace stator::request
