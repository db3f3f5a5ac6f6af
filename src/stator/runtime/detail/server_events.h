// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <grpcpp/grpcpp.h>

#include <memory>
#include <optional>

#include "stator/core/mutex.h"
#include "stator/kv/event_log.h"
#include "stator/proto/worker/v1/worker.grpc.pb.h"
#include "stator/runtime/detail/event_cursor.h"
#include "stator/runtime/detail/pump.h"
#include "stator/runtime/detail/server_context.h"

namespace stator::runtime::detail {

/// One Events stream at the worker. It reads the log when the previous chunk has been sent, so a
/// slow reader costs nothing but, in the end, a snapshot.
class ServerEvents final : public grpc::ServerWriteReactor<worker::v1::EventBatch>,
                           public kv::EventLogListener,
                           public Pumped,
                           public std::enable_shared_from_this<ServerEvents> {
 public:
  static ServerEvents* start(ServerContext& context, const worker::v1::EventsRequest& request,
                             grpc::Status refusal);

  ServerEvents(ServerContext& context, const worker::v1::EventsRequest& request);

  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;
  void on_events_available() noexcept override;
  void pump() noexcept override;
  /// Ends the stream. Any thread; idempotent.
  void end(grpc::Status status);

 private:
  ServerContext& context_;
  std::shared_ptr<ServerEvents> self_;  // until OnDone
  EventCursor cursor_;                  // the pump's thread only
  worker::v1::EventBatch outgoing_;
  Mutex mutex_;
  bool writing_ STATOR_GUARDED_BY(mutex_) = false;
  bool ended_ STATOR_GUARDED_BY(mutex_) = false;
  grpc::Status status_ STATOR_GUARDED_BY(mutex_);
};

}  // namespace stator::runtime::detail
