// SPDX-License-Identifier: Apache-2.0
#include "stator/app/event_carrier.h"

#include <fmt/format.h>

#include <utility>

#include "stator/session/nats_connector.h"

namespace stator::app {

void describe(ConfigSchema& schema, EventSettings& settings) {
  schema.text("events.carrier", settings.carrier,
              "how KV events get from workers to frontends: grpc, or nats://HOST:PORT of a broker; "
              "the same everywhere",
              {.flag = "events"});
  schema.boolean("events.durable", settings.durable,
                 "the broker keeps KV events on its disk (JetStream: nats-server -js), so that a "
                 "frontend that starts need not ask the workers; the same everywhere",
                 {.flag = "durable-kv-events",
                  .env_peer = "DYN_DURABLE_KV_EVENTS",
                  .flag_peer = "router-durable-kv-events"});
  schema.boolean("events.forward_passes", settings.forward_passes,
                 "workers with an engine of ours publish what each of its forward passes computes, "
                 "for planners; needs a broker",
                 {.flag = "forward-passes"});
  kv_events::DurableEventsConfig& durable = settings.durable_config;
  schema.bytes("events.stream_bytes_max", durable.stream_bytes_max,
               "durable events: room for them in the broker; beyond it the oldest go");
  schema.bytes("events.snapshot_bytes_max", durable.snapshot_bytes_max,
               "durable events: room for snapshots in the broker, two of which are there at times");
  schema.integer(
      "events.snapshot_threshold", durable.snapshot_threshold, 1, 1ULL << 40,
      "durable events: messages kept until a frontend replaces them by a snapshot",
      {.env_peer = "DYN_ROUTER_SNAPSHOT_THRESHOLD", .flag_peer = "router-snapshot-threshold"});
  schema.boolean("events.reset_states", durable.reset,
                 "durable events: a frontend that starts deletes what the broker has",
                 {.env_peer = "DYN_ROUTER_RESET_STATES", .flag_peer = "router-reset-states"});
}

Result<std::unique_ptr<kv_events::NatsConnection>> open_event_carrier(const EventSettings& settings,
                                                                      std::string_view role,
                                                                      Metrics& metrics) {
  if (settings.carrier == "grpc") {
    if (settings.durable) {
      return Error(Code::kInvalidArgument,
                   "events.durable (flag --durable-kv-events) needs a broker that keeps them: "
                   "events.carrier (flag --events) nats://HOST:PORT");
    }
    if (settings.forward_passes) {
      return Error(Code::kInvalidArgument,
                   "events.forward_passes (flag --forward-passes) needs a broker: events.carrier "
                   "(flag --events) nats://HOST:PORT");
    }
    return std::unique_ptr<kv_events::NatsConnection>();
  }
  if (!settings.carrier.starts_with("nats://") && !settings.carrier.starts_with("tls://")) {
    return Error(Code::kInvalidArgument,
                 fmt::format("events.carrier (flag --events): '{}' is neither grpc nor "
                             "nats://HOST:PORT",
                             settings.carrier));
  }
  return kv_events::NatsConnection::open(
      {.url = settings.carrier, .client_name = fmt::format("stator-{}", role)}, metrics);
}

Result<std::unique_ptr<kv_events::DurableSink>> open_durable_sink(
    const EventSettings& settings, kv_events::NatsConnection& broker,
    const discovery::InstanceKey& key) {
  if (!settings.durable) {
    return std::unique_ptr<kv_events::DurableSink>();
  }
  return kv_events::DurableSink::make(settings.durable_config, broker, key);
}

Result<std::unique_ptr<session::Connector>> carry_events(
    const EventSettings& settings, std::unique_ptr<session::Connector> sessions,
    kv_events::NatsConnection* broker, const Clock& clock, Metrics& metrics) {
  if (broker == nullptr) {
    return sessions;
  }
  std::unique_ptr<kv_events::DurableEvents> durable;
  if (settings.durable) {
    STATOR_TRY(durable,
               kv_events::DurableEvents::start(settings.durable_config, *broker, clock, metrics));
  }
  return session::make_nats_connector(std::move(sessions), *broker, metrics, std::move(durable));
}

}  // namespace stator::app
