// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "stator/core/config.h"
#include "stator/core/metrics.h"
#include "stator/core/result.h"
#include "stator/kv_events/durable_events.h"
#include "stator/kv_events/nats_connection.h"
#include "stator/session/connector.h"

namespace stator::app {

/// How KV events get from workers to frontends.
struct EventSettings {
  std::string carrier = "grpc";  ///< or the URL of a NATS server
  bool durable = false;          ///< kept by the broker, in JetStream
  bool forward_passes = false;   ///< workers publish them, too
  kv_events::DurableEventsConfig durable_config;
};

void describe(ConfigSchema& schema, EventSettings& settings);

/// Stores what a worker publishes; null unless events are durable.
Result<std::unique_ptr<kv_events::DurableSink>> open_durable_sink(
    const EventSettings& settings, kv_events::NatsConnection& broker,
    const discovery::InstanceKey& key);

/// The broker that `settings` name; null for gRPC, which needs none. A broker that is away is
/// waited for in the background. `role` is how the broker's own tools show this process.
Result<std::unique_ptr<kv_events::NatsConnection>> open_event_carrier(const EventSettings& settings,
                                                                      std::string_view role,
                                                                      Metrics& metrics);

/// `sessions` with the events that `broker` carries, where there is one.
Result<std::unique_ptr<session::Connector>> carry_events(
    const EventSettings& settings, std::unique_ptr<session::Connector> sessions,
    kv_events::NatsConnection* broker, const Clock& clock, Metrics& metrics);

}  // namespace stator::app
