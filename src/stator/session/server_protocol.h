// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "stator/core/clock.h"
#include "stator/core/mutex.h"
#include "stator/net/grpc_call.h"
#include "stator/session/detail/output_queue.h"
#include "stator/session/server_context.h"

namespace stator::worker::v1 {
class Cancel;
class ClientMessage;
class Hello;
class Submit;
class WorkerMessage;
}  // namespace stator::worker::v1

namespace stator::session {

/// The worker's half of the Session protocol, whatever carries it: what the client says goes to the
/// engine, what the engine says waits here until the carrier can send it.
///
///   carrier ── receive(message) ──► engine ── on_step ──► OutputQueue ── pop() ──► carrier
///
/// V1  The engine's thread only takes `mutex_`, never `engine_mutex_`.
/// V2  After close() the engine has forgotten the session, nothing is taken and nothing handed out.
class ServerProtocol final : public engine::EngineSink {
 public:
  class Listener {
   public:
    virtual ~Listener() = default;
    /// There is something to send, or to cancel by cancel_overflowed(). On the engine's thread,
    /// without a lock: must not call back into the engine.
    virtual void on_output() noexcept = 0;
  };

  /// Both outlive it.
  ServerProtocol(ServerContext& context, Listener& listener);
  ServerProtocol(const ServerProtocol&) = delete;
  ServerProtocol& operator=(const ServerProtocol&) = delete;

  // The carrier, one call at a time. An error ends the session; there may be something to send.
  net::GrpcOutcome receive(const worker::v1::ClientMessage& message);

  // The engine's thread.
  void on_step(inference::StepOutput output) noexcept override;

  // Any thread but the engine's.
  void cancel_overflowed() STATOR_EXCLUDES(engine_mutex_);
  /// Fails what is past its deadline. True if there is something to send.
  bool expire(TimePoint now) STATOR_EXCLUDES(engine_mutex_);
  /// False before the greeting: it tells both.
  bool offer_load(const engine::LoadReport& load);
  bool drain();
  /// Cancels everything in the engine. Idempotent.
  void close() STATOR_EXCLUDES(engine_mutex_);

  // Any thread.
  std::optional<detail::OutputQueue::Message> pop();
  void encode(const detail::OutputQueue::Message& message, worker::v1::WorkerMessage& out) const;
  /// So much waits for a client that does not read that no more should be taken from it.
  bool crowded() const;
  /// Little waits, and nothing has to be cancelled: sending it is a matter of microseconds.
  bool quick() const;
  size_t in_flight() const;
  size_t waiting() const;

 private:
  /// Messages that wait for a client that does not read, before we stop reading from it.
  static constexpr size_t kControlMax = 8192;
  /// Bytes of waiting steps that are encoded in no time: the deltas of some hundred sequences.
  static constexpr size_t kQuickBytes = size_t{32} * 1024;

  net::GrpcOutcome receive_hello(const worker::v1::Hello& hello);
  net::GrpcOutcome receive_submit(const worker::v1::Submit& submit);
  net::GrpcOutcome receive_cancel(const worker::v1::Cancel& cancel);
  Status run(inference::EngineRequest request) STATOR_EXCLUDES(engine_mutex_);
  void reject(inference::RequestKey key, Error error) STATOR_EXCLUDES(mutex_);
  void cancel_in_engine(const std::vector<inference::RequestKey>& keys)
      STATOR_EXCLUDES(engine_mutex_);

  ServerContext& context_;
  Listener& listener_;

  Mutex engine_mutex_;  // taken before mutex_
  std::optional<engine::SessionId> engine_session_ STATOR_GUARDED_BY(engine_mutex_);
  bool engine_closed_ STATOR_GUARDED_BY(engine_mutex_) = false;

  mutable Mutex mutex_;
  detail::OutputQueue output_ STATOR_GUARDED_BY(mutex_);
  std::vector<inference::RequestKey> overflowed_ STATOR_GUARDED_BY(mutex_);
  bool greeted_ STATOR_GUARDED_BY(mutex_) = false;
  bool closed_ STATOR_GUARDED_BY(mutex_) = false;
};

}  // namespace stator::session
