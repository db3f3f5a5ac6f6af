// SPDX-License-Identifier: Apache-2.0
#include "stator/app/signals.h"

#include <csignal>
#include <ctime>

namespace stator::app {
namespace {

sigset_t stop_signals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  return set;
}

}  // namespace

Signals::Signals() {
  const sigset_t set = stop_signals();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
}

void Signals::wait() {
  const sigset_t set = stop_signals();
  sigwait(&set, &last_);
}

bool Signals::wait_for(Duration timeout) {
  const sigset_t set = stop_signals();
  const timespec limit{.tv_sec = timeout.count() / 1'000'000'000,
                       .tv_nsec = timeout.count() % 1'000'000'000};
  const int signal = sigtimedwait(&set, nullptr, &limit);
  last_ = signal > 0 ? signal : last_;
  return signal > 0;
}

bool Signals::interactive() const {
  return last_ == SIGINT;
}

}  // namespace stator::app
