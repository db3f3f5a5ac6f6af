// SPDX-License-Identifier: Apache-2.0
#include "stator/net/compute_pool.h"

#include <algorithm>
#include <atomic>
#include <charconv>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "stator/core/assert.h"

namespace stator::net {
namespace {

// P3: the share of background work under load.
constexpr uint32_t kBackgroundEvery = 8;

constexpr double kWaitBounds[] = {0.0001, 0.0005, 0.001, 0.002, 0.005, 0.01,
                                  0.02,   0.05,   0.1,   0.25,  0.5,   1.0};

double seconds(Duration duration) {
  return std::chrono::duration<double>(duration).count();
}

}  // namespace

/// One run_parts() call. Helpers that start late find no part left and never touch `part`.
struct ComputePool::PartsRun {
  PartsRun(size_t count_in, const std::function<void(size_t)>& part_in)
      : count(count_in), part(part_in) {}

  const size_t count;
  const std::function<void(size_t)>& part;  // the caller's, alive while a part is not done
  std::atomic<size_t> next{0};
  std::atomic<size_t> done{0};

  void help() {
    for (size_t i = next.fetch_add(1); i < count; i = next.fetch_add(1)) {
      part(i);
      if (done.fetch_add(1) + 1 == count) {
        done.notify_all();
      }
    }
  }
  void wait() {
    for (size_t now = done.load(); now < count; now = done.load()) {
      done.wait(now);
    }
  }
};

ComputePool::ComputePool(Config config, const Clock& clock, Metrics& metrics)
    : config_(config),
      clock_(clock),
      refused_(metrics.counter("stator_frontend_cpu_pool_refused_total",
                               "tasks refused because the compute pool's queue was full")),
      queue_depth_(metrics.gauge("stator_frontend_cpu_pool_queue_depth",
                                 "tasks waiting for a thread of the compute pool")),
      busy_threads_(metrics.gauge("stator_frontend_cpu_pool_busy_threads",
                                  "threads of the compute pool that run a task")),
      wait_(metrics.histogram("stator_frontend_cpu_pool_wait_seconds",
                              "time tasks waited for a thread of the compute pool", kWaitBounds)) {
  STATOR_ASSERT(config.threads > 0, "a pool has at least one thread");
  for (uint32_t i = 0; i < config.threads; ++i) {
    threads_.emplace_back("compute-" + std::to_string(i), [this] { loop(); });
  }
}

ComputePool::~ComputePool() {
  stop();
}

size_t ComputePool::waiting() const {
  return queues_[0].size() + queues_[1].size();
}

Status ComputePool::submit(Work work) {
  {
    const MutexLock lock(mutex_);
    if (stopping_) {
      return Error(Code::kUnavailable, "the server is shutting down, retry elsewhere");
    }
    const size_t tasks = waiting();
    if (tasks >= config_.tasks_max || (tasks > 0 && bytes_ + work.bytes > config_.bytes_max)) {
      refused_.add();
      return Error(Code::kOverloaded,
                   "too many requests wait to be prepared (frontend.compute_queue_max, "
                   "frontend.compute_queue_bytes_max, frontend.compute_threads), retry shortly");
    }
    bytes_ += work.bytes;
    auto& queue = queues_[static_cast<size_t>(work.priority)];
    queue.push_back({std::move(work), clock_.now()});
    queue_depth_.set(static_cast<double>(tasks + 1));
  }
  wake_.notify_one();
  return {};
}

bool ComputePool::take(Waiting& out) {
  const bool background_first = taken_ % kBackgroundEvery == kBackgroundEvery - 1;
  auto& preferred = queues_[background_first ? 1 : 0];
  auto& queue = preferred.empty() ? queues_[background_first ? 0 : 1] : preferred;
  if (queue.empty()) {
    return false;
  }
  out = std::move(queue.front());
  queue.pop_front();
  ++taken_;
  bytes_ -= out.work.bytes;
  queue_depth_.set(static_cast<double>(waiting()));
  return true;
}

void ComputePool::loop() {
  while (true) {
    Waiting next;
    {
      MutexLock lock(mutex_);
      ++idle_;
      while (!stopping_ && waiting() == 0) {
        wake_.wait(lock);
      }
      --idle_;
      if (stopping_ || !take(next)) {
        return;
      }
    }
    wait_.observe(seconds(clock_.now() - next.since));
    busy_threads_.add(1);
    next.work.run();
    busy_threads_.add(-1);
  }
}

uint32_t ComputePool::idle_threads() const {
  const MutexLock lock(mutex_);
  const size_t spoken_for = waiting();
  return stopping_ || idle_ <= spoken_for ? 0 : static_cast<uint32_t>(idle_ - spoken_for);
}

void ComputePool::run_parts(size_t count, const std::function<void(size_t)>& part) {
  // Shared: helpers that were queued may start after the last part, when this call has returned.
  const auto run = std::make_shared<PartsRun>(count, part);
  const size_t helpers = std::min<size_t>(idle_threads(), count > 0 ? count - 1 : 0);
  for (size_t i = 0; i < helpers; ++i) {
    submit({.run = [run] { run->help(); }}).ignore("the caller does what nobody helps with");
  }
  run->help();
  run->wait();
}

void ComputePool::stop() {
  std::array<std::deque<Waiting>, 2> dropped;  // destroyed without the lock
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
    dropped.swap(queues_);
    bytes_ = 0;
    queue_depth_.set(0);
  }
  wake_.notify_all();
  for (Thread& thread : threads_) {
    thread.join();
  }
}

uint32_t parse_cpu_max(std::string_view text) {
  const size_t space = text.find(' ');
  if (space == std::string_view::npos) {
    return 0;
  }
  uint64_t quota_us = 0;
  uint64_t period_us = 0;
  const char* end = text.data() + text.size();
  const auto quota = std::from_chars(text.data(), text.data() + space, quota_us);
  const auto period = std::from_chars(text.data() + space + 1, end, period_us);
  if (quota.ec != std::errc() || period.ec != std::errc() || period_us == 0) {
    return 0;  // "max": no quota
  }
  return static_cast<uint32_t>(std::min<uint64_t>((quota_us + period_us - 1) / period_us, 65536));
}

uint32_t usable_cores() {
  const uint32_t cores = std::max(1U, std::thread::hardware_concurrency());
  std::ifstream file("/sys/fs/cgroup/cpu.max");
  std::string text;
  std::getline(file, text);
  const uint32_t quota = parse_cpu_max(text);
  return quota == 0 ? cores : std::clamp(quota, 1U, cores);
}

}  // namespace stator::net
