// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <vector>

#include "stator/core/flat_map.h"
#include "stator/engine/sim/sim_core.h"

namespace stator::engine {

/// The same rules as SimScheduler in the obvious way: every pass planned, every token counted,
/// every block an entry of its own. It shares no bookkeeping with what it is the oracle of.
/// O(running sequences) per pass, O(blocks) per prompt.
class NaiveSimCore final : public SimCore {
 public:
  NaiveSimCore(const SimEngineConfig& config, const perf::TimingModel& timing)
      : config_(config), timing_(timing) {}

  void submit(SimRequest request) override;
  bool busy() const override { return busy_; }
  bool has_work() const override { return !waiting_.empty() || !running_.empty(); }
  TimePoint start(TimePoint now) override;
  TimePoint interrupt(TimePoint) override { return outcome_.end; }
  void list_ends(std::vector<TimePoint>& ends) const override { ends.push_back(outcome_.end); }
  void keep_pace(std::span<const TimePoint> ends) override { outcome_.end = ends.front(); }
  void finish(SimOutcome& outcome) override;
  Load load() const override;
  void fail(TimePoint now, SimOutcome& outcome, std::vector<Lost>& lost) override;

 private:
  struct Sequence {
    SimRequest request;
    uint32_t computed = 0;
    uint32_t generated = 0;
    uint32_t nameless = 0;   // blocks without content
    uint32_t scheduled = 0;  // tokens of this pass
    bool answering = false;  // has given a token since it was admitted
    std::vector<blocks::SequenceHash> held;
    TimePoint last_token{};
    uint32_t length() const { return request.prompt_tokens + generated; }
  };
  using Owned = std::unique_ptr<Sequence>;
  struct Block {
    uint32_t holders = 0;
    std::list<blocks::SequenceHash>::iterator idle;  // while nobody holds it
  };

  void plan_running();
  void plan_waiting();
  bool never_fits(const Sequence& sequence) const;
  bool can_promise(const Sequence& sequence) const;
  bool admit();
  void schedule(Sequence& sequence, uint32_t tokens);
  void preempt(size_t position);
  uint32_t free_blocks() const;
  uint32_t in_use() const;
  void take_block();
  void hold(blocks::SequenceHash hash);
  void name(Sequence& sequence, uint32_t count);
  void release(Sequence& sequence);
  void emit(Sequence& sequence);

  SimEngineConfig config_;
  const perf::TimingModel& timing_;
  std::deque<Owned> waiting_;
  std::vector<Owned> running_;
  FlatMap<blocks::SequenceHash, Block> blocks_;
  std::list<blocks::SequenceHash> idle_;  // least recently used first
  uint32_t nameless_ = 0;
  uint32_t budget_ = 0;
  bool preempted_ = false;
  bool busy_ = false;
  perf::PassShape shape_;
  SimOutcome outcome_;
};

}  // namespace stator::engine
