// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "stator/core/clock.h"
#include "stator/core/metrics.h"
#include "stator/core/mutex.h"
#include "stator/engine/api/engine.h"
#include "stator/engine/api/long_prompts.h"
#include "stator/engine/api/model_runner.h"
#include "stator/engine/core/load_or_compute.h"
#include "stator/engine/core/scheduler.h"
#include "stator/engine/handoff/taker.h"
#include "stator/kv/event.h"
#include "stator/storage/lower_tiers.h"

namespace stator::engine {

/// Between one engine rank and where else KV blocks are: the tiers below its host memory, and
/// engines that compute prompts for it. On the way up, a request whose prompt has blocks there
/// waits beside the scheduler until they are in host memory, or until it has waited long enough; on
/// the way down, blocks that were registered are offered to the tiers.
///
///   if (!lanes.park(session, request)) { scheduler.add(…); }
///   for (Parked& ready : lanes.collect(now)) { scheduler.add(…); }    // after wake()
///   lanes.offload();                                                  // after each commit
///
/// L1  Host slots of a load belong to it until it is over, whatever became of its request; close()
///     waits for that.
/// L2  A block is offered by its content: one that was evicted before its turn is skipped.
/// L3  Nothing here changes tokens: a load that fails or comes late is a shorter cached prefix.
/// L4  Requests that lack the same block share one load; later ones look again when it is over.
/// Home thread: the engine's, but wake() is called by others.
class TierLanes {
 public:
  struct Options {
    Duration load_timeout = std::chrono::seconds(2);
    Duration handoff_timeout = std::chrono::seconds(30);  ///< for prompts that others compute
    std::string_view engine_name;
    const AdapterSource* adapters = nullptr;  ///< outlives this
    LongPrompts long_prompts = {};
    storage::Digest space{};  ///< of the blocks
    uint32_t block_tokens = 16;
  };
  /// Either may be null. They outlive this.
  struct Sources {
    storage::LowerTiers* lower = nullptr;
    handoff::Taker* taker = nullptr;  ///< of kDecode requests' prompts
  };
  /// `wake` may be called from any thread until close() returns; all references outlive this.
  TierLanes(Sources sources, Scheduler& scheduler, ModelRunner& runner, Options options,
            std::function<void()> wake, Metrics& metrics);
  ~TierLanes();
  TierLanes(const TierLanes&) = delete;
  TierLanes& operator=(const TierLanes&) = delete;

  struct Parked {
    SessionId session;
    inference::EngineRequest request;
    std::unique_ptr<guided::Guide> guide;
  };
  /// True: it was taken, and comes back from collect() unless it is cancelled.
  bool park(Parked& ready, TimePoint now);
  /// Requests that may go on.
  std::vector<Parked> collect(TimePoint now);
  /// When collect() has something to do at the latest; max() if nothing waits.
  TimePoint next_deadline() const;
  bool cancel(SessionId session, inference::RequestKey key);
  void cancel_session(SessionId session);
  /// All that wait, for the engine is stopping.
  std::vector<Parked> take_all();
  uint32_t parked() const { return parked_; }

  /// A pass computed so many tokens: what loading is weighed against.
  void saw_pass(uint64_t tokens, Duration took) { costs_.saw_compute(tokens, took); }
  /// Offers what was registered since the last call.
  void offload();
  /// What came into or left the tiers below host memory since the last call, as KV events without
  /// rank. Parents come first, so they go behind the scheduler's own.
  std::vector<kv::KvEvent> take_tier_events();
  /// The cache was reset: loads under way are of no use any more, and routers, who are told that
  /// everything is gone, hear again what the lower tiers hold.
  void forget();
  /// Waits for loads under way; nothing calls wake() afterwards.
  void close();

 private:
  struct Fetch;
  struct Named {
    kv::ContentId content;
    storage::BlockName name;
  };
  struct Offered {
    kv::BlockId block;
    kv::ContentId content;
  };
  /// Blocks waiting for room on the way down; beyond, the oldest are skipped.
  static constexpr size_t kOfferedMax = 4096;

  void begin_load(const std::shared_ptr<Fetch>& of, size_t known, TimePoint now);
  void begin_take(const std::shared_ptr<Fetch>& of);
  std::shared_ptr<Fetch> find_flight(const Fetch& wanted) const;
  void follow_up(const std::shared_ptr<Fetch>& of, TimePoint now);
  void land(Fetch& fetch, size_t loaded, TimePoint now);
  void begin_work();
  void report(Fetch& fetch, size_t count);
  void follow_changes();
  const storage::BlockName* name(const kv::BlockPool::Registration& block);

  const Sources sources_;
  Scheduler& scheduler_;
  ModelRunner& runner_;
  const Options options_;
  const std::function<void()> wake_;

  std::vector<std::shared_ptr<Fetch>> fetches_;  // shared with the loads under way
  uint32_t parked_ = 0;
  std::vector<Named> named_;  // by block
  std::deque<Offered> offered_;
  uint64_t epoch_ = 0;
  LoadOrCompute costs_;

  Mutex mutex_;
  uint32_t under_way_ STATOR_GUARDED_BY(mutex_) = 0;
  // Taken after each pass; no more than the tiers hold and have given up meanwhile.
  std::vector<storage::TierChange> changes_ STATOR_GUARDED_BY(mutex_);
  std::condition_variable_any landed_;

  Counter loaded_tokens_;
  Counter late_;
  Counter shared_loads_;
  Counter declined_;
  Counter skipped_;
  Gauge parked_gauge_;
};

}  // namespace stator::engine
