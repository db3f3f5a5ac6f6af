// SPDX-License-Identifier: Apache-2.0
#include "stator/transfer/movers.h"

#include <algorithm>
#include <utility>

namespace stator::transfer {
namespace {

/// Between two looks at the clock while spinning.
constexpr int kPauses = 16;
constexpr double kRateWeight = 0.25;
constexpr double kSeconds[] = {1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1, 10};

void pause_cpu() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

/// Bytes that are copied in the time for sure: 1 GB/s.
uint64_t copied_within(Duration time) {
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(time).count());
}

}  // namespace

Movers::Movers(Options options, Clock& clock, Metrics& metrics)
    : options_(std::move(options)),
      clock_(clock),
      metrics_(metrics),
      bytes_(metrics.counter("stator_transfer_bytes_total", "bytes moved")),
      requests_(metrics.counter("stator_transfer_requests_total", "transfers that succeeded")),
      seconds_(metrics.histogram("stator_transfer_seconds", "from its start to a transfer's end",
                                 kSeconds)) {
  for (uint32_t i = 0; i < std::max(1U, options_.threads); ++i) {
    threads_.emplace_back("transfer", [this] { work(); });
  }
}

Movers::~Movers() {
  stop();
}

void Movers::stop() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
    for (const SharedTransfer& transfer : queue_) {
      transfer->canceled = true;
    }
    work_.notify_all();
  }
  for (net::Thread& thread : threads_) {
    thread.join();
  }
  threads_.clear();
}

Outcome Movers::post(const SharedTransfer& transfer) {
  Transfer& one = *transfer;
  {
    const MutexLock lock(mutex_);
    if (one.outcome == Outcome::kInProgress) {
      return Outcome::kRepostActive;
    }
    if (queue_.size() >= options_.posted_max || stopping_) {
      return Outcome::kNotAllowed;
    }
    one.canceled = false;
    one.ended = {};
    one.next_part = 0;
    one.parts_left = one.parts.size();
    one.began = clock_.now();
    one.outcome = Outcome::kInProgress;
    const bool here = one.backend->only_copies() && one.parts.empty() && queue_.empty();
    if (!here) {
      queue_.push_back(transfer);
      ++queued_;
      const size_t useful = std::max<size_t>(1, one.parts.size());
      for (size_t i = 0; i < std::min<size_t>(useful, sleepers_); ++i) {
        work_.notify_one();
      }
      return Outcome::kInProgress;
    }
  }
  run_whole(one);  // waking a thread would take longer
  return one.outcome;
}

/// A transfer that follows another closely finds its thread awake.
void Movers::spin_for_work() const {
  const TimePoint until = clock_.now() + options_.spin;
  while (queued_.load(std::memory_order_relaxed) == 0 && clock_.now() < until) {
    for (int i = 0; i < kPauses; ++i) {
      pause_cpu();
    }
  }
}

void Movers::drop(const SharedTransfer& transfer) {
  const auto found = std::ranges::find(queue_, transfer);  // in front, or nearly so
  if (found != queue_.end()) {
    queue_.erase(found);
    --queued_;
  }
}

void Movers::work() {
  bool rested = true;
  MutexLock lock(mutex_);
  while (true) {
    if (!queue_.empty()) {
      rested = false;
      const SharedTransfer transfer = queue_.front();
      if (transfer->parts.empty()) {
        drop(transfer);
        lock.unlock();
        run_whole(*transfer);
        lock.lock();
        continue;
      }
      lock.unlock();
      while (run_part(*transfer)) {
      }
      lock.lock();
      if (transfer->next_part >= transfer->parts.size()) {  // else it was posted again meanwhile
        drop(transfer);
      }
    } else if (stopping_) {
      return;
    } else if (!rested) {
      lock.unlock();
      spin_for_work();
      lock.lock();
      rested = true;
    } else {
      ++sleepers_;
      work_.wait(lock);
      --sleepers_;
    }
  }
}

void Movers::run_whole(Transfer& transfer) {
  const bool copies = transfer.backend->only_copies();
  finish(transfer, move(transfer, transfer.pairs(),
                        copies ? std::string_view() : std::string_view(transfer.notification)));
}

/// Takes the next part, if there is one. The last to end tells how the whole ended.
bool Movers::run_part(Transfer& transfer) {
  const size_t index = transfer.next_part.fetch_add(1);
  if (index >= transfer.parts.size()) {
    return false;
  }
  const Transfer::Part& part = transfer.parts[index];
  const Pairs all = transfer.pairs();
  Ended ended = move(
      transfer,
      part.len > 0 ? all.piece(part.begin, part.at, part.len) : all.slice(part.begin, part.end),
      {});
  if (ended.outcome != Outcome::kSuccess) {
    ended.failed_pair += part.begin;
    const MutexLock lock(mutex_);
    if (transfer.ended.outcome == Outcome::kSuccess) {
      transfer.ended = std::move(ended);
    }
    transfer.canceled = true;  // M2
  }
  if (transfer.parts_left.fetch_sub(1) == 1) {
    Ended whole;
    {
      const MutexLock lock(mutex_);
      whole = std::exchange(transfer.ended, {});
    }
    finish(transfer, std::move(whole));
  }
  return index + 1 < transfer.parts.size();
}

Ended Movers::move(const Transfer& transfer, const Pairs& pairs,
                   std::string_view notification) const {
  if (transfer.canceled) {
    return {.outcome = Outcome::kCanceled, .failed_pair = 0, .cause = "canceled"};
  }
  return transfer.backend->run({.op = transfer.op,
                                .local_type = transfer.local->type(),
                                .remote_type = transfer.remote->type(),
                                .pairs = pairs,
                                .peer = transfer.remote->owner(),
                                .notification = notification,
                                .deadline = transfer.began + transfer.deadline,
                                .canceled = &transfer.canceled});
}

void Movers::finish(Transfer& transfer, Ended ended) {
  const bool tells = transfer.backend->only_copies() && !transfer.notification.empty();
  if (tells && ended.outcome == Outcome::kSuccess) {
    std::atomic_thread_fence(std::memory_order_release);  // M1
    ended.outcome = transfer.backend->notify(transfer.remote->owner(), transfer.notification);
    ended.cause = ended.outcome == Outcome::kSuccess ? "" : "not told";
  }
  const double seconds = std::chrono::duration<double>(clock_.now() - transfer.began).count();
  seconds_.observe(seconds);
  if (ended.outcome == Outcome::kSuccess) {
    bytes_.add(transfer.bytes);
    requests_.add();
  } else {
    metrics_
        .counter("stator_transfer_errors_total", "transfers that failed",
                 {{"status", std::string(to_string(ended.outcome))}})
        .add();
  }
  {
    const MutexLock lock(mutex_);
    transfer.seconds = seconds;
    if (ended.outcome == Outcome::kSuccess && seconds > 0) {
      const double rate = static_cast<double>(transfer.bytes) / seconds;
      double& mean = bytes_per_second_[transfer.backend];
      mean = mean == 0 ? rate : mean + ((rate - mean) * kRateWeight);
    }
    transfer.ended = std::move(ended);
    transfer.outcome = transfer.ended.outcome;
    if (waiters_ > 0) {
      done_.notify_all();
    }
  }
  if (options_.news) {
    options_.news();
  }
}

/// Does a part of a copy that no thread has begun, if that is over within the time.
bool Movers::help(Transfer& transfer, Duration left) {
  const uint64_t bytes = transfer.parts.size() > 1 ? kPartBytes : transfer.bytes;
  return bytes <= copied_within(left) && run_part(transfer);
}

Outcome Movers::wait(const SharedTransfer& transfer, Duration most) {
  const TimePoint until = clock_.now() + most;
  const bool copies = transfer->backend->only_copies() && !transfer->parts.empty();
  while (copies && transfer->outcome == Outcome::kInProgress &&
         help(*transfer, until - clock_.now())) {
  }
  MutexLock lock(mutex_);
  ++waiters_;
  while (transfer->outcome == Outcome::kInProgress) {
    const Duration left = until - clock_.now();
    if (left <= Duration::zero()) {
      break;
    }
    done_.wait_for(lock, left);
  }
  --waiters_;
  return transfer->outcome;
}

double Movers::rate(const Transfer& transfer) const {
  const MutexLock lock(mutex_);
  const auto found = bytes_per_second_.find(transfer.backend);
  return found == bytes_per_second_.end() ? 0 : found->second;
}

Ended Movers::ended(const Transfer& transfer) const {
  const MutexLock lock(mutex_);
  return transfer.ended;
}

Telemetry Movers::telemetry(const Transfer& transfer) const {
  const MutexLock lock(mutex_);
  return {
      .seconds = transfer.seconds, .bytes = transfer.bytes, .descriptors = transfer.descriptors};
}

}  // namespace stator::transfer
