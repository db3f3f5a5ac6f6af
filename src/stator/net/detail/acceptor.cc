// SPDX-License-Identifier: Apache-2.0
#include "stator/net/detail/acceptor.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "stator/core/log.h"
#include "stator/net/detail/watch.h"
#include "stator/net/shard.h"

namespace stator::net::detail {
namespace {

constexpr int kAcceptsPerTurn = 64;
constexpr Duration kBackoffMin = std::chrono::milliseconds(5);
constexpr Duration kBackoffMax = std::chrono::seconds(1);

}  // namespace

// Shared with the wait in the loop.
struct AcceptorState final : WatchUser, std::enable_shared_from_this<AcceptorState> {
  AcceptorState(Shard& on, uint16_t port_in, Counter backoffs_in, Acceptor::Take take_in)
      : shard(on),
        socket(on.loop()),
        port(port_in),
        backoffs(backoffs_in),
        take(std::move(take_in)) {}

  // Other processes may have taken what was reported here, or more may wait than a turn takes.
  void wait() { socket.wait_readable_again(shared_from_this()); }
  void on_readable() override { accept(); }
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
      Accepted accepted = accept_tcp(socket.fd());
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
    socket.close_shared();
  }

  Shard& shard;
  Watch socket;
  const uint16_t port;
  const Counter backoffs;
  Acceptor::Take take;  // null once closed
  Timer retry;
  Duration backoff = kBackoffMin;
};

Result<std::unique_ptr<Acceptor>> Acceptor::open(Shard& shard, ListenSocket socket,
                                                 Counter backoffs, Take take) {
  auto state = std::make_shared<AcceptorState>(shard, socket.port, backoffs, std::move(take));
  STATOR_CHECK(state->socket.open(std::move(socket.fd)));
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
