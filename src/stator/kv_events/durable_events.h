// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "stator/core/clock.h"
#include "stator/core/metrics.h"
#include "stator/core/result.h"
#include "stator/discovery/instance_record.h"
#include "stator/kv_events/event_envelope.h"
#include "stator/kv_events/nats_connection.h"

namespace stator::kv_events {

/// Settings of KV events that a broker keeps.
struct DurableEventsConfig {
  uint64_t stream_bytes_max = uint64_t{1} << 30;    ///< beyond it the oldest messages go
  uint64_t snapshot_bytes_max = uint64_t{2} << 30;  ///< of the bucket; a snapshot may be half of it
  uint64_t snapshot_threshold = 1'000'000;  ///< messages in the stream until the next snapshot
  bool reset = false;                       ///< forget at start what the broker has
  /// Until all live workers have been heard of, and a snapshot may leave others out.
  Duration settle = std::chrono::seconds(10);
};

/// Names in the broker, as NVIDIA Dynamo's routers form them from a component.
std::string durable_stream(
    const discovery::InstanceKey& key);  ///< "namespace-NS-component-C-kv-events"
std::string durable_bucket(
    const discovery::InstanceKey& key);  ///< "namespace-NS-component-C-radix-bucket"
inline constexpr std::string_view kDurableObject = "radix-state";

/// The durable KV events of the components that a frontend follows: a newcomer gets what a worker
/// holds from the snapshot and the messages after it, without asking the worker; when the stream
/// has grown beyond the threshold, somebody writes a new snapshot and purges what it contains.
/// Several frontends may do that at once: the first to store its snapshot wins, the others do
/// nothing.
///
/// Thread-safe; one thread of its own, on which it waits for the broker.
class DurableEvents {
 public:
  /// `nats`, `clock` and `metrics` outlive it.
  static Result<std::unique_ptr<DurableEvents>> start(const DurableEventsConfig& config,
                                                      NatsConnection& nats, const Clock& clock,
                                                      Metrics& metrics);
  virtual ~DurableEvents() = default;

  /// What the broker knows of this worker, as parts of a dump; empty if that is nothing or the
  /// broker cannot say. `done` is called once, on the thread of this object, unless it is destroyed
  /// first. The worker counts as alive until `forget`.
  using Found = std::function<void(std::vector<EventReply> parts)>;
  virtual void find(const discovery::InstanceRecord& record, Found done) = 0;
  /// The worker is gone: the next snapshot is without it.
  virtual void forget(const discovery::InstanceKey& key) = 0;
};

/// Where one publisher stores its messages. Called on the publisher's thread only.
class DurableSink {
 public:
  static Result<std::unique_ptr<DurableSink>> make(const DurableEventsConfig& config,
                                                   NatsConnection& nats,
                                                   const discovery::InstanceKey& key);
  virtual ~DurableSink() = default;
  /// Returns when the broker has it on disk. `id`: a second message of one id is dropped.
  virtual Status store(std::string_view payload, const std::string& id) = 0;
};

}  // namespace stator::kv_events
