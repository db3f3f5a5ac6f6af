// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <google/protobuf/arena.h>
#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "stator/core/clock.h"
#include "stator/core/mutex.h"
#include "stator/proto/worker/v1/worker.grpc.pb.h"
#include "stator/runtime/detail/output_queue.h"
#include "stator/runtime/detail/pump.h"
#include "stator/runtime/detail/server_context.h"

namespace stator::runtime::detail {

/// One Session stream at the worker.
///
///   engine thread ── on_step ──► OutputQueue ──(pump or gRPC thread)── encode, write ──► client
///   client ──► gRPC thread ── Submit, Cancel ──► engine
///
/// V1  The engine's thread only takes `mutex_`, never `engine_mutex_`, and never calls gRPC.
/// V2  At most one write is under way; Finish comes after it.
/// V3  The engine session is closed before the stream is finished, so a lost client frees its
///     sequences at once.
/// V4  The object keeps itself alive until gRPC's OnDone.
class ServerSession final
    : public grpc::ServerBidiReactor<worker::v1::ClientMessage, worker::v1::WorkerMessage>,
      public engine::EngineSink,
      public Pumped,
      public std::enable_shared_from_this<ServerSession> {
 public:
  /// Registers with `context`; gRPC deletes it through OnDone.
  static ServerSession* start(ServerContext& context);

  explicit ServerSession(ServerContext& context);
  ~ServerSession() override;

  // gRPC's threads.
  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

  // The engine's thread.
  void on_step(engine::StepOutput output) noexcept override;

  // The pump's thread.
  void pump() noexcept override;
  void tick(TimePoint now);
  void offer_load(const engine::LoadReport& load);

  // Any thread.
  void drain();
  /// Cancels everything in the engine and ends the stream. Idempotent.
  void end(grpc::Status status);
  size_t in_flight() const;
  size_t unsent() const;

 private:
  /// Messages that wait for a client that does not read, before we stop reading from it.
  static constexpr size_t kControlMax = 8192;

  grpc::Status receive();
  grpc::Status receive_hello(const worker::v1::Hello& hello);
  grpc::Status receive_submit(const worker::v1::Submit& submit);
  grpc::Status receive_cancel(const worker::v1::Cancel& cancel);
  Status run(engine::EngineRequest request) STATOR_EXCLUDES(engine_mutex_);
  void reject(engine::RequestKey key, Error error) STATOR_EXCLUDES(mutex_);
  void read_on() STATOR_EXCLUDES(mutex_);
  void write_next() STATOR_EXCLUDES(mutex_);
  void write(OutputQueue::Message message);
  void cancel_in_engine(const std::vector<engine::RequestKey>& keys) STATOR_EXCLUDES(engine_mutex_);

  ServerContext& context_;
  std::shared_ptr<ServerSession> self_;  // V4

  worker::v1::ClientMessage incoming_;
  google::protobuf::Arena arena_;  // of the message being written

  Mutex engine_mutex_;  // taken before mutex_
  std::optional<engine::SessionId> engine_session_ STATOR_GUARDED_BY(engine_mutex_);
  bool engine_closed_ STATOR_GUARDED_BY(engine_mutex_) = false;

  mutable Mutex mutex_;
  OutputQueue output_ STATOR_GUARDED_BY(mutex_);
  std::vector<engine::RequestKey> overflowed_ STATOR_GUARDED_BY(mutex_);  // to cancel by the pump
  bool greeted_ STATOR_GUARDED_BY(mutex_) = false;
  bool writing_ STATOR_GUARDED_BY(mutex_) = false;
  bool read_paused_ STATOR_GUARDED_BY(mutex_) = false;
  bool ended_ STATOR_GUARDED_BY(mutex_) = false;
  grpc::Status status_ STATOR_GUARDED_BY(mutex_);  // to finish with, once ended
};

}  // namespace stator::runtime::detail
