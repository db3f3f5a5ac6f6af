// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include "stator/core/clock.h"
#include "stator/core/metrics.h"
#include "stator/discovery/instance_record.h"
#include "stator/lab/fault_sim/virtual_engine.h"
#include "stator/lab/fault_sim/virtual_network.h"
#include "stator/lab/fault_sim/virtual_plane.h"
#include "stator/net/virtual_time.h"

namespace stator::fault_sim {

/// One life of a worker on a VirtualNetwork: WorkerServer with another carrier. Its sessions,
/// queues and event streams are production's. Destroying it is its death; crash its node first.
class VirtualWorker final : public VirtualNetwork::Acceptor {
 public:
  struct Machine {
    net::VirtualTime& time;
    VirtualNetwork& network;
    NodeId node;
    const Clock& clock;  ///< the worker's own, which may go wrong
    Metrics& metrics;
    VirtualPlane* plane = nullptr;  ///< where its KV events go, too; null: nowhere
  };
  /// Listens at once. `record` is what it registers with; its address is the node's name.
  VirtualWorker(Machine machine, discovery::InstanceRecord record, engine::EngineConfig config,
                std::unique_ptr<engine::ModelRunner> runner);
  ~VirtualWorker() override;

  const discovery::InstanceRecord& record() const;
  VirtualEngine& engine() { return engine_; }
  /// Takes nothing new and tells every session.
  void drain();
  /// Gives back what runs and ends the sessions: the end of a drain.
  void hand_over();
  size_t in_flight() const;

  StreamEnd* on_connect(std::unique_ptr<VirtualStream> stream) override;

 private:
  class Session;
  class Events;
  struct Shared;

  void tick();

  const Machine machine_;
  VirtualEngine engine_;
  std::unique_ptr<Shared> shared_;
  std::vector<std::unique_ptr<Session>> sessions_;
  std::vector<std::unique_ptr<Events>> events_;
  std::unique_ptr<VirtualPublisher> publisher_;
  std::shared_ptr<const bool> alive_ = std::make_shared<const bool>(true);  // seen by events
};

}  // namespace stator::fault_sim
