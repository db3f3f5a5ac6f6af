// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "stator/core/metrics.h"

namespace stator::session {

/// What goes over connections between frontends and workers, under Dynamo's names: bytes of
/// messages, without framing. Handles only: cheap to copy.
struct TransportMetrics {
  explicit TransportMetrics(Metrics& metrics)
      : active(metrics.gauge("dynamo_transport_tcp_pool_active", "sessions over connections")),
        bytes_sent(metrics.counter("dynamo_transport_tcp_bytes_sent_total", "bytes of messages")),
        bytes_received(
            metrics.counter("dynamo_transport_tcp_bytes_received_total", "bytes of messages")),
        errors(metrics.counter("dynamo_transport_tcp_errors_total",
                               "sessions that broke, and messages that did not parse")) {}
  Gauge active;
  Counter bytes_sent;
  Counter bytes_received;
  Counter errors;
};

/// Counters of the request plane, client side. Handles only: cheap to copy.
struct SessionMetrics {
  explicit SessionMetrics(Metrics& metrics)
      : sessions_open(metrics.gauge("stator_runtime_sessions_open", "sessions to workers")),
        messages_sent(metrics.counter("stator_runtime_messages_total", "worker-plane messages",
                                      {{"direction", "sent"}})),
        messages_received(metrics.counter("stator_runtime_messages_total", "worker-plane messages",
                                          {{"direction", "received"}})),
        tokens(metrics.counter("stator_runtime_tokens_total", "output tokens received")),
        rejected_messages(
            metrics.counter("stator_runtime_rejected_messages_total",
                            "messages that do not decode, are of unknown kind or too large")),
        send_queue_full(metrics.counter("stator_runtime_send_queue_full_total",
                                        "requests refused because a worker reads too slowly")),
        stale_deltas(metrics.counter("stator_runtime_stale_deltas_total",
                                     "deltas of requests already cancelled or ended")),
        transport(metrics) {}
  Gauge sessions_open;
  Counter messages_sent;
  Counter messages_received;
  Counter tokens;
  Counter rejected_messages;
  Counter send_queue_full;
  Counter stale_deltas;
  TransportMetrics transport;
};

}  // namespace stator::session
