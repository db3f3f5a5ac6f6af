// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "stator/core/clock.h"
#include "stator/core/random.h"
#include "stator/kv/event_log.h"
#include "stator/lab/fault_sim/virtual_network.h"
#include "stator/net/virtual_time.h"
#include "stator/session/connector.h"

namespace stator::fault_sim {

/// A broker of KV events that promises nothing, on virtual time: what NATS is to production.
/// Whoever is down or frozen neither sends nor hears. Outlives those who use it.
class VirtualPlane {
 public:
  /// How often a message meets with an accident.
  struct Faults {
    double drop = 0;
    double duplicate = 0;  ///< it comes again, up to kLate later
    double late = 0;       ///< up to kLate, behind younger ones
  };
  static constexpr Duration kLate = std::chrono::seconds(2);

  VirtualPlane(net::VirtualTime& time, const VirtualNetwork& network, Random random)
      : time_(time), network_(network), random_(random) {}
  VirtualPlane(const VirtualPlane&) = delete;
  VirtualPlane& operator=(const VirtualPlane&) = delete;

  void set_faults(Faults faults) { faults_ = faults; }
  net::VirtualTime& time() { return time_; }
  const VirtualNetwork& network() const { return network_; }

  /// Hears what is sent to a subject; destroyed: nothing any more.
  class Subscription {
   public:
    using Hear = std::function<void(const std::string& message)>;
    Subscription(VirtualPlane& plane, NodeId node, std::string subject, Hear hear);
    Subscription(const Subscription&) = delete;
    Subscription& operator=(const Subscription&) = delete;
    ~Subscription();

   private:
    friend class VirtualPlane;
    VirtualPlane& plane_;
    const NodeId node_;
    const std::string subject_;
    const Hear hear_;
    const uint64_t id_;
  };
  void send(NodeId from, const std::string& subject, const std::string& message);

 private:
  bool works(NodeId node) const { return !network_.down(node) && !network_.frozen(node); }
  void deliver(uint64_t subscriber, const std::string& message, Duration after);

  net::VirtualTime& time_;
  const VirtualNetwork& network_;
  Random random_;
  Faults faults_;
  uint64_t last_id_ = 0;
  std::map<uint64_t, Subscription*> subscribers_;
};

/// A worker's side: EventPublisher over a VirtualPlane. `log` outlives it.
class VirtualPublisher final : public kv::EventLogListener {
 public:
  VirtualPublisher(VirtualPlane& plane, NodeId node, WorkerId worker, Incarnation incarnation,
                   kv::EventLog& log);
  VirtualPublisher(const VirtualPublisher&) = delete;
  VirtualPublisher& operator=(const VirtualPublisher&) = delete;
  ~VirtualPublisher() override;

  void on_events_available() noexcept override;

 private:
  void tick();
  void publish_all();
  void publish(std::vector<kv::KvEvent> events, uint64_t last_id);
  void answer(const std::string& question);

  VirtualPlane& plane_;
  const NodeId node_;
  const WorkerId worker_;
  const Incarnation incarnation_;
  kv::EventLog& log_;
  uint64_t next_id_ = 1;
  uint64_t sequence_ = 0;
  TimePoint sent_at_{};
  VirtualPlane::Subscription questions_;
  std::shared_ptr<const bool> alive_ = std::make_shared<const bool>(true);  // seen by timers
};

/// Sessions of `sessions`, events over `plane`, which is heard at `node`.
std::unique_ptr<session::Connector> make_virtual_plane_connector(
    std::unique_ptr<session::Connector> sessions, VirtualPlane& plane, NodeId node);

}  // namespace stator::fault_sim
