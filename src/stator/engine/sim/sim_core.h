// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "stator/blocks/block_hash.h"
#include "stator/core/clock.h"
#include "stator/core/random.h"
#include "stator/core/result.h"
#include "stator/engine/core/scheduling_rules.h"
#include "stator/kv/event.h"
#include "stator/perf/timing_model.h"

namespace stator::engine {

/// What a simulated engine does in a fleet that splits prefill from decode.
enum class SimRole : uint8_t {
  kAggregated,
  kPrefill,  ///< a request is done with its first token, which comes out of the prefill pass
  kDecode,   ///< prompts arrive computed
};
enum class SimPreemption : uint8_t { kNewest, kOldest };

/// One simulated engine, by vLLM's names. The defaults are those of NVIDIA Dynamo's mock engine.
struct SimEngineConfig {
  SchedulingRules rules = SchedulingRules::kVllm;
  SglangConfig sglang;
  uint32_t block_size = 64;  ///< tokens per KV block
  uint32_t blocks = 16'384;
  uint32_t host_blocks = 0;  ///< KV blocks kept in host memory, 0 = no such tier
  perf::HostLink host_link;
  uint32_t dp_size = 1;  ///< data-parallel ranks, each with all this of its own; see SimRanks
  uint32_t max_num_seqs = 256;
  uint32_t max_num_batched_tokens = 8192;  ///< at least max_num_seqs
  uint32_t max_model_len = 0;              ///< longer prompts are refused; 0 = no limit
  bool prefix_caching = true;
  bool chunked_prefill = true;
  SimPreemption preemption = SimPreemption::kNewest;
  SimRole role = SimRole::kAggregated;
  double speedup = 1;         ///< of everything
  double decode_speedup = 1;  ///< further, of the decode part of a pass
  /// Speculative decoding: with what probability draft token i is accepted once all before it
  /// were; empty: off.
  std::vector<double> draft_acceptance;
  bool publish_events = true;
};

inline constexpr uint32_t kSimRanksMax = 1024;  ///< of one engine

/// kInvalidArgument that names the value to change.
Status validate(const SimEngineConfig& config);

/// A request as a simulated engine sees it: lengths and the identity of its blocks, no tokens.
struct SimRequest {
  uint32_t id = 0;  ///< the caller's
  uint32_t prompt_tokens = 1;
  uint32_t output_tokens = 1;  ///< how many it will generate
  /// Of the prompt's full blocks.
  std::vector<blocks::SequenceHash> sequences;
  std::vector<blocks::LocalHash> locals;
  uint64_t answer_seed = 0;  ///< identity of what it will generate
  /// Computed elsewhere (decode role): the prompt and the first token need no prefill.
  bool prefilled = false;
  TimePoint first_token{};  ///< of a prefilled request
};

/// What some passes of an engine led to, to be read at the time they end.
struct SimOutcome {
  struct Admission {
    uint32_t id = 0;
    uint32_t cached_tokens = 0;  ///< of its tokens, found in the cache
    uint32_t host_tokens = 0;    ///< of those, in host memory
  };
  struct Token {
    uint32_t id = 0;
    TimePoint time{};
  };
  struct Answer {
    uint32_t id = 0;
    uint32_t tokens = 0;  ///< generated so far
  };
  struct Gap {
    Duration duration{};  ///< between consecutive tokens of a request
    uint64_t times = 0;
  };

  TimePoint start{};
  TimePoint end{};
  uint64_t passes = 0;
  uint64_t dummy_passes = 0;    ///< of a rank without work, see SimRanks
  uint64_t prefill_tokens = 0;  ///< prompt tokens computed
  uint32_t preemptions = 0;
  uint64_t offloaded_blocks = 0;    ///< copied to host memory
  std::vector<Admission> admitted;  ///< at `start`; once more after each preemption
  std::vector<uint32_t> rejected;   ///< could never run here
  std::vector<uint32_t> first;      ///< got their first token at `end`
  std::vector<Token> second;        ///< got their second token
  std::vector<Answer> grown;        ///< whose answer has filled a KV block, or ended
  std::vector<uint32_t> finished;   ///< got their last token at `end`
  std::vector<Gap> gaps;
  std::vector<kv::KvEventData> host_events;  ///< of the host tier, before the device's
  std::vector<kv::KvEventData> events;

  void clear();
};

/// A simulated engine on virtual time: the scheduler, block pool and clock arithmetic of a real
/// one, without tokens. A pure state machine; one thread at a time.
///
///   core->submit(request);
///   if (!core->busy()) end = core->start(now);   // else: end = core->interrupt(now)
///   … at `end`: core->finish(outcome); if (core->has_work()) end = core->start(end);
class SimCore {
 public:
  struct Load {
    uint32_t waiting = 0;
    uint32_t running = 0;
    uint32_t blocks_in_use = 0;
  };

  virtual ~SimCore() = default;
  virtual void submit(SimRequest request) = 0;
  /// Between start() and finish().
  virtual bool busy() const = 0;
  virtual bool has_work() const = 0;
  /// Plans one or several passes from `now` on; the time when finish() is due. Has work, not busy.
  virtual TimePoint start(TimePoint now) = 0;
  /// A request was submitted at `now`, while busy: the time when finish() is due now. Only passes
  /// that begin after `now` are put off.
  virtual TimePoint interrupt(TimePoint now) = 0;
  /// When the passes under way will end, in order, appended to `ends`.
  virtual void list_ends(std::vector<TimePoint>& ends) const = 0;
  /// Others must be waited for (see SimRanks): only so many of the passes under way take place, and
  /// they end at `ends`, no sooner than they would.
  virtual void keep_pace(std::span<const TimePoint> ends) = 0;
  /// Ends the passes under way; `outcome` is cleared first.
  virtual void finish(SimOutcome& outcome) = 0;
  virtual Load load() const = 0;
  /// A request that was inside when its engine died.
  struct Lost {
    uint32_t id = 0;
    uint32_t tokens = 0;     ///< of its answer that had come out, SimRequest::prefilled's included
    TimePoint last_token{};  ///< when the last of them did
  };
  /// The engine dies at `now`, before finish() is due. Passes that have ended by then are told in
  /// `outcome`, the one under way is lost; `lost` gets all requests inside. No call may follow.
  virtual void fail(TimePoint now, SimOutcome& outcome, std::vector<Lost>& lost) = 0;
};

enum class SimPasses : uint8_t {
  kCompressed,  ///< all passes between two changes of the schedule at once
  kNaive,       ///< one by one, token by token, block by block: the oracle
  kProduction,  ///< by the scheduler of live engines; the only way for what the others do not know:
                ///< SGLang's rules, speculative decoding, a host tier
};

/// `timing` outlives the core. The config has been validated.
std::unique_ptr<SimCore> make_sim_core(const SimEngineConfig& config,
                                       const perf::TimingModel& timing,
                                       SimPasses passes = SimPasses::kCompressed);

/// The identity of generated block `index` of a sequence.
inline blocks::LocalHash answer_block(uint64_t answer_seed, uint64_t index) {
  return blocks::LocalHash(mix64(answer_seed ^ mix64(index)));
}

}  // namespace stator::engine
