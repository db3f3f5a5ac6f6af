// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "stator/core/clock.h"
#include "stator/core/random.h"
#include "stator/request/choice_run.h"
#include "stator/request/request_run.h"
#include "stator/router/load_lease.h"

namespace stator::request {

using Kind = Action::Kind;
using State = ChoiceRun::State;

/// Choices with leases of a real load book, and what they asked for.
class RunFixture : public ::testing::Test {
 protected:
  static constexpr FleetShape kWhole{.some_whole = true};
  static constexpr FleetShape kSplit{.some_split = true, .some_whole = true, .has_prefill = true};

  static continuity::Journal::Spec journal(const inference::StopConditions* stop) {
    return {.prompt_tokens = 8, .stop = stop, .limits = {}};
  }
  ChoiceRun::Spec spec(uint32_t index = 0) const {
    return {.index = index, .max_tokens = stop_.max_tokens, .journal = journal(&stop_)};
  }
  router::Decision decision(uint64_t worker = 1) {
    router::Decision made;
    made.worker = {WorkerId(worker), 0};
    made.lease = book_->take({.slot = slot_, .prompt_tokens = 8, .prefill_tokens = 8});
    return made;
  }
  router::LoadLease lease() { return decision().lease; }
  Handover::Giver giver(uint64_t worker, std::string meeting_point = "") const {
    return {.worker = {WorkerId(worker), 0},
            .life = Incarnation(5),
            .kind = "k",
            .meeting_point = std::move(meeting_point)};
  }
  inference::Handoff offer() const { return {.id = 77, .kind = "k", .payload = "{}"}; }
  static inference::Delta word(const ChoiceRun& run, uint32_t tokens,
                               inference::FinishReason finish = inference::FinishReason::kNone) {
    return {.key = run.key(), .token_count = tokens, .finish = finish};
  }
  /// What it asks for, taken.
  std::vector<Kind> asked() {
    std::vector<Kind> kinds;
    for (const Action& action : out_) {
      kinds.push_back(action.kind);
    }
    out_.clear();
    return kinds;
  }
  /// Output of a choice, as its text would take it.
  void output(ChoiceRun& run, uint32_t tokens, Progress progress = Progress::kRunning) {
    const uint32_t offset = run.journal().generated();
    const std::vector<TokenId> list(tokens, 1);
    run.journal().take(run.journal().attempt(), offset, list);
    if (progress == Progress::kChoiceDone || progress == Progress::kChoiceDoneCancelEngine) {
      run.close();
    }
    run.on_output({.progress = progress, .offset = offset, .tokens = tokens}, recovery_, now_,
                  out_);
  }
  void begin(ChoiceRun& run) {
    run.name(RequestId(1000 + run.facts().index));
    run.start({}, recovery_, now_, out_);
    run.route(kWhole, recovery_, now_, out_);
  }
  /// At worker 1, with everything that was asked for so far taken.
  void at_worker(ChoiceRun& run) {
    begin(run);
    run.on_routed(decision(), {}, now_, out_);
    out_.clear();
  }
  int64_t booked() const { return book_->total_requests(); }

  inference::StopConditions stop_{.max_tokens = 100};
  SimClock clock_;
  std::shared_ptr<router::LoadBook> book_ = router::LoadBook::make(clock_);
  router::LoadSlot slot_ = book_->add_worker();
  Random random_{7};
  Recovery recovery_{{.poison_workers = 3, .migration_wait = std::chrono::seconds(10)}, random_};
  TimePoint now_{std::chrono::seconds(100)};
  Actions out_;
};

}  // namespace stator::request
