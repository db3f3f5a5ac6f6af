// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <google/protobuf/arena.h>

#include <atomic>
#include <memory>
#include <string>

#include "stator/core/clock.h"
#include "stator/core/mutex.h"
#include "stator/net/grpc_server.h"
#include "stator/session/server_context.h"
#include "stator/session/server_protocol.h"

namespace stator::session::detail {

/// One Session stream at the worker: carries what a ServerProtocol has to say, and what it must
/// hear.
///
///   engine thread ── on_output ──► pop, encode, write ──► client     (or, by WritePace, the loop)
///   client ──► loop ── receive ──► ServerProtocol
///
/// V1  The engine's thread never waits for the socket, and for other threads only while they write.
/// V2  Messages go out in the order in which they are popped: one thread at a time does both.
/// V3  The protocol is closed before the stream is finished, so a lost client frees its sequences
///     at once.
/// V4  It is one of the context's sessions from its Hello until on_gone: who does not greet takes
///     nobody's place.
class ServerSession final : public net::GrpcCallHandler,
                            public ServerProtocol::Listener,
                            public std::enable_shared_from_this<ServerSession> {
 public:
  ServerSession(ServerContext& context, std::shared_ptr<net::GrpcServerCall> call);

  // The loop.
  void on_message(std::string_view message) override;
  void on_half_closed() override;
  void on_room() override { write(); }
  void on_gone() override;
  void tick(TimePoint now);
  void offer_load(const engine::LoadReport& load);

  // The engine's thread.
  void on_output() noexcept override;

  // Any thread but the engine's.
  void drain();
  /// Cancels everything in the engine and ends the stream. Idempotent.
  void end(net::GrpcOutcome outcome);
  size_t in_flight() const { return protocol_.in_flight(); }
  const std::string& client_address() const { return call_->caller().address; }
  /// It has asked for nothing yet. Any thread.
  bool only_greeted() const { return only_greeted_.load(std::memory_order_relaxed); }
  size_t unsent() const { return protocol_.waiting() + (call_->unsent_bytes() > 0 ? 1 : 0); }

 private:
  net::GrpcOutcome enter();
  void leave();
  void write() STATOR_EXCLUDES(mutex_);
  bool send_what_fits() STATOR_EXCLUDES(mutex_);
  void leave_to_loop();
  void read_on();

  ServerContext& context_;
  const std::shared_ptr<net::GrpcServerCall> call_;
  ServerProtocol protocol_;
  bool entered_ = false;  // V4; the loop's
  std::atomic<bool> only_greeted_{true};
  std::atomic<bool> left_{false};  // to the loop, which has not begun
  std::atomic<bool> held_{false};  // nothing is read: the client does not read either

  Mutex mutex_;  // V2; taken before the protocol's and the connection's
  google::protobuf::Arena arena_ STATOR_GUARDED_BY(mutex_);  // of the message being written
  std::string bytes_ STATOR_GUARDED_BY(mutex_);              // of it; kept for its capacity
  bool ended_ STATOR_GUARDED_BY(mutex_) = false;
};

}  // namespace stator::session::detail
