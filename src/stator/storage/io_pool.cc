// SPDX-License-Identifier: Apache-2.0
#include "stator/storage/io_pool.h"

#include <fmt/format.h>

#include <utility>

namespace stator::storage {

IoPool::IoPool(uint32_t threads) {
  for (uint32_t i = 0; i < threads; ++i) {
    threads_.emplace_back(fmt::format("kv-io-{}", i), [this] { run(); });
  }
}

IoPool::~IoPool() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
    work_.notify_all();
  }
  for (net::Thread& thread : threads_) {
    thread.join();
  }
}

void IoPool::post(Lane lane, Job job) {
  const MutexLock lock(mutex_);
  queue(lane).push_back(std::move(job));
  work_.notify_one();
}

void IoPool::settle() {
  MutexLock lock(mutex_);
  while (!loads_.empty() || !saves_.empty() || running_ > 0) {
    idle_.wait(lock);
  }
}

size_t IoPool::queued(Lane lane) const {
  const MutexLock lock(mutex_);
  return lane == Lane::kLoad ? loads_.size() : saves_.size();
}

void IoPool::run() {
  MutexLock lock(mutex_);
  while (true) {
    if (loads_.empty() && saves_.empty()) {
      if (stopping_) {
        return;
      }
      work_.wait(lock);
      continue;
    }
    std::deque<Job>& from = queue(loads_.empty() ? Lane::kSave : Lane::kLoad);
    Job job = std::move(from.front());
    from.pop_front();
    ++running_;
    lock.unlock();
    job();
    job = nullptr;  // what it holds goes before anybody hears that it is done
    lock.lock();
    --running_;
    idle_.notify_all();
  }
}

}  // namespace stator::storage
