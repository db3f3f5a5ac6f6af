// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "stator/engine/sim/prefix_cache.h"
#include "stator/engine/sim/sim_core.h"

namespace stator::engine {

/// vLLM's scheduling rules at the price of a change of the schedule, not of a token.
///
/// Sequences that decode advance in step, one token per pass, so that what happens to each next
/// (its block is full, its answer ends) is known as a number of a pass, and nothing is done in
/// between: all passes up to the nearest such number are one step of the simulation. They take
/// equally long, because nothing is allocated (with a timing that reads the context, they are
/// summed one by one). An arrival cuts the step short at the next pass.
///
/// S1  At most one sequence has a part of its prompt computed, and it is the last one running: who
///     is admitted after it only gets the tokens that it left.
/// S2  max_num_batched_tokens ≥ max_num_seqs, so that every decoding sequence is in every pass.
/// S3  The outcome is that of NaiveSimCore, bit by bit.
class SimScheduler final : public SimCore {
 public:
  SimScheduler(const SimEngineConfig& config, const perf::TimingModel& timing);

  void submit(SimRequest request) override;
  bool busy() const override { return step_.passes > 0; }
  bool has_work() const override { return !waiting_.empty() || !running_.empty(); }
  TimePoint start(TimePoint now) override;
  TimePoint interrupt(TimePoint now) override;
  void list_ends(std::vector<TimePoint>& ends) const override;
  void keep_pace(std::span<const TimePoint> ends) override;
  void finish(SimOutcome& outcome) override;
  Load load() const override;
  void fail(TimePoint now, SimOutcome& outcome, std::vector<Lost>& lost) override;

 private:
  using Index = uint32_t;  // into sequences_
  static constexpr Index kNobody = ~0U;
  static constexpr uint64_t kNever = ~0ULL;

  enum class State : uint8_t { kWaiting, kPrefilling, kDecoding };
  struct Sequence {
    SimRequest request;
    State state = State::kWaiting;
    uint32_t computed = 0;   // tokens with KV, unless decoding
    uint32_t generated = 0;  // at the end of pass `base`
    uint64_t base = 0;       // decoding: one more token per pass since then
    uint64_t order = 0;      // of admission
    PrefixCache::Run leaf = PrefixCache::kNone;
    uint32_t named_blocks = 0;     // of the chain, held through `leaf`
    uint32_t nameless_blocks = 0;  // behind them
    TimePoint last_token{};        // when it was preempted
  };
  /// The passes under way.
  struct Step {
    TimePoint start{};
    uint64_t passes = 0;
    Duration prefill{};
    Duration decode{};  // of the first pass, and of all if the timing does not read the context
    perf::PassShape shape;
    std::vector<TimePoint> paced;  // when its passes end, where others must be waited for
  };

  uint32_t length(const Sequence& sequence) const;
  uint32_t generated(const Sequence& sequence) const;
  uint32_t decoding() const;
  Index take_record(SimRequest request);

  void plan_blocks();
  void plan_prefill(perf::PassShape& shape);
  void plan_admissions(perf::PassShape& shape);
  bool fits(const Sequence& sequence) const;
  uint32_t blocks_to_end(const Sequence& sequence) const;
  bool admit(Index index, perf::PassShape& shape);
  void schedule_chunk(Index index, uint32_t tokens, perf::PassShape& shape);
  bool make_room(Index index, uint32_t blocks);
  void preempt(Index index);
  void grow(Sequence& sequence);
  void name_blocks(Sequence& sequence, uint32_t count);
  void note_removed();
  void free_blocks(Sequence& sequence);
  Duration decode_time(uint64_t pass) const;
  TimePoint end_of(uint64_t passes) const;
  uint64_t quiet_passes() const;

  void count_gaps(SimOutcome& outcome);
  void start_answer(Index index, SimOutcome& outcome);
  void end_passes(SimOutcome& outcome);
  uint64_t next_change(const Sequence& sequence) const;

  SimEngineConfig config_;
  const perf::TimingModel& timing_;
  PrefixCache cache_;
  std::vector<Sequence> sequences_;
  std::vector<Index> free_records_;
  std::deque<Index> waiting_;
  std::vector<Index> running_;      // in the order of admission
  std::vector<uint64_t> next_;      // of running_: pass after which something happens
  Index prefilling_ = kNobody;      // the last one running, between two passes
  std::vector<Index> completing_;   // whose prompt the pass under way completes
  std::vector<Index> needs_block_;  // before the next pass
  std::vector<Index> fresh_;        // with exactly one token
  uint64_t passes_ = 0;             // done
  uint32_t budget_ = 0;             // tokens left in the pass being planned
  uint64_t admissions_ = 0;
  uint64_t context_tokens_ = 0;   // Σ length of decoding sequences
  uint64_t promised_blocks_ = 0;  // to those running, under TensorRT-LLM\'s rules
  bool preempted_ = false;        // in the pass being planned
  bool head_blocked_ = false;     // the first one waiting found no room
  Step step_;
  SimOutcome pending_;            // what planning led to, told by finish()
  PrefixCache::Removed removed_;  // scratch
};

}  // namespace stator::engine
