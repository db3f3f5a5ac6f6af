// SPDX-License-Identifier: Apache-2.0
#include "stator/net/job_thread.h"

#include <utility>

namespace stator::net {

void JobThread::add(Job job) {
  {
    const MutexLock lock(mutex_);
    if (!stopping_) {
      jobs_.push_back(std::move(job));
      if (!std::exchange(started_, true)) {
        thread_ = Thread(name_, [this] { work(); });
      }
      wake_.notify_one();
      return;
    }
  }
  job(Turn::kStopped);
}

void JobThread::stop() {
  std::deque<Job> dropped;
  Thread thread;
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
    dropped.swap(jobs_);
    thread = std::move(thread_);
    wake_.notify_one();
  }
  thread.join();
  for (const Job& job : dropped) {
    job(Turn::kStopped);
  }
}

void JobThread::work() {
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
    job(Turn::kRun);
  }
}

}  // namespace stator::net
