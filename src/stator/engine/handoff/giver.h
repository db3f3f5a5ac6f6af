// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "stator/core/clock.h"
#include "stator/core/metrics.h"
#include "stator/core/mutex.h"
#include "stator/core/random.h"
#include "stator/engine/api/engine.h"
#include "stator/engine/api/model_runner.h"
#include "stator/engine/core/scheduler.h"
#include "stator/engine/handoff/link.h"
#include "stator/engine/handoff/messages.h"

namespace stator::engine::handoff {

/// The prefill side of hand-offs between engines of ours: offers each prompt when it begins to be
/// computed, copies its blocks to staging memory as they become complete, and lets one taker fetch
/// them.
///
///   giver.accept(key, request, owner);              // a kPrefill request went to the scheduler
///   giver.offers(plan.admitted, outputs);           // its frontend may choose a decode worker now
///   giver.stage(plan, runner);                      // after each run(), before its commit
///   giver.on_outputs(outputs);                      // whose prompts are done
///
///            accept()        offers()           on_outputs()             kFetched, lease over
///     ───────────► accepted ─────────► offered ─────────────► computed ─────────────────► gone
///
/// G1  A prompt is given at most once: the second claim, one after the lease, one for another life
///     of the agent and one with another token or namespace are refused, and counted by reason.
/// G2  Staging memory is bounded by `staging_bytes`; when it is full fewer blocks are given, and
///     the taker computes the rest.
/// G3  A lease begins when the prompt is computed; when it is over the blocks' slots are used for
///     others. A taker that still reads finds other checksums than it was told.
/// Threads: on_message() and advance() by the port's, the others by the engine's.
class Giver {
 public:
  struct Options {
    std::string engine_name;
    std::string kind;  ///< HandoffAbility::kind
    storage::Digest space{};
    uint32_t block_tokens = 16;
    uint64_t block_bytes = 0;  ///< 0: blocks without bytes, of a simulated engine
    Duration lease = std::chrono::seconds(30);
    std::string metadata;  ///< of the transfer agent, staging memory included
    std::string agent;     ///< its name and
    uint64_t epoch = 0;    ///< life
  };
  /// `staging` is registered with the agent; it outlives this, as does all else.
  Giver(Options options, std::span<std::byte> staging, Link& link, Clock& clock, Metrics& metrics);
  ~Giver();
  Giver(const Giver&) = delete;
  Giver& operator=(const Giver&) = delete;

  /// `owner`: owner_of() the request, by which its blocks are told from others' of equal tokens.
  void accept(SequenceKey key, const inference::EngineRequest& request, std::string owner);
  /// Offers of those that begin to be computed, each once; `outputs` grows.
  void offers(std::span<Sequence* const> admitted, std::vector<SessionOutput>& outputs);
  /// Copies the blocks that the plan's pass has completed, and those it found in caches.
  void stage(const StepPlan& plan, ModelRunner& runner);
  void on_outputs(std::span<const SessionOutput> outputs);
  void cancel(SessionId session, inference::RequestKey key);
  void cancel_session(SessionId session);
  /// Blocks that are still being computed or may still be fetched.
  size_t owed() const;

  void on_message(std::string_view peer, const Message& message);
  /// Tells takers what is ready and forgets what is over. When to come back at the latest.
  TimePoint advance(TimePoint now);
  /// No more will be computed: takers are told.
  void close();

 private:
  struct Entry;
  using Entries = std::map<uint64_t, std::unique_ptr<Entry>>;  // by Handoff::id
  /// Ended hand-offs of which it is known why; beyond, the oldest are unknown.
  static constexpr size_t kEndedMax = 4096;
  /// Prompts offered at a time; beyond, requests are computed without an offer.
  static constexpr size_t kEntriesMax = 65'536;

  Entry* find(SequenceKey key) STATOR_REQUIRES(mutex_);
  bool stage_block(Entry& entry, std::span<const std::byte> bytes) STATOR_REQUIRES(mutex_);
  void end_prompt(Entry& entry, Verdict verdict) STATOR_REQUIRES(mutex_);
  void forget(Entries::iterator entry, Verdict why) STATOR_REQUIRES(mutex_);
  Verdict judge(const Message& claim) STATOR_REQUIRES(mutex_);
  void claim(std::string_view peer, const Message& message);
  void fetched(std::string_view peer, const Message& message);
  void answer(std::string_view peer, uint64_t id);
  std::vector<Message> news(Entry& entry) STATOR_REQUIRES(mutex_);
  Counter given(std::string_view outcome);

  const Options options_;
  const std::span<std::byte> staging_;
  Link& link_;
  Clock& clock_;
  Metrics& metrics_;

  mutable Mutex mutex_;
  Random random_ STATOR_GUARDED_BY(mutex_);
  Entries entries_ STATOR_GUARDED_BY(mutex_);
  std::map<SequenceKey, uint64_t> by_key_ STATOR_GUARDED_BY(mutex_);
  std::deque<std::pair<uint64_t, Verdict>> ended_ STATOR_GUARDED_BY(mutex_);
  std::vector<uint32_t> free_slots_ STATOR_GUARDED_BY(mutex_);
  uint32_t next_slot_ STATOR_GUARDED_BY(mutex_) = 0;  // slots never used yet begin here
  const uint32_t slots_;

  Counter blocks_;
  Counter bytes_;
  Counter full_;
  Gauge open_;
};

}  // namespace stator::engine::handoff
