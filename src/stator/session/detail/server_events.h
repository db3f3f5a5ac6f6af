// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>

#include "stator/kv/event_log.h"
#include "stator/kv_events/event_cursor.h"
#include "stator/net/grpc_server.h"
#include "stator/session/detail/pump.h"
#include "stator/session/server_context.h"

namespace stator::worker::v1 {
class EventsRequest;
}

namespace stator::session::detail {

/// One Events stream at the worker. It reads the log when the previous chunk has been sent, so a
/// slow reader costs nothing but, in the end, a snapshot.
class ServerEvents final : public net::GrpcCallHandler,
                           public kv::EventLogListener,
                           public Pumped,
                           public std::enable_shared_from_this<ServerEvents> {
 public:
  ServerEvents(ServerContext& context, std::shared_ptr<net::GrpcServerCall> call)
      : context_(context), call_(std::move(call)) {}

  const std::string& client_address() const { return call_->caller().address; }
  bool only_greeted() const { return false; }  // it listens, which is all there is to do

  // The loop.
  void on_message(std::string_view message) override;
  void on_half_closed() override;
  void on_room() override;
  void on_gone() override;

  void on_events_available() noexcept override;
  // The events pump's thread.
  void pump() noexcept override;
  /// Ends the stream. Any thread; idempotent.
  void end(net::GrpcOutcome outcome);

 private:
  void begin(const worker::v1::EventsRequest& request);

  ServerContext& context_;
  const std::shared_ptr<net::GrpcServerCall> call_;
  std::optional<kv_events::EventCursor>
      cursor_;         // set before the first kick; then the pump's thread only
  std::string bytes_;  // the pump's thread only
  std::atomic<bool> ended_{false};
};

}  // namespace stator::session::detail
