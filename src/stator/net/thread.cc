// SPDX-License-Identifier: Apache-2.0
#include "stator/net/thread.h"

#include <pthread.h>

#include <utility>

namespace stator::net {

Thread::Thread(std::string name, std::function<void()> body)
    : thread_([name = std::move(name), body = std::move(body)] {
        // The kernel keeps 15 characters of a thread's name.
        pthread_setname_np(pthread_self(), name.substr(0, 15).c_str());
        body();
      }) {}

Thread& Thread::operator=(Thread&& other) noexcept {
  join();
  thread_ = std::move(other.thread_);
  return *this;
}

Thread::~Thread() {
  join();
}

void Thread::join() {
  if (thread_.joinable()) {
    thread_.join();
  }
}

}  // namespace stator::net
