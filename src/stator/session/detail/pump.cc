// SPDX-License-Identifier: Apache-2.0
#include "stator/session/detail/pump.h"

#include <utility>

namespace stator::session::detail {

Pump::Pump(std::string name, Duration interval, std::function<void()> tick)
    : thread_(std::move(name), [this, interval, tick = std::move(tick)] { run(interval, tick); }) {}

Pump::~Pump() {
  stop();
}

void Pump::kick(std::shared_ptr<Pumped> target) {
  if (target->queued_.exchange(true)) {
    return;
  }
  bool sleeping = false;
  {
    const MutexLock lock(mutex_);
    if (stopping_) {
      return;
    }
    sleeping = queue_.empty();
    queue_.push_back(std::move(target));
  }
  if (sleeping) {
    wake_.notify_one();
  }
}

void Pump::stop() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

void Pump::run(Duration interval, const std::function<void()>& tick) {
  const SystemClock clock;  // only paces this thread
  TimePoint tick_at = clock.now();
  std::vector<std::shared_ptr<Pumped>> batch;
  while (true) {
    {
      MutexLock lock(mutex_);
      if (!stopping_ && queue_.empty() && clock.now() < tick_at) {
        wake_.wait_for(lock, tick_at - clock.now());
      }
      if (stopping_) {
        return;
      }
      batch.swap(queue_);
    }
    for (const auto& target : batch) {
      target->queued_ = false;  // first: what is kicked from now on comes again
      target->pump();
    }
    batch.clear();
    if (clock.now() >= tick_at) {
      tick_at = clock.now() + interval;
      if (tick) {
        tick();
      }
    }
  }
}

}  // namespace stator::session::detail
