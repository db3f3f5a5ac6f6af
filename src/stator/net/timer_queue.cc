// SPDX-License-Identifier: Apache-2.0
#include "stator/net/timer_queue.h"

#include <utility>

#include "stator/core/assert.h"

namespace stator::net {

TimerQueue::Timer& TimerQueue::Timer::operator=(Timer&& other) noexcept {
  if (this != &other) {
    cancel();
    node_ = std::move(other.node_);
  }
  return *this;
}

void TimerQueue::Timer::cancel() noexcept {
  if (pending()) {
    node_->queue->remove(*node_);
  }
  node_.reset();
}

TimerQueue::~TimerQueue() {
  STATOR_ASSERT(heap_.empty(), "T3: a timer outlives its queue");
}

TimerQueue::Timer TimerQueue::at(TimePoint deadline, Task callback) {
  auto node = std::make_unique<Node>(
      Node{this, deadline, next_sequence_++, heap_.size(), std::move(callback)});
  heap_.push_back(node.get());
  sift_up(heap_.size() - 1);
  return Timer(std::move(node));
}

size_t TimerQueue::run_due(TimePoint now) {
  const uint64_t sequence_end = next_sequence_;
  size_t ran = 0;
  while (!heap_.empty() && heap_.front()->deadline <= now &&
         heap_.front()->sequence < sequence_end) {
    Node& node = *heap_.front();
    remove(node);
    // The callback may destroy its own Timer and with it the node.
    Task callback = std::move(node.callback);
    callback();
    ++ran;
  }
  return ran;
}

std::optional<TimePoint> TimerQueue::next_deadline() const {
  if (heap_.empty()) {
    return std::nullopt;
  }
  return heap_.front()->deadline;
}

bool TimerQueue::before(const Node& a, const Node& b) {
  return a.deadline != b.deadline ? a.deadline < b.deadline : a.sequence < b.sequence;
}

void TimerQueue::place(size_t position, Node* node) {
  heap_[position] = node;
  node->position = position;
}

void TimerQueue::sift_up(size_t position) {
  Node* node = heap_[position];
  while (position > 0) {
    const size_t parent = (position - 1) / 2;
    if (!before(*node, *heap_[parent])) {
      break;
    }
    place(position, heap_[parent]);
    position = parent;
  }
  place(position, node);
}

void TimerQueue::sift_down(size_t position) {
  Node* node = heap_[position];
  for (;;) {
    size_t child = 2 * position + 1;
    if (child >= heap_.size()) {
      break;
    }
    if (child + 1 < heap_.size() && before(*heap_[child + 1], *heap_[child])) {
      ++child;
    }
    if (!before(*heap_[child], *node)) {
      break;
    }
    place(position, heap_[child]);
    position = child;
  }
  place(position, node);
}

void TimerQueue::remove(Node& node) {
  const size_t position = node.position;
  Node* last = heap_.back();
  heap_.pop_back();
  node.position = kIdle;
  if (last == &node) {
    return;
  }
  place(position, last);
  sift_up(position);
  sift_down(last->position);
}

}  // namespace stator::net
