// SPDX-License-Identifier: Apache-2.0
#include "stator/net/detail/acceptor.h"

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <chrono>
#include <utility>

#include "stator/core/log.h"
#include "stator/net/shard.h"

namespace stator::net::detail {
namespace {

using ErrorCode = boost::system::error_code;

constexpr int kAcceptsPerTurn = 64;
constexpr Duration kBackoffMin = std::chrono::milliseconds(5);
constexpr Duration kBackoffMax = std::chrono::seconds(1);

}  // namespace

// A cancelled wait completes after the acceptor has died, so the state outlives it.
struct AcceptorState : std::enable_shared_from_this<AcceptorState> {
  AcceptorState(Shard& on, uint16_t port_in, Counter backoffs_in, Acceptor::Take take_in)
      : shard(on),
        socket(on.io()),
        port(port_in),
        backoffs(backoffs_in),
        take(std::move(take_in)) {}

  void wait() {
    socket.async_wait(boost::asio::posix::descriptor_base::wait_read,
                      [self = shared_from_this()](const ErrorCode& ec) {
                        if (!ec && self->take != nullptr) {
                          self->accept();
                        }
                      });
  }
  void accept() {
    if (!take_some()) {
      return back_off();
    }
    if (socket.is_open()) {
      wait();
    }
  }
  bool take_some() {
    for (int i = 0; i < kAcceptsPerTurn && take != nullptr; ++i) {
      Accepted accepted = accept_tcp(socket.native_handle());
      if (accepted.error != 0) {
        backoffs.add();
        log::warn("net", "cannot accept connections for now; if files run out, raise ulimit -n",
                  {{"error", error_text(accepted.error)}, {"port", port}});
        return false;
      }
      if (!accepted.fd.open()) {
        return true;
      }
      backoff = kBackoffMin;
      take(std::move(accepted.fd));
    }
    return true;
  }
  void back_off() {
    retry = shard.after(backoff, [this] { shared_from_this()->accept(); });
    backoff = std::min(backoff * 2, kBackoffMax);
  }
  void close() {
    take = nullptr;
    retry.cancel();
    ErrorCode ignored;
    socket.close(ignored);  // NOLINT(bugprone-unused-return-value): nothing to do about it
  }

  Shard& shard;
  boost::asio::posix::stream_descriptor socket;
  const uint16_t port;
  const Counter backoffs;
  Acceptor::Take take;  // null once closed
  Timer retry;
  Duration backoff = kBackoffMin;
};

Result<std::unique_ptr<Acceptor>> Acceptor::open(Shard& shard, ListenSocket socket,
                                                 Counter backoffs, Take take) {
  auto state = std::make_shared<AcceptorState>(shard, socket.port, backoffs, std::move(take));
  ErrorCode ec;
  state->socket.assign(socket.fd.get(), ec);
  if (ec) {
    return Error(Code::kIo, "watching the listening socket: " + ec.message());
  }
  static_cast<void>(socket.fd.release());
  return std::make_unique<Acceptor>(std::move(state));
}

Acceptor::Acceptor(std::shared_ptr<AcceptorState> state) : state_(std::move(state)) {}

Acceptor::~Acceptor() {
  state_->close();
}

void Acceptor::start() {
  state_->wait();
}

void Acceptor::take_waiting() {
  if (!state_->take_some()) {
    state_->back_off();
  }
}

}  // namespace stator::net::detail
