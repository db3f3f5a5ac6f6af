// SPDX-License-Identifier: Apache-2.0
#include "stator/engine/core/engine_thread.h"

#include <utility>

namespace stator::engine {

Status EngineThread::start(std::string name, std::function<void()> body) {
  const MutexLock lock(mutex_);
  if (ended_) {
    return Error(Code::kDraining, "this engine was stopped; make a new one");
  }
  if (std::exchange(started_, true)) {
    return Error(Code::kAlreadyExists, "this engine is running already");
  }
  thread_ = net::Thread(std::move(name), std::move(body));
  return {};
}

void EngineThread::end(const std::function<void()>& ask, const std::function<void()>& instead) {
  const MutexLock lock(mutex_);
  if (std::exchange(ended_, true)) {
    return;
  }
  ask();
  if (started_) {
    thread_.join();
  } else {
    instead();
  }
}

}  // namespace stator::engine
