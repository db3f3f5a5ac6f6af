// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "stator/engine/api/forward_pass.h"
#include "stator/engine/api/model_runner.h"
#include "stator/engine/core/engine_metrics.h"
#include "stator/engine/core/forward_pass_log.h"
#include "stator/engine/core/scheduler.h"
#include "stator/engine/core/tier_lanes.h"
#include "stator/inference/request.h"
#include "stator/kv/event.h"

namespace stator::engine {

/// A data-parallel rank.
struct Rank {
  Rank(const EngineConfig& config, std::unique_ptr<ModelRunner> runner_in, Metrics& metrics_in,
       std::string_view name)
      : runner(std::move(runner_in)),
        scheduler(config),
        metrics(metrics_in, name, runner->device_block(BlockId(0)).size()) {}
  const std::unique_ptr<ModelRunner> runner;
  Scheduler scheduler;
  EngineMetrics metrics;
  std::unique_ptr<TierLanes> lanes;  // null: no tiers below host memory
  std::vector<Sampled> sampled;      // of the pass under way
  uint32_t tokens = 0;               // it computes
  ForwardPass pass;                  // under way, or the last one told
  uint64_t warn_at = 1;              // of so many forged blocks
};

/// The ranks of an engine, and what is asked of all of them. The engine's thread.
class Ranks {
 public:
  /// In the order of their numbers.
  void add(std::unique_ptr<Rank> rank) { ranks_.push_back(std::move(rank)); }

  size_t size() const { return ranks_.size(); }
  Rank& operator[](size_t index) { return *ranks_[index]; }
  auto begin() const { return ranks_.begin(); }
  auto end() const { return ranks_.end(); }

  /// The one that the request names, else the least loaded.
  Rank& choose(const inference::EngineRequest& request);
  void cancel(SessionId session, inference::RequestKey key);
  void cancel_session(SessionId session);
  void reset_prefix_cache();
  void discard_kv();
  void offload();

  /// Nothing waits and nothing runs.
  bool idle() const;
  /// When blocks from lower tiers are late at the earliest; TimePoint::max() if none are awaited.
  TimePoint next_deadline() const;
  LoadReport load() const;
  /// What has changed in their caches since the last call, of all tiers.
  std::vector<kv::KvEvent> take_events();
  /// Brings the metrics up to date, and warns of forged blocks: of the first and of every doubling,
  /// as a client may forge as many as it likes.
  void report(const std::string& engine);
  /// A rank that reported passes reports when they are over.
  void report_idle(ForwardPassLog& passes);

 private:
  std::vector<std::unique_ptr<Rank>> ranks_;
};

}  // namespace stator::engine
