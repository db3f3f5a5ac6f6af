// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "stator/core/flat_map.h"
#include "stator/core/metrics.h"
#include "stator/router/load_lease.h"
#include "stator/router/queue/policy_classes.h"
#include "stator/router/queue/request_queue.h"
#include "stator/router/router.h"

namespace stator::router {

/// What became of asking another router (Advisor).
enum class Advised : uint8_t {
  kFollowed,
  kUnusable,  ///< it named a worker that is not here, or must not be used
  kSilent,    ///< it is away, too slow, or knows nobody
  kTooMany,   ///< not asked: too many requests wait for its answers
};
inline constexpr size_t kAdvisedCount = 4;

/// The metrics of one model's router; names and labels are those that dashboards and planners of
/// the reference system read. Series of a worker go with the worker, so a fleet that changes for
/// ever costs what it needed at most at once. Not thread-safe where it says so; the handles are.
class RouterMetrics {
 public:
  RouterMetrics(Metrics& metrics, std::string_view model, std::string_view worker_type);
  RouterMetrics(RouterMetrics&&) noexcept = default;
  RouterMetrics& operator=(RouterMetrics&&) = delete;
  ~RouterMetrics();

  /// What the load book observes.
  const LoadInstruments& load() const { return load_; }

  void started() const { started_.add(); }
  void decided(const Receipt& receipt, uint32_t overlap_blocks) const;
  void scheduled(Duration took) const;
  void waited(Duration queued) const;
  /// `policy`: the class the request belonged to; null: there are none.
  void shed(Shed shed, const PolicyClass* policy);
  void refused(Refusal refusal) const { refusals_[static_cast<size_t>(refusal)].add(); }
  void advice(Advised outcome) const { advised_[static_cast<size_t>(outcome)].add(); }
  /// Because everybody is busy.
  void rejected() const { rejections_.add(); }
  void set_queue(const RequestQueue& queue, std::span<const PolicyClass> classes);
  void set_sessions(size_t count) const { sessions_.set(static_cast<double>(count)); }

  /// Shows the worker's load as long as it is there. One thread at a time.
  void add_worker(WorkerKey worker, LoadSlot slot, const std::shared_ptr<LoadBook>& book);
  void remove_worker(WorkerKey worker);

 private:
  /// What waits of one class of requests.
  struct Pending {
    Gauge requests, prompt_tokens, cached_tokens;
    Counter sheds[kShedCount];
  };
  Pending& pending(const std::string& policy_class);
  void count_advice(Metrics& metrics);
  MetricLabels labels_of(WorkerKey worker) const;

  Metrics* metrics_;
  std::string model_;
  std::string worker_type_;
  LoadInstruments load_;
  Counter started_, decisions_, finished_, overlap_blocks_, prompt_blocks_, rejections_, non_max_;
  Counter refusals_[kRefusalCount];
  Counter advised_[kAdvisedCount];
  FlatMap<std::string, Pending> pending_;  // classes of the configuration, or "default"
  Gauge pending_bytes_, sessions_, registered_;
  Histogram hit_rate_, prompt_tokens_, scheduling_ms_, total_ms_, wait_seconds_, overlap_lost_;
  FlatSet<WorkerKey> shown_;
};

}  // namespace stator::router
