// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "stator/batches/batch_api.h"
#include "stator/batches/batch_config.h"
#include "stator/batches/batch_store.h"
#include "stator/batches/running_batch.h"
#include "stator/core/clock.h"
#include "stator/core/metrics.h"
#include "stator/core/mutex.h"
#include "stator/net/thread.h"

namespace stator::batches {

/// How a line's request ended.
struct LineOutcome {
  int status = 0;
  std::string request_id;
  std::string body;
};

/// Who runs the requests of lines: the frontend.
class LineRunner {
 public:
  virtual ~LineRunner() = default;
  using Done = std::function<void(LineOutcome)>;
  struct Call {
    std::string_view path;
    std::string_view body;
    std::string_view owner;  ///< of the batch
    int32_t priority = 0;
  };
  /// A POST. False: not now, nothing happened. `done` runs
  /// once, on any thread, possibly before this returns; never when the process ends first.
  virtual bool run(const Call& call, Done done) = 0;
};

/// Files and batches of a process: answers calls about them, and runs the requests of batches. One
/// thread does both, so that no loop waits for a disk.
///
/// V1  At most inflight_max lines run; at most kCallsMax calls wait.
/// V2  A line's result is in its batch's journal before it shows in any count, so that neither kill
///     -9 nor stop() loses or repeats one: what was in flight runs again.
/// V3  A line that the frontend refuses as overloaded (429, 503, 529) waits and runs again until
///     the batch expires; one that fails otherwise (5xx) runs kAttemptsMax times.
class BatchService {
 public:
  static constexpr size_t kCallsMax = 1024;
  static constexpr uint32_t kAttemptsMax = 3;

  /// `config` has a folder. Errors as BatchStore::open.
  static Result<std::unique_ptr<BatchService>> open(const BatchConfig& config, Metrics& metrics,
                                                    Clock& clock);
  BatchService(const BatchService&) = delete;
  BatchService& operator=(const BatchService&) = delete;
  ~BatchService();

  /// `runner` outlives stop().
  void start(LineRunner& runner);
  /// Lines in flight are forgotten: they run again after the next start.
  void stop();

  using Reply = std::function<void(api::ApiResult<ApiReply>)>;
  /// Any thread; `reply` runs on the service's thread. False: too many wait.
  bool ask(ApiCall call, Reply reply);
  const BatchConfig& config() const { return config_; }

 private:
  struct Finished {
    std::string batch;
    uint32_t line = 0;
    LineOutcome outcome;
  };
  struct Asked {
    ApiCall call;
    Reply reply;
  };
  BatchService(const BatchConfig& config, Metrics& metrics, Clock& clock);
  void run();
  bool wait_for_work(std::vector<Asked>& asked, std::vector<Finished>& finished);
  void take(const Finished& finished);
  void pump();
  void dispatch(RunningBatch& batch);
  void advance(const std::string& id);
  void open_batches();
  void finalize(RunningBatch& running, std::string_view end);
  void fail_batch(const std::string& id, const Error& error);
  void save_counts(const RunningBatch& running);
  void tick();
  RunningBatch* find(std::string_view id);
  int64_t now_s() const { return unix_seconds(clock_.wall_now()); }

  const BatchConfig config_;
  Clock& clock_;
  Counter lines_done_;
  Counter lines_failed_;
  Counter lines_retried_;
  Gauge inflight_gauge_;
  Gauge running_gauge_;
  Gauge file_bytes_gauge_;

  // The thread's own.
  std::unique_ptr<BatchStore> store_;
  std::vector<std::unique_ptr<RunningBatch>> running_;
  LineRunner* runner_ = nullptr;
  uint32_t inflight_ = 0;
  size_t turn_ = 0;  // whose line is next

  Mutex mutex_;
  std::condition_variable_any wake_;
  std::deque<Asked> asked_ STATOR_GUARDED_BY(mutex_);
  std::deque<Finished> finished_ STATOR_GUARDED_BY(mutex_);
  bool stopping_ STATOR_GUARDED_BY(mutex_) = false;
  net::Thread thread_;
};

}  // namespace stator::batches
