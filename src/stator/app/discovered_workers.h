// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "stator/discovery/discovery.h"
#include "stator/net/shard.h"
#include "stator/services/indexer.h"
#include "stator/services/selection.h"
#include "stator/session/connector.h"

namespace stator::app {

/// Keeps an indexer, and a selection service if there is one, up to date with the workers that
/// discovery knows: what they are, and what they have cached. On the loop of its shard, all of it.
class DiscoveredWorkers final : public discovery::DiscoveryListener,
                                public kv_events::KvEventsListener {
 public:
  /// All outlive it; `selection` may be null.
  DiscoveredWorkers(services::Indexer& indexer, services::SelectionService* selection,
                    net::Shard& shard, session::Connector& connector)
      : indexer_(indexer), selection_(selection), shard_(shard), connector_(connector) {}
  ~DiscoveredWorkers() override = default;

  void start(discovery::Discovery& discovery);

  void on_synced() override {}
  void on_added(const discovery::InstanceRecord& record) override;
  void on_updated(const discovery::InstanceRecord& record) override;
  void on_removed(const discovery::InstanceRecord& last) override;

  void on_snapshot(WorkerId worker, std::vector<kv::KvEvent> blocks) override;
  void on_events(WorkerId worker, std::vector<kv::KvEvent> events) override;

 private:
  struct Entry {
    services::PartitionName partition;
    uint32_t block_size = 16;
    uint32_t dp_size = 1;
    std::unique_ptr<kv_events::EventFollower> follower;  // null: it tells nothing
  };
  void apply(WorkerId worker, const Entry& entry, kv::KvEvent event);

  services::Indexer& indexer_;
  services::SelectionService* const selection_;
  net::Shard& shard_;
  session::Connector& connector_;
  std::map<WorkerId, Entry> workers_;
  std::unique_ptr<discovery::Watch> watch_;  // goes first
};

}  // namespace stator::app
