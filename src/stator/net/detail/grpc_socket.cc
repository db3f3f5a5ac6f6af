// SPDX-License-Identifier: Apache-2.0
#include "stator/net/detail/grpc_socket.h"

#include <vector>

namespace stator::net::detail {
namespace {

constexpr size_t kReadBytes = size_t{64} * 1024;
// Reads of one connection in one turn; then the others have theirs.
constexpr int kReadsPerTurn = 4;

/// One per loop's thread: what is read is handled before the next read.
std::vector<char>& read_buffer() {
  thread_local std::vector<char> buffer(kReadBytes);
  return buffer;
}

}  // namespace

GrpcSocket::GrpcSocket(Shard& shard) : shard_(shard), socket_(shard.loop()) {}

void GrpcSocket::wait_readable() {
  if (!closed_ && !socket_.waits_readable()) {
    socket_.wait_readable(shared_from_this());
  }
}

void GrpcSocket::wait_writable() {
  if (!closed_ && !socket_.waits_writable()) {
    socket_.wait_writable(shared_from_this());
  }
}

void GrpcSocket::on_readable() {
  std::vector<char>& buffer = read_buffer();
  for (int reads = 0; reads < kReadsPerTurn; ++reads) {
    const Read got = read_some(buffer);
    switch (got.state) {
      case IoState::kDone:
        break;
      case IoState::kWantWrite:
        wait_writable();
        [[fallthrough]];
      case IoState::kWantRead:
        on_pause(got.state);
        return wait_readable();
      case IoState::kClosed:
      case IoState::kFailed:
        return on_broken(got.state);
    }
    silence_.heard();
    on_read();
    if (closed_) {
      return;
    }
    if (got.drained) {
      on_pause(IoState::kDone);
      return wait_readable();
    }
  }
  on_pause(IoState::kDone);
  if (!closed_) {
    socket_.wait_readable_again(shared_from_this());
  }
}

}  // namespace stator::net::detail
