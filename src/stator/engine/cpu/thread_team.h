// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "stator/net/thread.h"

namespace stator::engine::cpu {

/// A small fixed team that runs loops in parallel, the caller being one of its members.
///
///   team.run(panels, [&](int64_t item, uint32_t member) { … });   // returns when all items are
///   done
///
/// Items are taken one by one by whoever is free, so an item must not care who runs it; `member`
/// (0 … size − 1) only names scratch space. Workers spin for some microseconds after a loop, since
/// the next usually follows at once, and then sleep. Thread-safety: run() is called by one thread
/// at a time, and not from inside an item.
class ThreadTeam {
 public:
  /// `size` members, 1 … kSizeMax (asserted); size − 1 threads are started.
  explicit ThreadTeam(uint32_t size);
  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;
  ~ThreadTeam();

  static constexpr uint32_t kSizeMax = 256;
  uint32_t size() const { return static_cast<uint32_t>(workers_.size()) + 1; }

  template <typename Body>
  void run(int64_t items, const Body& body) {
    if (items <= 1 || workers_.empty()) {
      for (int64_t item = 0; item < items; ++item) {
        body(item, 0);
      }
      return;
    }
    run_shared({.items = items,
                .body = &body,
                .call = [](const void* erased, int64_t item, uint32_t member) {
                  (*static_cast<const Body*>(erased))(item, member);
                }});
  }

 private:
  struct Loop {
    int64_t items = 0;
    const void* body = nullptr;
    void (*call)(const void* body, int64_t item, uint32_t member) = nullptr;
  };
  void run_shared(const Loop& loop);
  void take_items(uint32_t member);
  void work(uint32_t member);

  // Loops are numbered by `generation_`; a worker that sees a new number runs `loop_` and then
  // counts itself out of `busy_`. The caller writes `loop_` only while `busy_` is 0.
  Loop loop_;
  bool stopping_ = false;
  std::atomic<uint32_t> generation_ = 0;
  std::atomic<uint32_t> busy_ = 0;
  std::atomic<int64_t> next_item_ = 0;
  std::vector<net::Thread> workers_;  // last: joined before the rest goes
};

}  // namespace stator::engine::cpu
