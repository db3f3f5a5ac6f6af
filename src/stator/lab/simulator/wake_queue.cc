// SPDX-License-Identifier: Apache-2.0
#include "stator/lab/simulator/wake_queue.h"

namespace stator::simulator {

void WakeQueue::place(size_t at, const Wake& wake) {
  heap_[at] = wake;
  position_[wake.worker] = static_cast<uint32_t>(at);
}

void WakeQueue::rise(size_t at) {
  const Wake wake = heap_[at];
  while (at > 0 && wake < heap_[(at - 1) / 2]) {
    place(at, heap_[(at - 1) / 2]);
    at = (at - 1) / 2;
  }
  place(at, wake);
}

void WakeQueue::sink(size_t at) {
  const Wake wake = heap_[at];
  while (true) {
    size_t child = 2 * at + 1;
    if (child >= heap_.size()) {
      break;
    }
    child += child + 1 < heap_.size() && heap_[child + 1] < heap_[child] ? 1 : 0;
    if (wake <= heap_[child]) {
      break;
    }
    place(at, heap_[child]);
    at = child;
  }
  place(at, wake);
}

void WakeQueue::set(uint32_t worker, TimePoint time) {
  if (worker >= position_.size()) {
    position_.resize(worker + 1, kAbsent);
  }
  size_t at = position_[worker];
  if (at == kAbsent) {
    at = heap_.size();
    heap_.emplace_back();
  }
  place(at, {time, worker});
  rise(at);
  sink(position_[worker]);
}

void WakeQueue::erase(uint32_t worker) {
  if (worker >= position_.size() || position_[worker] == kAbsent) {
    return;
  }
  const size_t at = position_[worker];
  position_[worker] = kAbsent;
  const Wake last = heap_.back();
  heap_.pop_back();
  if (last.worker != worker) {
    place(at, last);
    rise(at);
    sink(position_[last.worker]);
  }
}

WakeQueue::Wake WakeQueue::pop() {
  const Wake wake = heap_.front();
  erase(wake.worker);
  return wake;
}

}  // namespace stator::simulator
