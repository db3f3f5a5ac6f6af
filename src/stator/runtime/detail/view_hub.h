// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "stator/core/mutex.h"
#include "stator/net/shard.h"
#include "stator/runtime/discovery.h"

namespace stator::runtime::detail {

/// What a discovery backend believes at one moment. Records are shared between views.
using InstanceView = std::map<InstanceKey, std::shared_ptr<const InstanceRecord>>;

/// How to get from one view to another: apply removals first.
struct ViewDiff {
  std::vector<std::shared_ptr<const InstanceRecord>> removed;
  std::vector<std::shared_ptr<const InstanceRecord>> updated;
  std::vector<std::shared_ptr<const InstanceRecord>> added;
};

/// Restricted to what `query` matches. A record with another incarnation is removed and added.
ViewDiff diff_views(const InstanceView& before, const InstanceView& after,
                    const InstanceQuery& query);

/// Hands a backend's current view to watchers, each on its own loop. A watcher holds the view it
/// has delivered and, when woken, delivers the difference to the newest one: rounds it missed merge
/// by themselves, so there is no queue to bound. Thread-safe.
class ViewHub {
 public:
  ViewHub();
  ~ViewHub();
  ViewHub(const ViewHub&) = delete;
  ViewHub& operator=(const ViewHub&) = delete;

  std::shared_ptr<const InstanceView> current() const;
  void publish(std::shared_ptr<const InstanceView> view);
  std::vector<InstanceRecord> list(const InstanceQuery& query) const;
  std::unique_ptr<Watch> watch(InstanceQuery query, net::Shard& shard, DiscoveryListener& listener);

 private:
  class Watcher;
  class WatchHandle;
  struct State {
    mutable Mutex mutex;
    std::shared_ptr<const InstanceView> view STATOR_GUARDED_BY(mutex);
    std::vector<std::weak_ptr<Watcher>> watchers STATOR_GUARDED_BY(mutex);
  };
  std::shared_ptr<State> state_;  // shared with watchers whose wake-up is on its way
};

}  // namespace stator::runtime::detail
