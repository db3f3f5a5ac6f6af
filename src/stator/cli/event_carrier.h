// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "stator/core/config.h"
#include "stator/core/metrics.h"
#include "stator/core/result.h"
#include "stator/events/nats_connection.h"

namespace stator::cli {

/// How KV events get from workers to frontends.
struct EventSettings {
  std::string carrier = "grpc";  ///< or the URL of a NATS server
  bool durable = false;
};

void describe(ConfigSchema& schema, EventSettings& settings);

/// The broker that `settings` name; null for gRPC, which needs none. A broker that is away is
/// waited for in the background. `role` is how the broker's own tools show this process.
Result<std::unique_ptr<events::NatsConnection>> open_event_carrier(const EventSettings& settings,
                                                                   std::string_view role,
                                                                   Metrics& metrics);

}  // namespace stator::cli
