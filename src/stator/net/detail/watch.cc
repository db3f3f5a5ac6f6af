// SPDX-License-Identifier: Apache-2.0
#include "stator/net/detail/watch.h"

#include <utility>

namespace stator::net::detail {
namespace {

constexpr EventLoop::Interest kReading{.read = true, .trigger = EventLoop::Trigger::kEdge};
constexpr EventLoop::Interest kBoth{
    .read = true, .write = true, .trigger = EventLoop::Trigger::kEdge};

}  // namespace

Status Watch::open(FileDescriptor fd) {
  close();
  arrived_ = false;
  ended_ = false;
  fd_ = std::move(fd);
  STATOR_TRY(key_, loop_.add(fd_.get(), kReading, *this));
  return {};
}

void Watch::wait_readable(std::shared_ptr<WatchUser> user) {
  reader_ = std::move(user);
  if (arrived_ || ended_) {
    loop_.call_again(key_);
  }
}

void Watch::wait_readable_again(std::shared_ptr<WatchUser> user) {
  reader_ = std::move(user);
  loop_.change(key_, fd_.get(), kReading);
}

void Watch::wait_writable(std::shared_ptr<WatchUser> user) {
  writer_ = std::move(user);
  loop_.change(key_, fd_.get(), kBoth);
}

void Watch::on_ready(Ready ready) {
  ended_ = ended_ || ready.ended;
  std::shared_ptr<WatchUser> reader;
  std::shared_ptr<WatchUser> writer;
  if (ready.readable || ready.ended) {
    arrived_ = reader_ == nullptr;
    reader = std::move(reader_);
  }
  if (ready.writable || ready.broken) {
    writer = std::move(writer_);
  }
  if (reader != nullptr) {
    reader->on_readable();
  }
  if (writer != nullptr && is_open()) {
    writer->on_writable();
  }
}

FileDescriptor Watch::release() {
  FileDescriptor fd = std::move(fd_);
  end(fd.get());
  return fd;
}

void Watch::close() {
  const FileDescriptor fd = std::move(fd_);
  end(-1);
}

void Watch::close_shared() {
  const FileDescriptor fd = std::move(fd_);
  end(fd.get());
}

void Watch::end(int shared_fd) {
  if (!is_watched()) {
    return;  // any thread may destroy what is closed
  }
  loop_.remove(std::exchange(key_, EventLoop::kNoKey), shared_fd);
  const auto reader = std::move(reader_);
  const auto writer = std::move(writer_);  // one of them may have this
}

}  // namespace stator::net::detail
