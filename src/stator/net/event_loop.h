// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "stator/core/clock.h"
#include "stator/core/result.h"
#include "stator/io/file_descriptor.h"

namespace stator::net {

/// What a descriptor is ready for.
struct Ready {
  bool readable = false;
  bool writable = false;
  bool ended = false;   ///< the peer sends nothing more, or the connection broke
  bool broken = false;  ///< an error, or closed in both directions: nothing can be written
};

/// Who works on a descriptor that an EventLoop watches.
class ReadyHandler {
 public:
  /// On the loop's thread. May add, change and remove descriptors, its own too.
  virtual void on_ready(Ready ready) = 0;
  /// The loop ends and will not call again.
  virtual void on_loop_end() {}

 protected:
  ~ReadyHandler() = default;
};

/// Which descriptors can be read or written: epoll with names that stay right when descriptors are
/// closed and their numbers used again. The one loop of the process's threads: shards, streams of
/// engine servers and the load generator wait in one each.
///
///   EventLoop loop;
///   STATOR_TRY(const auto key, loop.add(fd, {.read = true}, handler));
///   while (!stopping) loop.turn(100ms);        // another thread: loop.wake()
///
/// L1  Everything but wake() is called by one thread at a time.
/// L2  A handler is not called after its remove(), even if the kernel has reported its descriptor.
/// L3  wake() ends the wait under way, or else the next one; one system call at most, and none
///     while nobody waits.
class EventLoop {
 public:
  /// kEdge: told once per change, so a handler reads until nothing is left; the kernel need not be
  /// asked again. kLevel: told as long as it is ready.
  enum class Trigger : uint8_t { kLevel, kEdge };
  struct Interest {
    bool read = false;
    bool write = false;
    Trigger trigger = Trigger::kLevel;
  };
  using Key = uint64_t;
  static constexpr Key kNoKey = 0;

  EventLoop();
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;
  /// Handlers that are still there hear on_loop_end().
  ~EventLoop();

  /// kIo when the system gave no descriptors for the loop itself; nothing can be watched then.
  Status opened() const;

  /// `handler` stays until remove(). kIo: the kernel cannot watch `fd`.
  Result<Key> add(int fd, Interest interest, ReadyHandler& handler);
  /// Also tells of what `fd` is ready for already. A failure to do so is reported by the
  /// descriptor's next use.
  void change(Key key, int fd, Interest interest);
  /// Before `fd` is closed, or after. Give `fd` when another process may hold the same socket:
  /// closing does not end the watch then.
  void remove(Key key, int shared_fd = -1);
  /// The next turn calls the handler as if its descriptor were readable, and does not wait.
  void call_again(Key key);

  /// Waits at most `wait_max` (resolution 1 ms if it is a multiple of that, else as fine as the
  /// kernel's) and calls the handlers of what is ready, kEventsPerTurn at most. Returns how many.
  size_t turn(Duration wait_max);
  /// The two halves of turn(), for those who have something to do between them.
  size_t wait(Duration wait_max);
  bool handle_next();

  /// Any thread.
  void wake() noexcept;

  static constexpr size_t kEventsPerTurn = 256;

 private:
  enum class State : uint8_t { kAwake, kWaiting, kWoken };
  struct Slot {
    ReadyHandler* handler = nullptr;
    uint32_t generation = 1;
    uint32_t next_free = 0;  // + 1; 0: none
  };
  struct Event {
    Key key;
    Ready ready;
  };
  ReadyHandler* find(Key key) const;
  int wait_for_kernel(Duration wait_max);

  io::FileDescriptor epoll_;
  io::FileDescriptor wake_;
  std::atomic<State> state_{State::kAwake};
  std::vector<Slot> slots_;
  uint32_t first_free_ = 0;  // + 1; 0: none
  std::vector<Event> events_;
  size_t next_event_ = 0;
  std::vector<Key> again_;
};

}  // namespace stator::net
