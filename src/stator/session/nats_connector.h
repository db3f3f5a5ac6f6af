// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "stator/core/metrics.h"
#include "stator/kv_events/durable_events.h"
#include "stator/kv_events/nats_connection.h"
#include "stator/session/connector.h"

namespace stator::session {

/// Sessions as another connector makes them; KV events over NATS instead of one stream per worker.
/// Followers keep the promise of EventFollower whatever the broker loses: what is missing is asked
/// of the worker (EventPublisher answers), and heartbeats show what nothing newer would.
///
/// At most kInFlightBytesMax of messages wait for a loop; more are dropped, counted, and asked for
/// again. `nats` and `metrics` outlive it; it outlives its sessions and followers. With `durable` a
/// follower's first question goes to what the broker keeps, and to the worker only if that is not
/// enough.
std::unique_ptr<Connector> make_nats_connector(
    std::unique_ptr<Connector> sessions, kv_events::NatsConnection& nats, Metrics& metrics,
    std::unique_ptr<kv_events::DurableEvents> durable = nullptr);

}  // namespace stator::session
