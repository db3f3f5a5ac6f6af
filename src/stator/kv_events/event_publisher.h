// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "stator/core/clock.h"
#include "stator/core/metrics.h"
#include "stator/core/result.h"
#include "stator/discovery/instance_record.h"
#include "stator/kv/event_log.h"
#include "stator/kv_events/durable_events.h"
#include "stator/kv_events/nats_connection.h"

namespace stator::kv_events {

/// Where the events of the workers of one component go.
std::string events_subject(const discovery::InstanceKey& key);
/// Where they say that nothing is new, when messages with events are stored: signs of life need not
/// be.
std::string events_alive_subject(const discovery::InstanceKey& key);
/// Where one worker is asked for what a reader lacks.
std::string events_query_subject(const discovery::InstanceKey& key);

/// Publishes a worker's KV events over NATS, and answers readers that lost some.
///
///   STATOR_TRY(auto publisher, EventPublisher::start(nats, record, engine.events(), clock,
///   metrics));
///
/// The event log is the only buffer: while the broker is away nothing is sent, and what the log has
/// overwritten when it is back, readers get as a dump. An idle worker sends a heartbeat each
/// kHeartbeat, so the loss of the newest event is noticed, too. One thread of its own; answers are
/// made on NATS's thread, one at a time.
///
/// With a sink, each message is stored by the broker before the next one is sent. A broker that
/// refuses for kStoreWait gets it unstored, so that routers do not wait for a full disk.
class EventPublisher {
 public:
  static constexpr Duration kStoreWait = std::chrono::seconds(5);
  static constexpr Duration kHeartbeat = std::chrono::seconds(1);

  /// `nats`, `log`, `clock` and `metrics` outlive it. Null `sink`: nothing is stored.
  static Result<std::unique_ptr<EventPublisher>> start(NatsConnection& nats,
                                                       const discovery::InstanceRecord& record,
                                                       kv::EventLog& log, const Clock& clock,
                                                       Metrics& metrics,
                                                       std::unique_ptr<DurableSink> sink = nullptr);
  /// Stops; what is not sent yet stays unsent.
  virtual ~EventPublisher() = default;
};

}  // namespace stator::kv_events
