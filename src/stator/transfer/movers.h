// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "stator/core/clock.h"
#include "stator/core/metrics.h"
#include "stator/core/mutex.h"
#include "stator/net/thread.h"
#include "stator/transfer/backend.h"

namespace stator::transfer {

struct Telemetry {
  double seconds = 0;
  uint64_t bytes = 0;
  uint64_t descriptors = 0;
};

/// A transfer that an agent made. What is not atomic is set before it is posted, or belongs to
/// Movers.
struct Transfer {
  /// Of a copy: some pairs, or `len` bytes of one.
  struct Part {
    size_t begin = 0;
    size_t end = 0;
    uint64_t at = 0;
    uint64_t len = 0;
  };

  Op op = Op::kRead;
  std::shared_ptr<const RangeList> local;  // shared with the agent, which may release the list
  std::shared_ptr<const RangeList> remote;
  bool all = false;  // of both lists, in their order
  std::vector<uint32_t> local_indices;
  std::vector<uint32_t> remote_indices;
  Backend* backend = nullptr;
  std::string notification;
  Duration deadline{};
  uint64_t bytes = 0;
  size_t descriptors = 0;
  std::vector<Part> parts;  // of a copy that is not small, or objects: whoever has time does one

  std::atomic<bool> canceled{false};
  std::atomic<Outcome> outcome{Outcome::kNotPosted};

  Pairs pairs() const {
    return all ? Pairs(*local, *remote, descriptors)
               : Pairs(*local, local_indices, *remote, remote_indices);
  }

 private:
  friend class Movers;
  TimePoint began;
  std::atomic<size_t> next_part{0};
  std::atomic<size_t> parts_left{0};
  Ended ended;  // the first failure of its parts
  double seconds = 0;
};
using SharedTransfer = std::shared_ptr<Transfer>;  // shared by the agent, the queue and who waits

/// What an agent has posted, and its threads that move it: one transfer each, or parts of a large
/// copy. Whoever posts a small copy does it; whoever waits does copies that no thread has begun.
///
/// M1  Each post ends with one outcome, after all its bytes are visible, and its notification told.
/// M2  A part of a copy is done by one thread; after a failure or cancel() none begins.
/// Thread-safety: all methods, any thread; post() never blocks.
class Movers {
 public:
  struct Options {
    uint32_t threads = 2;
    uint32_t posted_max = 65'536;
    Duration spin{};
    std::function<void()> news;  ///< a transfer ended; without a lock
  };
  Movers(Options options, Clock& clock, Metrics& metrics);
  /// stop()
  ~Movers();
  Movers(const Movers&) = delete;
  Movers& operator=(const Movers&) = delete;

  /// Bytes of a copy that one thread does at a time; `parts` of larger ones are so long.
  static constexpr uint64_t kPartBytes = uint64_t{2} << 20;

  Outcome post(const SharedTransfer& transfer);
  /// Waits for the end, at most so long.
  Outcome wait(const SharedTransfer& transfer, Duration most);
  /// What was moved by the backend of this transfer lately, in bytes per second; 0: nothing.
  double rate(const Transfer& transfer) const;
  /// How its last post ended.
  Ended ended(const Transfer& transfer) const;
  Telemetry telemetry(const Transfer& transfer) const;
  /// Nothing is begun any more; returns when nothing runs.
  void stop();

 private:
  void work();
  void spin_for_work() const;
  bool help(Transfer& transfer, Duration left);
  void drop(const SharedTransfer& transfer) STATOR_REQUIRES(mutex_);
  void run_whole(Transfer& transfer);
  bool run_part(Transfer& transfer);
  Ended move(const Transfer& transfer, const Pairs& pairs, std::string_view notification) const;
  void finish(Transfer& transfer, Ended ended);

  const Options options_;
  Clock& clock_;
  mutable Mutex mutex_;
  std::condition_variable_any work_;
  mutable std::condition_variable_any done_;
  std::deque<SharedTransfer> queue_ STATOR_GUARDED_BY(mutex_);  // copies stay until all is begun
  std::atomic<size_t> queued_{0};                               // what spinning threads look at
  uint32_t sleepers_ STATOR_GUARDED_BY(mutex_) = 0;
  uint32_t waiters_ STATOR_GUARDED_BY(mutex_) = 0;
  bool stopping_ STATOR_GUARDED_BY(mutex_) = false;
  std::map<const Backend*, double> bytes_per_second_ STATOR_GUARDED_BY(mutex_);

  Metrics& metrics_;
  Counter bytes_;
  Counter requests_;
  Histogram seconds_;
  std::vector<net::Thread> threads_;
};

}  // namespace stator::transfer
