// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "stator/core/metrics.h"

namespace stator::runtime::detail {

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
                                     "deltas of requests already cancelled or ended")) {}
  Gauge sessions_open;
  Counter messages_sent;
  Counter messages_received;
  Counter tokens;
  Counter rejected_messages;
  Counter send_queue_full;
  Counter stale_deltas;
};

}  // namespace stator::runtime::detail
