// SPDX-License-Identifier: Apache-2.0
#include "stator/cli/event_carrier.h"

#include <fmt/format.h>

namespace stator::cli {

void describe(ConfigSchema& schema, EventSettings& settings) {
  schema.text("events.carrier", settings.carrier,
              "how KV events get from workers to frontends: grpc, or nats://HOST:PORT of a broker; "
              "the same everywhere",
              {.flag = "events"});
  schema.boolean("events.durable", settings.durable,
                 "keep KV events in JetStream; not available: workers answer for what is lost",
                 {.flag = "durable-kv-events",
                  .env_peer = "DYN_DURABLE_KV_EVENTS",
                  .flag_peer = "router-durable-kv-events"});
}

Result<std::unique_ptr<events::NatsConnection>> open_event_carrier(const EventSettings& settings,
                                                                   std::string_view role,
                                                                   Metrics& metrics) {
  if (settings.durable) {
    return Error(
        Code::kUnsupported,
        "events.durable (flag --durable-kv-events) is not available; without it nothing is "
        "lost either: after a gap frontends ask the workers themselves");
  }
  if (settings.carrier == "grpc") {
    return std::unique_ptr<events::NatsConnection>();
  }
  if (!settings.carrier.starts_with("nats://") && !settings.carrier.starts_with("tls://")) {
    return Error(Code::kInvalidArgument,
                 fmt::format("events.carrier (flag --events): '{}' is neither grpc nor "
                             "nats://HOST:PORT",
                             settings.carrier));
  }
  return events::NatsConnection::open(
      {.url = settings.carrier, .client_name = fmt::format("stator-{}", role)}, metrics);
}

}  // namespace stator::cli
