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
      client_refused_(
          metrics.counter("stator_frontend_cpu_pool_client_refused_total",
                          "tasks refused because their client filled its share of the queue")),
      queue_depth_(metrics.gauge("stator_frontend_cpu_pool_queue_depth",
                                 "tasks waiting for a thread of the compute pool")),
      busy_threads_(metrics.gauge("stator_frontend_cpu_pool_busy_threads",
                                  "threads of the compute pool that run a task")),
      wait_(metrics.histogram("stator_frontend_cpu_pool_wait_seconds",
                              "time tasks waited for a thread of the compute pool", kWaitBounds)),
      queue_({.tasks_max = config.tasks_max,
              .bytes_max = config.bytes_max,
              .short_bytes = config.short_bytes}) {
  STATOR_ASSERT(config.threads > 0, "a pool has at least one thread");
  for (uint32_t i = 0; i < config.threads; ++i) {
    threads_.emplace_back("compute-" + std::to_string(i), [this] { loop(Which::kAny); });
  }
  if (config.short_bytes > 0) {
    threads_.emplace_back("compute-short", [this] { loop(Which::kShort); });
  }
}

ComputePool::~ComputePool() {
  stop();
}

Status ComputePool::admit(const Work& work) {
  if (stopping_) {
    return Error(Code::kUnavailable, "the server is shutting down, retry elsewhere");
  }
  switch (queue_.room_for(work)) {
    case WorkQueue::Room::kYes:
      return {};
    case WorkQueue::Room::kFull:
      refused_.add();
      return Error(Code::kOverloaded,
                   "too many requests wait to be prepared (frontend.compute_queue_max, "
                   "frontend.compute_queue_bytes_max, frontend.compute_threads), retry shortly");
    case WorkQueue::Room::kClientFull:
      client_refused_.add();
      return Error(Code::kOverloaded,
                   "too many of this client's requests wait to be prepared (three quarters of "
                   "frontend.compute_queue_max, frontend.compute_queue_bytes_max), retry shortly");
  }
  return {};
}

Status ComputePool::submit(Work work) {
  bool is_short = false;
  {
    const MutexLock lock(mutex_);
    STATOR_CHECK(admit(work));
    is_short = config_.short_bytes > 0 && work.bytes <= config_.short_bytes;
    work.since = clock_.now();
    queue_.push(std::move(work));
    queue_depth_.set(static_cast<double>(queue_.size()));
  }
  // Who comes first takes it; the other goes back to sleep.
  wake_.notify_one();
  if (is_short) {
    wake_short_.notify_one();
  }
  return {};
}

bool ComputePool::has_work(Which which) const {
  return queue_.has(which) || (which == Which::kAny && !helpers_.empty());
}

bool ComputePool::take(Which which, Work& out) {
  if (which == Which::kAny && !helpers_.empty()) {
    out = {.run = std::move(helpers_.front()), .since = clock_.now()};
    helpers_.pop_front();
    return true;
  }
  auto next = queue_.take(which);
  if (!next) {
    return false;
  }
  out = std::move(*next);
  queue_depth_.set(static_cast<double>(queue_.size()));
  return true;
}

void ComputePool::loop(Which which) {
  const bool takes_all = which == Which::kAny;
  std::condition_variable_any& wake = takes_all ? wake_ : wake_short_;
  while (true) {
    Work next;
    {
      MutexLock lock(mutex_);
      idle_ += takes_all ? 1 : 0;
      while (!stopping_ && !has_work(which)) {
        wake.wait(lock);
      }
      idle_ -= takes_all ? 1 : 0;
      if (stopping_ || !take(which, next)) {
        return;
      }
    }
    wait_.observe(seconds(clock_.now() - next.since));
    busy_threads_.add(1);
    next.run();
    busy_threads_.add(-1);
  }
}

uint32_t ComputePool::idle_threads() const {
  const MutexLock lock(mutex_);
  const size_t spoken_for = queue_.size() + helpers_.size();
  return stopping_ || idle_ <= spoken_for ? 0 : static_cast<uint32_t>(idle_ - spoken_for);
}

void ComputePool::help(const std::shared_ptr<PartsRun>& run) {
  {
    const MutexLock lock(mutex_);
    if (stopping_) {
      return;  // the caller does what nobody helps with
    }
    helpers_.emplace_back([run] { run->help(); });
  }
  wake_.notify_one();
}

void ComputePool::run_parts(size_t count, const std::function<void(size_t)>& part) {
  // Shared: helpers that were queued may start after the last part, when this call has returned.
  const auto run = std::make_shared<PartsRun>(count, part);
  const size_t helpers = std::min<size_t>(idle_threads(), count > 0 ? count - 1 : 0);
  for (size_t i = 0; i < helpers; ++i) {
    help(run);
  }
  run->help();
  run->wait();
}

void ComputePool::stop() {
  std::vector<Work> dropped;  // destroyed without the lock
  std::deque<Task> helpers;
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
    while (auto work = queue_.take()) {
      dropped.push_back(std::move(*work));
    }
    helpers.swap(helpers_);
    queue_depth_.set(0);
  }
  wake_.notify_all();
  wake_short_.notify_all();
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
