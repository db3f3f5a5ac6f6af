// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "stator/net/shard.h"
#include "stator/runtime/connector.h"
#include "stator/runtime/discovery.h"
#include "stator/services/indexer.h"
#include "stator/services/selection.h"

namespace stator::cli {

/// Keeps an indexer, and a selection service if there is one, up to date with the workers that
/// discovery knows: what they are, and what they have cached. On the loop of its shard, all of it.
class DiscoveredWorkers final : public runtime::DiscoveryListener,
                                public runtime::KvEventsListener {
 public:
  /// All outlive it; `selection` may be null.
  DiscoveredWorkers(services::Indexer& indexer, services::SelectionService* selection,
                    net::Shard& shard, runtime::Connector& connector)
      : indexer_(indexer), selection_(selection), shard_(shard), connector_(connector) {}
  ~DiscoveredWorkers() override = default;

  void start(runtime::Discovery& discovery);

  void on_synced() override {}
  void on_added(const runtime::InstanceRecord& record) override;
  void on_updated(const runtime::InstanceRecord& record) override;
  void on_removed(const runtime::InstanceRecord& last) override;

  void on_snapshot(WorkerId worker, std::vector<kv::KvEvent> blocks) override;
  void on_events(WorkerId worker, std::vector<kv::KvEvent> events) override;

 private:
  struct Entry {
    services::PartitionName partition;
    uint32_t block_size = 16;
    uint32_t dp_size = 1;
    std::unique_ptr<runtime::EventFollower> follower;  // null: it tells nothing
  };
  void apply(WorkerId worker, const Entry& entry, kv::KvEvent event);

  services::Indexer& indexer_;
  services::SelectionService* const selection_;
  net::Shard& shard_;
  runtime::Connector& connector_;
  std::map<WorkerId, Entry> workers_;
  std::unique_ptr<runtime::Watch> watch_;  // goes first
};

}  // namespace stator::cli
