// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "stator/core/clock.h"
#include "stator/core/metrics.h"
#include "stator/core/result.h"
#include "stator/lab/fake_engine/engine_host_service.h"
#include "stator/lab/fake_engine/event_publisher_service.h"
#include "stator/lab/fake_engine/faults.h"

namespace stator::fake_engine {

/// KV events of all ranks onto ZeroMQ, in the dialect's form and with the faults that were asked
/// for. On the shard's loop.
class KvPublishing final : public EventOutlet {
 public:
  /// `faults` and `clock` outlive it. kInvalidArgument naming the endpoint.
  static Result<std::unique_ptr<KvPublishing>> create(const FakeConfig& config,
                                                      PendingFaults& faults, const Clock& clock,
                                                      Metrics& metrics);

  void on_events(WireBatch batch) override;
  /// Acts on faults that are not about a single batch. Call after a fault was added.
  void apply_faults();

  const EventPublisher& publisher(uint32_t rank) const { return *publishers_[rank]; }
  uint32_t ranks() const { return static_cast<uint32_t>(publishers_.size()); }

 private:
  KvPublishing(const FakeConfig& config, PendingFaults& faults, const Clock& clock)
      : config_(config), faults_(faults), clock_(clock), cleared_(config.dp_size, false) {}

  const FakeConfig& config_;
  PendingFaults& faults_;
  const Clock& clock_;
  std::vector<std::unique_ptr<EventPublisher>> publishers_;
  /// vLLM says that everything was cleared only with the next batch that says something else.
  std::vector<bool> cleared_;
};

}  // namespace stator::fake_engine
