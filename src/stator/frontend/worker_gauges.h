// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "stator/core/flat_map.h"
#include "stator/core/ids.h"
#include "stator/core/metrics.h"
#include "stator/core/mutex.h"

namespace stator::frontend {

/// What each worker did last (`<prefix>_worker_last_*`): shown from a worker's first answer until
/// it leaves, so bounded by the workers there are. One per process; thread-safe, a lock per call.
class WorkerGauges {
 public:
  WorkerGauges(Metrics& metrics, std::string prefix);

  /// `type`: "prefill" or "decode"; static text. Workers that are not joined are passed over.
  void joined(WorkerId worker, std::string_view type);
  void left(WorkerId worker);
  void first_token(WorkerKey worker, double seconds, uint32_t prompt_tokens);
  void inter_token(WorkerKey worker, double seconds);

 private:
  struct Shown {
    Gauge first_token;
    Gauge prompt_tokens;
    Gauge inter_token;
  };
  Shown* find(WorkerKey worker) STATOR_REQUIRES(mutex_);
  MetricLabels labels_of(WorkerKey worker, std::string_view type) const;

  Metrics& metrics_;
  const std::string prefix_;
  Mutex mutex_;
  FlatMap<WorkerId, std::string_view> types_ STATOR_GUARDED_BY(mutex_);
  FlatMap<WorkerKey, Shown> shown_ STATOR_GUARDED_BY(mutex_);
};

}  // namespace stator::frontend
