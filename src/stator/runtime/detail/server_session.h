// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <google/protobuf/arena.h>
#include <grpcpp/grpcpp.h>

#include <memory>

#include "stator/core/clock.h"
#include "stator/core/mutex.h"
#include "stator/proto/worker/v1/worker.grpc.pb.h"
#include "stator/runtime/detail/pump.h"
#include "stator/runtime/detail/server_context.h"
#include "stator/runtime/detail/server_talk.h"

namespace stator::runtime::detail {

/// One Session stream at the worker: carries what a ServerTalk has to say, and what it must hear.
///
///   engine thread ── on_output ──(pump or gRPC thread)── pop, encode, write ──► client
///   client ──► gRPC thread ── receive ──► ServerTalk
///
/// V1  The engine's thread never calls gRPC.
/// V2  At most one write is under way; Finish comes after it.
/// V3  The talk is closed before the stream is finished, so a lost client frees its sequences at
///     once.
/// V4  The object keeps itself alive until gRPC's OnDone.
class ServerSession final
    : public grpc::ServerBidiReactor<worker::v1::ClientMessage, worker::v1::WorkerMessage>,
      public ServerTalk::Listener,
      public Pumped,
      public std::enable_shared_from_this<ServerSession> {
 public:
  /// Registers with `context`; gRPC deletes it through OnDone.
  /// A `refusal` other than OK is all the caller gets.
  static ServerSession* start(ServerContext& context, grpc::Status refusal);

  explicit ServerSession(ServerContext& context);
  ~ServerSession() override;

  // gRPC's threads.
  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

  // The engine's thread.
  void on_output() noexcept override;

  // The pump's thread.
  void pump() noexcept override;
  void tick(TimePoint now);
  void offer_load(const engine::LoadReport& load);

  // Any thread.
  void drain();
  /// Cancels everything in the engine and ends the stream. Idempotent.
  void end(grpc::Status status);
  size_t in_flight() const { return talk_.in_flight(); }
  size_t unsent() const;

 private:
  void read_on() STATOR_EXCLUDES(mutex_);
  void write_next() STATOR_EXCLUDES(mutex_);
  void write(const OutputQueue::Message& message);

  ServerContext& context_;
  std::shared_ptr<ServerSession> self_;  // V4
  ServerTalk talk_;

  worker::v1::ClientMessage incoming_;
  google::protobuf::Arena arena_;  // of the message being written

  mutable Mutex mutex_;  // taken before the talk's
  bool writing_ STATOR_GUARDED_BY(mutex_) = false;
  bool read_paused_ STATOR_GUARDED_BY(mutex_) = false;
  bool ended_ STATOR_GUARDED_BY(mutex_) = false;
  grpc::Status status_ STATOR_GUARDED_BY(mutex_);  // to finish with, once ended
};

}  // namespace stator::runtime::detail
