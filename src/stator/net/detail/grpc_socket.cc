// SPDX-License-Identifier: Apache-2.0
#include "stator/net/detail/grpc_socket.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <utility>
#include <vector>

namespace stator::net::detail {
namespace {

using boost::asio::ip::tcp;

constexpr size_t kReadBytes = size_t{64} * 1024;
// Reads of one connection in one turn; then the others have theirs.
constexpr int kReadsPerTurn = 4;

/// One per loop's thread: what is read is handled before the next read.
std::vector<char>& read_buffer() {
  thread_local std::vector<char> buffer(kReadBytes);
  return buffer;
}

}  // namespace

GrpcSocket::GrpcSocket(Shard& shard) : shard_(shard), socket_(shard.io()) {}

template <typename Ready>
void GrpcSocket::wait(tcp::socket::wait_type what, bool& waiting, Ready ready) {
  if (closed_ || std::exchange(waiting, true)) {
    return;
  }
  socket_.async_wait(
      what, [self = shared_from_this(), &waiting, ready](const boost::system::error_code& ec) {
        waiting = false;
        if (!ec && !self->closed_) {
          ready(*self);
        }
      });
}

void GrpcSocket::wait_readable() {
  wait(tcp::socket::wait_read, read_waiting_, [](GrpcSocket& self) { self.read(); });
}

void GrpcSocket::wait_writable() {
  wait(tcp::socket::wait_write, write_waiting_, [](GrpcSocket& self) { self.on_writable(); });
}

void GrpcSocket::read() {
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
  boost::asio::post(shard_.io(), [self = shared_from_this()] {
    if (!self->closed_) {
      self->read();
    }
  });
}

}  // namespace stator::net::detail
