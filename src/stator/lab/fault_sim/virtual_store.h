// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "stator/core/clock.h"
#include "stator/core/metrics.h"
#include "stator/core/random.h"
#include "stator/discovery/discovery.h"
#include "stator/lab/fault_sim/virtual_network.h"
#include "stator/net/virtual_time.h"

namespace stator::fault_sim {

/// What discovery needs of etcd, on virtual time: revisions, leases, a history to watch that may be
/// compacted, and the ways in which a store fails. Single-threaded.
class VirtualStore {
 public:
  struct Change {
    int64_t revision;
    std::string key;
    std::optional<std::string> value;  ///< none: removed
  };

  VirtualStore(net::VirtualTime& time, NodeId node);
  VirtualStore(const VirtualStore&) = delete;
  VirtualStore& operator=(const VirtualStore&) = delete;

  NodeId node() const { return node_; }
  bool up() const { return up_; }
  uint64_t cluster() const { return cluster_; }
  int64_t revision() const { return revision_; }
  /// Changes up to here cannot be told any more.
  int64_t compacted() const { return compacted_; }
  const std::deque<Change>& history() const { return history_; }
  struct Value {
    std::string text;
    uint64_t lease = 0;
  };
  const std::map<std::string, Value>& values() const { return values_; }

  uint64_t grant(Duration ttl);
  /// False: the lease is gone.
  bool keep_alive(uint64_t lease);
  void revoke(uint64_t lease);
  void put(const std::string& key, std::string value, uint64_t lease);
  void remove(const std::string& key);

  // Faults.

  void set_up(bool up);
  /// Another, empty cluster stands at its address.
  void wipe();
  void compact();
  void revoke_all();

 private:
  struct Lease {
    Duration ttl{};
    TimePoint ends{};
  };
  void expire();

  net::VirtualTime& time_;
  const NodeId node_;
  bool up_ = true;
  uint64_t cluster_ = 1;
  int64_t revision_ = 1;
  int64_t compacted_ = 0;
  uint64_t last_lease_ = 0;
  std::map<std::string, Value> values_;
  std::map<uint64_t, Lease> leases_;
  std::deque<Change> history_;
};

/// Discovery through a VirtualStore, from one node. `register_instance` is not offered: workers use
/// VirtualRegistration.
class VirtualDiscovery final : public discovery::Discovery {
 public:
  VirtualDiscovery(VirtualStore& store, const VirtualNetwork& network, net::VirtualTime& time,
                   NodeId node);
  ~VirtualDiscovery() override;

  Result<std::unique_ptr<discovery::Registration>> register_instance(
      discovery::InstanceRecord record) override;
  std::vector<discovery::InstanceRecord> list(const discovery::InstanceQuery& query) override;
  std::unique_ptr<discovery::Watch> watch(discovery::InstanceQuery query, net::Shard& shard,
                                          discovery::DiscoveryListener& listener) override;
  size_t doubtful() const;

 private:
  struct State;
  void look();

  VirtualStore& store_;
  const VirtualNetwork& network_;
  net::VirtualTime& time_;
  const NodeId node_;
  std::unique_ptr<State> state_;
  std::shared_ptr<const bool> alive_ = std::make_shared<const bool>(true);  // seen by events
};

/// Keeps a worker's record in a VirtualStore while it lives, and writes it again when it is lost.
class VirtualRegistration {
 public:
  VirtualRegistration(VirtualStore& store, const VirtualNetwork& network, net::VirtualTime& time,
                      NodeId node, Random random);
  VirtualRegistration(const VirtualRegistration&) = delete;
  VirtualRegistration& operator=(const VirtualRegistration&) = delete;

  void publish(const discovery::InstanceRecord& record);
  /// Takes it back, as a worker does that leaves in peace.
  void withdraw();

  static constexpr Duration kLease = std::chrono::seconds(10);

 private:
  void keep();
  bool reachable() const;

  VirtualStore& store_;
  const VirtualNetwork& network_;
  net::VirtualTime& time_;
  const NodeId node_;
  Random random_;
  std::string key_;
  std::string value_;
  uint64_t lease_ = 0;
  std::shared_ptr<const bool> alive_ = std::make_shared<const bool>(true);  // seen by events
};

}  // namespace stator::fault_sim
