// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "stator/core/clock.h"

namespace stator::net {

/// Something to run later on a loop. Move-only, may own what it needs.
using Task = std::move_only_function<void()>;

/// Callbacks ordered by deadline; the part of a shard that knows about time, without reading any.
/// Indexed binary heap: add, cancel and fire are O(log n), about 100 ns at 10,000 timers.
/// Single-threaded.
///
/// T1  A callback runs at most once, never before its deadline, in order of (deadline, creation).
/// T2  A Timer destroyed or cancelled before its callback started never runs it.
/// T3  Timers are destroyed before their queue.
class TimerQueue {
 public:
  struct Node {
    TimerQueue* queue;
    TimePoint deadline;
    uint64_t sequence;
    size_t position;  // in heap_, kIdle when not there
    Task callback;
  };
  static constexpr size_t kIdle = SIZE_MAX;

  /// Owns one pending callback; destroying it cancels. Move-only. Default-made timers are idle.
  class Timer {
   public:
    Timer() = default;
    Timer(Timer&& other) noexcept = default;
    Timer& operator=(Timer&& other) noexcept;
    Timer(const Timer&) = delete;
    Timer& operator=(const Timer&) = delete;
    ~Timer() { cancel(); }

    void cancel() noexcept;
    /// Still going to run.
    bool pending() const { return node_ != nullptr && node_->position != kIdle; }

   private:
    friend class TimerQueue;
    explicit Timer(std::unique_ptr<Node> node) : node_(std::move(node)) {}
    std::unique_ptr<Node> node_;
  };

  TimerQueue() = default;
  TimerQueue(const TimerQueue&) = delete;
  TimerQueue& operator=(const TimerQueue&) = delete;
  ~TimerQueue();

  [[nodiscard]] Timer at(TimePoint deadline, Task callback);

  /// Runs what is due at `now`, returns how many ran. Timers made by these callbacks wait for the
  /// next call even when already due, so a callback that re-arms itself cannot hold the loop.
  size_t run_due(TimePoint now);

  std::optional<TimePoint> next_deadline() const;
  size_t count() const { return heap_.size(); }

 private:
  static bool before(const Node& a, const Node& b);
  void place(size_t position, Node* node);
  void sift_up(size_t position);
  void sift_down(size_t position);
  void remove(Node& node);

  std::vector<Node*> heap_;
  uint64_t next_sequence_ = 0;
};

using Timer = TimerQueue::Timer;

}  // namespace stator::net
