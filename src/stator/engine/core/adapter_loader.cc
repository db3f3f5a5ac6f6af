// SPDX-License-Identifier: Apache-2.0
#include "stator/engine/core/adapter_loader.h"

#include <utility>

#include "stator/engine/core/lazy_adapters.h"

namespace stator::engine {

bool AdapterLoader::needs(std::string_view name) const {
  const auto* const lazy = dynamic_cast<const LazyAdapters*>(source_.get());
  return lazy != nullptr && !name.empty() && lazy->needs_loading(name);
}

void AdapterLoader::load(std::string name, Done done) {
  {
    const MutexLock lock(mutex_);
    if (!stopping_) {
      jobs_.push_back({std::move(name), std::move(done)});
      if (!std::exchange(started_, true)) {
        thread_ = net::Thread("adapters", [this] { work(); });
      }
      wake_.notify_one();
      return;
    }
  }
  done(nullptr);
}

void AdapterLoader::stop() {
  std::deque<Job> dropped;
  net::Thread thread;
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
    dropped.swap(jobs_);
    thread = std::move(thread_);
    wake_.notify_one();
  }
  if (thread.joinable()) {
    thread.join();
  }
  for (const Job& job : dropped) {
    job.done(nullptr);
  }
}

void AdapterLoader::work() {
  while (true) {
    Job job;
    {
      MutexLock lock(mutex_);
      while (!stopping_ && jobs_.empty()) {
        wake_.wait(lock);
      }
      if (stopping_) {
        return;
      }
      job = std::move(jobs_.front());
      jobs_.pop_front();
    }
    job.done(source_->find(job.name));
  }
}

}  // namespace stator::engine
