// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "stator/core/clock.h"
#include "stator/core/metrics.h"
#include "stator/core/mutex.h"
#include "stator/core/result.h"
#include "stator/frontend/model_catalog.h"
#include "stator/net/thread.h"
#include "stator/router/index/index_config.h"
#include "stator/router/index/index_snapshot.h"

namespace stator::frontend {

/// Keeps what the routers know of their workers' caches in one file over a restart of the process:
/// reads it at start, hands each model its part when the model appears, writes all of them from
/// time to time and once more at the end. A file that cannot be used costs a warning and the
/// knowledge, never the start, unless it is some other program's file.
///
/// Thread-safe; one thread of its own after start().
class IndexSnapshotService {
 public:
  using Models = std::function<std::vector<std::shared_ptr<ServedModel>>()>;

  /// kInvalidArgument when the file is there and no snapshot: it would be overwritten.
  static Result<std::unique_ptr<IndexSnapshotService>> open(const router::IndexConfig& config,
                                                            const Clock& clock, Metrics& metrics);
  ~IndexSnapshotService();

  /// Gives a model that has just been made what was known of it. Before its router is used.
  void restore(const ServedModel& model);
  /// From now on writes what `models` returns; it must be callable until stop().
  void start(Models models);
  /// Writes a last time. Idempotent.
  void stop();

 private:
  IndexSnapshotService(const router::IndexConfig& config, const Clock& clock, Metrics& metrics);
  Status read();
  void restore(const ServedModel& model, router::RouterService& router);
  void loop();
  void save();

  const router::IndexConfig config_;
  const Clock& clock_;
  Counter written_;
  Counter write_failures_;
  Counter unreadable_;
  Gauge bytes_;
  TimePoint opened_at_;
  Models models_;  // set before the thread starts

  Mutex mutex_;
  std::condition_variable_any wake_;
  bool stopping_ STATOR_GUARDED_BY(mutex_) = false;
  /// Parts of models that have not appeared; kept for the grace time.
  std::vector<router::IndexSnapshot> waiting_ STATOR_GUARDED_BY(mutex_);
  net::Thread thread_;
};

}  // namespace stator::frontend
