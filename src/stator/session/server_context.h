// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "stator/core/clock.h"
#include "stator/core/metrics.h"
#include "stator/core/mutex.h"
#include "stator/discovery/instance_record.h"
#include "stator/engine/api/engine.h"
#include "stator/net/grpc_call.h"
#include "stator/net/grpc_status.h"
#include "stator/net/shard.h"
#include "stator/session/detail/crowder.h"
#include "stator/session/detail/pump.h"
#include "stator/session/detail/write_pace.h"
#include "stator/session/session_metrics.h"
#include "stator/session/worker_server.h"

namespace stator::session {

/// Counters of the worker's side.
struct ServerMetrics {
  explicit ServerMetrics(Metrics& metrics)
      : sessions_open(metrics.gauge("stator_runtime_server_sessions_open",
                                    "sessions of frontend shards at this worker")),
        event_streams_open(metrics.gauge("stator_runtime_server_event_streams_open",
                                         "readers of this worker's KV events")),
        messages_received(metrics.counter("stator_runtime_server_messages_total",
                                          "worker-plane messages", {{"direction", "received"}})),
        messages_sent(metrics.counter("stator_runtime_server_messages_total",
                                      "worker-plane messages", {{"direction", "sent"}})),
        tokens(metrics.counter("stator_runtime_server_tokens_total", "output tokens sent")),
        rejected_messages(
            metrics.counter("stator_runtime_server_rejected_messages_total",
                            "messages that do not decode, are of unknown kind or out of order")),
        slow_session_cancels(
            metrics.counter("stator_runtime_server_slow_session_cancels_total",
                            "requests cancelled because their frontend reads too slowly")),
        crowded_out(metrics.counter("stator_runtime_server_crowded_out_total",
                                    "sessions and event streams that ended because their client "
                                    "held many while all places were taken")),
        refused_callers(metrics.counter("stator_runtime_server_refused_callers_total",
                                        "calls of certified processes that are not allowed")),
        expired(metrics.counter("stator_runtime_server_expired_total",
                                "requests cancelled at their deadline by the worker")),
        transport(metrics) {}
  Gauge sessions_open;
  Gauge event_streams_open;
  Counter messages_received;
  Counter messages_sent;
  Counter tokens;
  Counter rejected_messages;
  Counter slow_session_cancels;
  Counter crowded_out;
  Counter refused_callers;
  Counter expired;
  TransportMetrics transport;
};

namespace detail {
class ServerSession;
class ServerEvents;
}  // namespace detail

/// What a stream whose place goes to another client is told.
inline net::GrpcOutcome gave_way() {
  return {net::kGrpcResourceExhausted,
          "all places are taken, and this client has many: one went to another client"};
}
/// What a stream is told for which there is no place.
inline net::GrpcOutcome no_place(std::string what) {
  return {net::kGrpcResourceExhausted, "too many " + std::move(what)};
}

/// Makes place among `streams`, which are all there may be: takes out the one that gives way to a
/// newcomer from `address`. Null: none does.
template <typename Stream>
std::shared_ptr<Stream> make_place(std::vector<std::shared_ptr<Stream>>& streams,
                                   const std::string& address) {
  std::vector<std::string> holders;
  std::vector<bool> idle;
  for (const auto& stream : streams) {
    holders.push_back(stream->client_address());
    idle.push_back(stream->only_greeted());
  }
  auto crowder = detail::find_crowder(holders, address);
  if (!crowder) {
    crowder = detail::find_idler(holders, address, idle);
  }
  if (!crowder) {
    return nullptr;
  }
  auto out = std::move(streams[*crowder]);
  streams.erase(streams.begin() + static_cast<ptrdiff_t>(*crowder));
  return out;
}

/// What the streams of one WorkerServer share. Outlives them all.
struct ServerContext {
  ServerContext(discovery::InstanceRecord record_in, engine::Engine& engine_in,
                WorkerServerOptions options_in, const Clock& clock_in, Metrics& metrics_in)
      : record(std::move(record_in)),
        engine(engine_in),
        options(std::move(options_in)),
        clock(clock_in),
        metrics(metrics_in) {}

  discovery::InstanceRecord record;  // const once the server has started
  engine::Engine& engine;
  const WorkerServerOptions options;
  const Clock& clock;
  const ServerMetrics metrics;
  std::atomic<bool> draining{false};
  net::Shard* loop = nullptr;  // reads, and writes what engines' threads leave to it
  detail::WritePace pace;      // of engines' threads
  std::unique_ptr<detail::Pump>
      events_pump;  // snapshots take long; keep them off the sessions' way

  Mutex mutex;
  std::vector<std::shared_ptr<detail::ServerSession>> sessions STATOR_GUARDED_BY(mutex);
  std::vector<std::shared_ptr<detail::ServerEvents>> event_streams STATOR_GUARDED_BY(mutex);
  bool stopping STATOR_GUARDED_BY(mutex) = false;
};

}  // namespace stator::session
