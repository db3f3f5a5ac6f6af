// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "stator/core/clock.h"
#include "stator/core/metrics.h"
#include "stator/core/result.h"
#include "stator/discovery/instance_record.h"
#include "stator/kv_events/nats_connection.h"

namespace stator::engine {
class ForwardPassLog;
}

namespace stator::kv_events {

/// Where the forward passes of the workers of one component go; of a namespace and component as in
/// their records.
std::string forward_passes_subject(const std::string& namespace_name, const std::string& component);

/// Publishes a worker's forward passes over NATS, one message each, from now until destroyed
/// (which takes up to 100 ms). At most once: what the broker does not take at once is dropped and
/// counted, because only the newest records are of use. One thread of its own.
class ForwardPassPublisher {
 public:
  /// `nats`, `passes`, `clock` and `metrics` outlive it. One per `passes`.
  static std::unique_ptr<ForwardPassPublisher> start(NatsConnection& nats,
                                                     const discovery::InstanceRecord& record,
                                                     engine::ForwardPassLog& passes,
                                                     const Clock& clock, Metrics& metrics);
  virtual ~ForwardPassPublisher() = default;
};

}  // namespace stator::kv_events
