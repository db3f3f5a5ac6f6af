// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "stator/core/random.h"
#include "stator/lab/fault_sim/virtual_network.h"
#include "stator/net/virtual_time.h"
#include "stator/router/replica_log.h"
#include "stator/router/replica_view.h"
#include "stator/router/router.h"

namespace stator::fault_sim {

class VirtualReplicaHub;

/// Whose routers tell each other what they booked in a simulated cluster: what discovery and gRPC
/// are to production. Outlives its hubs.
class VirtualReplicas {
 public:
  /// A dead hub is still listed for so long, as its lease is.
  static constexpr Duration kListed = std::chrono::seconds(2);

  /// How often a question or an answer meets with an accident.
  struct Faults {
    double drop = 0;
    double duplicate = 0;  ///< of an answer: it comes again, up to kLate later
    double late = 0;       ///< up to kLate, perhaps after the answer to a later question
  };
  static constexpr Duration kLate = std::chrono::seconds(3);

  VirtualReplicas(net::VirtualTime& time, VirtualNetwork& network, Random random)
      : time_(time), network_(network), random_(random) {}
  VirtualReplicas(const VirtualReplicas&) = delete;
  VirtualReplicas& operator=(const VirtualReplicas&) = delete;

  void set_faults(Faults faults) { faults_ = faults; }

 private:
  friend class VirtualReplicaHub;
  struct Listed {
    NodeId node = 0;
    VirtualReplicaHub* hub = nullptr;  // null: dead
    TimePoint until = TimePoint::max();
  };
  /// Null while it is dead, or `from` and it do not reach each other.
  VirtualReplicaHub* reach(NodeId from, uint64_t router) const;
  /// When each copy of a message arrives, from now; none: it is lost.
  std::vector<Duration> draw_arrivals();

  net::VirtualTime& time_;
  VirtualNetwork& network_;
  Random random_;
  Faults faults_;
  std::map<uint64_t, Listed> listed_;  // by router id
  uint64_t last_id_ = 0;
};

/// One life of a frontend's hub: production's log and views, on virtual time and network, with the
/// intervals and deadlines of replica_hub_service.cc.
class VirtualReplicaHub {
 public:
  VirtualReplicaHub(VirtualReplicas& replicas, NodeId node, const router::ReplicaConfig& config);
  VirtualReplicaHub(const VirtualReplicaHub&) = delete;
  VirtualReplicaHub& operator=(const VirtualReplicaHub&) = delete;
  ~VirtualReplicaHub();

  std::shared_ptr<router::LoadAnnouncer> announcer(const std::string& model);
  /// Once; what they use outlives stop().
  void start(router::ReplicaView::Book book, std::function<void(bool stale)> on_stale);
  /// Forgets the others and is silent. Idempotent.
  void stop();

  /// Bookings of others that are counted here.
  size_t bookings() const;
  /// Whether everything that the living others booked is known here, and nothing else.
  bool agrees() const;
  /// Sum over the others that are known.
  router::ReplicaView::Counts counts() const;

 private:
  class Announcer;
  struct Peer {
    Peer(router::ReplicaView::Book book, Duration expiry) : view(std::move(book), expiry) {}
    router::ReplicaView view;
    uint64_t question = 0;  // number of the newest
    bool waits = false;     // for its answer
    TimePoint next_call{};
    bool listed = true;
  };
  struct Held {
    uint64_t from_sequence = 0;
    TimePoint until{};
    std::function<void(std::string answer)> answer;
  };
  /// Ours, also seen by announcers that outlive the hub.
  struct Own {
    explicit Own(uint64_t router_id) : log(router_id) {}
    router::ReplicaLog log;
    std::vector<Held> held;
  };

  void look();
  void find_peers();
  void ask(uint64_t id, Peer& peer);
  void take_answer(uint64_t id, uint64_t question, const std::string& answer);
  void miss_answer(uint64_t id, uint64_t question);
  void on_question(uint64_t from_sequence, std::function<void(std::string answer)> answer);
  static void answer_held(Own& own, TimePoint now);

  VirtualReplicas& replicas_;
  const NodeId node_;
  const router::ReplicaConfig config_;
  const uint64_t id_;
  const std::shared_ptr<Own> own_;  // shared with announcers
  router::ReplicaView::Book book_;
  std::function<void(bool stale)> on_stale_;
  std::map<uint64_t, Peer> peers_;
  router::ReplicaView::Counts gone_;   // of peers that are forgotten
  std::shared_ptr<const bool> alive_;  // from start() to stop(); seen by what is on its way
};

}  // namespace stator::fault_sim
