// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <span>
#include <vector>

#include "stator/core/clock.h"
#include "stator/core/flat_map.h"
#include "stator/core/result.h"
#include "stator/engine/api/engine.h"
#include "stator/engine/api/forward_pass.h"
#include "stator/engine/api/model_runner.h"
#include "stator/engine/core/engine_config.h"
#include "stator/engine/core/kept_prefixes.h"
#include "stator/engine/core/sequence.h"
#include "stator/engine/core/sglang_rules.h"
#include "stator/kv/block_pool.h"
#include "stator/kv/event.h"
#include "stator/kv/host_tier.h"
#include "stator/perf/timing_model.h"

namespace stator::engine {

/// What the next step computes. Owned by the scheduler and valid until the next commit().
struct StepPlan {
  std::vector<SequenceSlice> slices;
  std::vector<Sequence*> sequences;   ///< parallel to `slices`; the scheduler's own bookkeeping
  std::vector<Sequence*> admitted;    ///< that began to run with this step, in that order
  uint32_t tokens = 0;                ///< sum of the slices' counts
  std::vector<kv::BlockCopy> copies;  ///< to be done in order before it, even if nothing computes
  perf::PassShape shape;  ///< the same, as timing models and forward-pass metrics see it
  bool empty() const { return slices.empty(); }
};

/// One session's share of what a step produced.
struct SessionOutput {
  SessionId session;
  inference::StepOutput output;
};

/// Totals since construction.
struct SchedulerTotals {
  uint64_t prefix_hit_tokens = 0;
  uint64_t host_hit_tokens = 0;  ///< of prefix_hit_tokens
  uint64_t prefix_query_tokens = 0;
  uint64_t preemptions = 0;
  uint64_t computed_tokens = 0;   ///< prompt and output positions, recomputed ones again
  uint64_t generated_tokens = 0;  ///< delivered
  uint64_t finished_requests = 0;
  uint64_t admitted_requests = 0;
  Duration queue_wait{};  ///< from add() to first admission, summed
};

/// What is known of a request's prompt by other means than its tokens: in simulations that know
/// blocks but no text, and after a hand-off.
struct KnownPrompt {
  std::span<const blocks::SequenceHash> sequences;  ///< of its full blocks; empty: hash the tokens
  std::span<const blocks::LocalHash> locals;
  bool computed = false;  ///< its KV was computed elsewhere and moves in at admission
};

/// Continuous batching: decides, step by step, which sequences compute which tokens into which KV
/// blocks. The same code under the CPU engine, the simulated engine and the cluster simulator.
/// Pure: no I/O, clock, lock or thread; one caller.
///
///   scheduler.add(session, request, now);
///   while (!scheduler.idle()) {
///     const StepPlan& plan = scheduler.plan(now);
///     runner.run(plan.slices, sampled);
///     for (SessionOutput& out : scheduler.commit(sampled)) { … }
///     log.append(scheduler.take_events());
///   }
///
///            add()            plan(): admitted              commit(): last token
///     ─────────────► Waiting ─────────────────► Running ──────────────────────► Ended
///                       ▲                          │ │
///                       └── plan(): out of blocks ─┘ └── cancel(), fail_all() ─► Ended
///
/// A step gives every decoding sequence one token, then continues started prefills, then admits
/// waiting requests, each in policy order, within max_num_batched_tokens and max_num_seqs (and,
/// where somebody decodes, within prefill_budget). A
/// request is admitted when all its tokens so far fit into blocks that are reusable, free or
/// evictable; the head of the queue is never overtaken. When a decoding sequence finds no block,
/// the running sequence last in policy order is preempted: its blocks are given back, it keeps its
/// tokens and is recomputed later, mostly from its own cached prefix. A waiting request never
/// preempts a running one. These are vLLM's rules; SchedulingRules names the others.
///
/// A prompt that is computed for another worker takes EngineConfig::handoff_passes even where it
/// would fit into one.
///
/// Under SGLang's (sglang_rules.h) a step is either prompts, as many as PrefillAdmission takes, or
/// one token for everybody; of several begun prompts there is at most one. When blocks run out, the
/// sequence with the fewest generated tokens is retracted.
///
/// S1  A sequence is in exactly one of waiting_ (no blocks) and running_ (blocks for all computed
///     positions); both are in policy order.
/// S2  running ≤ max_num_seqs; a plan computes ≤ max_num_batched_tokens; waiting ≤ waiting_max, not
///     counting preempted sequences.
/// S3  computed < tokens for every sequence between steps: there is always a token to compute.
/// S4  The first delta of a sequence has offset `generated`, each later one the offset where the
///     last ended, whatever was preempted or recomputed in between: no token is sent twice.
/// S5  A sequence that runs alone always gets a block (resolve() checked the pool against
///     max_model_len), so plan() is not empty while there is a live request.
/// S6  Each accepted, not cancelled request ends exactly once: with `finish` or with a failure.
/// S7  No add, cancel or reset between plan() and commit().
/// S8  Prefixes that are kept (KeptPrefixes) give way before anybody waits or is
///     preempted for want of blocks; reports count their blocks as cached.
class Scheduler {
 public:
  /// `config` must come from resolve(). `events`: whether anybody calls take_events().
  explicit Scheduler(const EngineConfig& config,
                     kv::BlockPool::Events events = kv::BlockPool::Events::kRecord);
  ~Scheduler();
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  /// Queues a request that passed validate(). kOverloaded: the queue is full. kAlreadyExists: the
  /// session has a live request of that key. O(log waiting + tokens).
  /// `guide`: has accepted the request's generated tokens; null: any token may come.
  Status add(SessionId session, inference::EngineRequest request, TimePoint now,
             const KnownPrompt& known = {}, std::unique_ptr<guided::Guide> guide = nullptr);
  /// Frees the sequence's blocks now; nothing more is said about it. False for an unknown key.
  bool cancel(SessionId session, inference::RequestKey key);
  /// The same for everything of one session. O(live sequences).
  void cancel_session(SessionId session);
  /// Ends every live request with a failure of this error.
  std::vector<SessionOutput>& fail_all(const Error& error);

  /// Decides the next step. Empty only when idle(). O(running + admitted).
  const StepPlan& plan(TimePoint now);
  /// Applies the planned step's outcome; `sampled` is parallel to the plan's slices (logprobs are
  /// moved out). At most one output per session; the vector is reused by the next call, its
  /// elements may be moved from.
  std::vector<SessionOutput>& commit(std::span<Sampled> sampled);

  /// KV events since the last call, in order.
  std::vector<kv::KvEventData> take_events() { return pool_.take_events(); }
  /// Those of the host tier, to be told before take_events()'s: what moves there names parents that
  /// the device has until then.
  std::vector<kv::KvEventData> take_host_events() { return host_.take_events(); }
  // Between two steps, for blocks that come from or go to lower tiers; see kv::BlockPool.
  /// How many of the first blocks the device and then host memory have.
  size_t cached_blocks(const kv::SequenceBlocks& sequence) const;
  /// Slots for blocks behind those, which stay.
  std::vector<uint32_t> reserve_host_slots(const kv::SequenceBlocks& sequence, uint32_t count);
  void give_back_host_slots(std::span<const uint32_t> slots);
  size_t adopt_host_blocks(const kv::SequenceBlocks& sequence, size_t begin,
                           std::span<const uint32_t> slots) {
    return pool_.adopt(sequence, begin, slots);
  }
  void record_registrations() { pool_.record_registrations(); }
  std::vector<kv::BlockPool::Registration> take_registrations() {
    return pool_.take_registrations();
  }

  /// Forgets all cached blocks (used ones stay readable for their sequences).
  void reset_prefix_cache();

  bool idle() const { return waiting_.empty() && running_count() == 0; }
  uint32_t running_count() const { return running_count_; }
  uint32_t waiting_count() const { return static_cast<uint32_t>(waiting_.size()); }
  LoadReport load() const;
  /// Of the plan that is not committed yet. O(slices).
  PassWork planned_work() const;
  /// Who waits now. O(waiting).
  PassQueue queue() const;
  const SchedulerTotals& totals() const { return totals_; }
  const kv::BlockPool& pool() const { return pool_; }
  const kv::HostTier& host_tier() const { return host_; }
  const KeptPrefixes& kept_prefixes() const { return kept_; }

  /// Checks S1-S3 and the pool's invariants; aborts if one is broken. O(everything); for tests.
  void check_invariants() const;

 private:
  struct PolicyOrder {
    SchedulingPolicy policy;
    bool operator()(const Sequence* a, const Sequence* b) const;
  };
  struct SessionSlot {
    SessionId session;
    uint32_t live = 0;        // sequences; the slot is reused at 0
    uint32_t output = kNone;  // index in outputs_ during a commit
  };
  static constexpr uint32_t kNone = UINT32_MAX;

  // plan()
  void forget_ended();
  /// Returns whether somebody was preempted.
  bool plan_running();
  void plan_waiting(TimePoint now);
  /// Under SGLang's rules; false when there is no prompt to compute.
  bool plan_prompts(TimePoint now);
  void plan_decodes();
  std::vector<Sequence*> prompt_order() const;
  double promised_tokens() const;
  uint32_t answer_left(const Sequence& sequence) const;
  bool retract(uint32_t missing_blocks);

  struct PrefixHit {
    kv::SequenceBlocks wanted;
    kv::BlockPool::PrefixPeek peek;
    uint32_t host_blocks = 0;  // behind those of the device
    uint32_t computed = 0;     // tokens that need no computing
  };
  PrefixHit find_prefix(const Sequence& sequence) const;
  bool has_room(const Sequence& sequence, const PrefixHit& hit) const;
  bool make_room(const Sequence& sequence, PrefixHit& hit);
  bool try_admit(Sequence& sequence, TimePoint now);
  void admit(Sequence& sequence, const PrefixHit& hit, TimePoint now);
  void take_blocks(Sequence& sequence, const PrefixHit& hit);
  bool grow(Sequence& sequence);
  void preempt(Sequence& sequence);
  void schedule(Sequence& sequence, uint32_t count);
  void merge_admitted();

  // commit()
  void register_full_blocks(Sequence& sequence);
  void accept(Sequence& sequence, Sampled& sampled);
  void append_token(Sequence& sequence, TokenId token, inference::StepOutput& output,
                    inference::Delta& delta);
  bool follow_grammar(Sequence& sequence, inference::StepOutput& output, inference::Delta& delta);
  void refuse_token(Sequence& sequence, inference::StepOutput& output);
  void fail(Sequence& sequence, Error error);
  void send_prompt_scores(Sequence& sequence, inference::StepOutput& output) const;
  inference::StepOutput& output_for(const Sequence& sequence);
  void close_outputs();

  std::vector<Sequence*> live_in_arrival_order() const;
  void end(Sequence& sequence);
  void keep_prefix(const Sequence& sequence);

  uint32_t take_slot(SessionId session);
  uint32_t blocks_for(size_t tokens) const;
  /// Of the next step, with room for drafted tokens.
  uint32_t blocks_wanted(const Sequence& sequence) const;
  uint32_t blocks_missing(const Sequence& sequence) const;  ///< of those
  uint32_t blocks_to_end(const Sequence& sequence) const;

  const EngineConfig config_;
  kv::HostTier host_;
  kv::BlockPool pool_;
  KeptPrefixes kept_;  // before requests that run only as long as they fit
  TimePoint now_{};    // of the last plan
  uint64_t next_sequence_ = 1;
  uint32_t running_count_ = 0;
  uint32_t preempted_waiting_ = 0;
  bool planned_ = false;
  SchedulerTotals totals_;

  FlatMap<SequenceKey, std::unique_ptr<Sequence>> live_;
  std::set<Sequence*, PolicyOrder> waiting_;
  std::vector<Sequence*> running_;  // policy order; ended ones stay until the next plan()
  std::vector<std::unique_ptr<Sequence>> ended_;

  std::vector<SessionSlot> sessions_;
  FlatMap<SessionId, uint32_t> session_slots_;
  std::vector<uint32_t> free_slots_;

  StepPlan plan_;
  uint32_t budget_ = 0;
  std::vector<Sequence*> chosen_;  // scratch: prompts begun, or who decodes under SGLang
  Sequence* chunked_ = nullptr;    // SGLang: whose prompt was begun
  NewTokenRatio new_token_ratio_;
  uint64_t promised_blocks_ = 0;  // TensorRT-LLM: to those running
  std::vector<SessionOutput> outputs_;
  std::vector<uint32_t> output_slots_;  // parallel to outputs_
};

}  // namespace stator::engine
