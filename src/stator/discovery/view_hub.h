// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "stator/core/mutex.h"
#include "stator/discovery/discovery.h"
#include "stator/discovery/instance_record.h"
#include "stator/net/shard.h"

namespace stator::discovery {

/// What a discovery backend believes at one moment. Records are shared between views.
using InstanceView = std::map<InstanceKey, std::shared_ptr<const InstanceRecord>>;

/// What a backend has learned of one instance.
struct InstanceChange {
  InstanceKey key;
  std::shared_ptr<const InstanceRecord> record;  ///< null: gone
};

/// What a listener is told, in this order.
struct ViewDiff {
  std::vector<std::shared_ptr<const InstanceRecord>> removed;
  std::vector<std::shared_ptr<const InstanceRecord>> updated;
  std::vector<std::shared_ptr<const InstanceRecord>> added;
};

/// Brings `view` up to date, for what `query` matches, and says how. The last change of a key
/// counts; a record with another incarnation is removed and added. O(changes).
ViewDiff advance_view(InstanceView& view, std::span<const InstanceChange> changes,
                      const InstanceQuery& query);

/// What leads from one view to another. O(both).
std::vector<InstanceChange> find_changes(const InstanceView& before, const InstanceView& after);

/// Holds a backend's view and tells watchers of changes, each on its own loop, so that a change
/// costs the same in a fleet of ten and of ten thousand. Thread-safe.
///
/// A watcher takes the changes since its last time from a log; one that is more than kLogMax behind
/// compares its view with the newest instead. So there is no queue per watcher to bound.
class ViewHub {
 public:
  static constexpr size_t kLogMax = 32 * 1024;

  explicit ViewHub(size_t log_max = kLogMax);
  ~ViewHub();
  ViewHub(const ViewHub&) = delete;
  ViewHub& operator=(const ViewHub&) = delete;

  size_t size() const;
  /// Null if it is not there.
  std::shared_ptr<const InstanceRecord> find(const InstanceKey& key) const;
  void apply(std::vector<InstanceChange> changes);
  std::vector<InstanceRecord> list(const InstanceQuery& query) const;
  std::unique_ptr<Watch> watch(InstanceQuery query, net::Shard& shard, DiscoveryListener& listener);

 private:
  class Watcher;
  class WatchHandle;
  struct State {
    explicit State(size_t log_max_in) : log_max(log_max_in) {}
    const size_t log_max;
    mutable Mutex mutex;
    InstanceView view STATOR_GUARDED_BY(mutex);
    std::deque<InstanceChange> log STATOR_GUARDED_BY(mutex);  // the newest
    uint64_t log_end STATOR_GUARDED_BY(mutex) = 0;            // changes there ever were
    std::vector<std::weak_ptr<Watcher>> watchers STATOR_GUARDED_BY(mutex);
  };
  void wake_watchers();

  std::shared_ptr<State> state_;  // shared with watchers whose wake-up is on its way
};

}  // namespace stator::discovery
