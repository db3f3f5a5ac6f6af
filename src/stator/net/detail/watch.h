// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "stator/core/result.h"
#include "stator/net/detail/socket.h"
#include "stator/net/event_loop.h"

namespace stator::net::detail {

/// Who reads and writes the descriptor of a Watch.
class WatchUser {
 public:
  virtual ~WatchUser() = default;
  virtual void on_readable() = 0;
  virtual void on_writable() {}
};

/// A descriptor on a loop, and who waits for it. Readiness to read costs no system call: the kernel
/// reports each arrival once (EPOLLET), and a reader says when it has taken all there was.
///
///   watch.open(std::move(fd));
///   watch.wait_readable(self);        // then on_readable() of it, once
///
/// W1  A user is kept alive by what it waits for, and lets go of it when it is called, at close()
///     and when the loop ends.
/// W2  A peer that has ended its stream stays readable: that is read only once more.
/// W3  wait_writable() and wait_readable_again() ask the kernel, so nothing that was ready before
///     is missed.
class Watch final : private ReadyHandler {
 public:
  explicit Watch(EventLoop& loop) : loop_(loop) {}
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;
  ~Watch() { close(); }

  /// kIo: the loop cannot watch it; it is kept, and nothing is ever told of it.
  Status open(FileDescriptor fd);
  bool is_open() const { return fd_.open(); }
  bool is_watched() const { return key_ != EventLoop::kNoKey; }
  int fd() const { return fd_.get(); }

  /// The user has read until nothing was left.
  void wait_readable(std::shared_ptr<WatchUser> user);
  /// The same where something may be left.
  void wait_readable_again(std::shared_ptr<WatchUser> user);
  void wait_writable(std::shared_ptr<WatchUser> user);
  bool waits_readable() const { return reader_ != nullptr; }
  bool waits_writable() const { return writer_ != nullptr; }

  /// Ends the watch without closing.
  FileDescriptor release();
  void close();
  /// The same for a socket that other processes have, too.
  void close_shared();

 private:
  void on_ready(Ready ready) override;
  void on_loop_end() override { close(); }
  void end(int shared_fd);

  EventLoop& loop_;
  FileDescriptor fd_;
  EventLoop::Key key_ = EventLoop::kNoKey;
  std::shared_ptr<WatchUser> reader_;
  std::shared_ptr<WatchUser> writer_;
  bool arrived_ = false;  // since the last on_readable()
  bool ended_ = false;    // W2
};

}  // namespace stator::net::detail
