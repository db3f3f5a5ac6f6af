// SPDX-License-Identifier: Apache-2.0
#include "stator/discovery/view_hub.h"

#include <utility>

#include "stator/core/assert.h"
#include "stator/net/wakeup.h"

namespace stator::discovery {

bool InstanceQuery::matches(const InstanceKey& key) const {
  const bool by_prefix = namespace_name.ends_with('*');
  const std::string_view wanted =
      std::string_view(namespace_name).substr(0, namespace_name.size() - (by_prefix ? 1 : 0));
  const bool named = by_prefix ? key.namespace_name.starts_with(wanted)
                               : wanted.empty() || wanted == key.namespace_name;
  return named && (component.empty() || component == key.component) &&
         (endpoint.empty() || endpoint == key.endpoint);
}

ViewDiff advance_view(InstanceView& view, std::span<const InstanceChange> changes,
                      const InstanceQuery& query) {
  std::map<InstanceKey, const InstanceChange*> latest;
  for (const InstanceChange& change : changes) {
    if (query.matches(change.key)) {
      latest[change.key] = &change;
    }
  }
  ViewDiff diff;
  for (const auto& [key, change] : latest) {
    const auto& record = change->record;
    const auto known = view.find(key);
    if (known == view.end()) {
      if (record != nullptr) {
        diff.added.push_back(record);
        view.emplace(key, record);
      }
      continue;
    }
    if (record == nullptr) {
      diff.removed.push_back(std::move(known->second));
      view.erase(known);
      continue;
    }
    if (known->second->incarnation != record->incarnation) {
      diff.removed.push_back(known->second);
      diff.added.push_back(record);
    } else if (known->second != record && *known->second != *record) {
      diff.updated.push_back(record);
    }
    known->second = record;
  }
  return diff;
}

std::vector<InstanceChange> find_changes(const InstanceView& before, const InstanceView& after) {
  std::vector<InstanceChange> changes;
  for (const auto& [key, record] : before) {
    if (!after.contains(key)) {
      changes.push_back({key, nullptr});
    }
  }
  for (const auto& [key, record] : after) {
    const auto known = before.find(key);
    if (known == before.end() || known->second != record) {
      changes.push_back({key, record});
    }
  }
  return changes;
}

/// One listener's position. Everything but `wake` runs on its loop.
class ViewHub::Watcher : public std::enable_shared_from_this<Watcher> {
 public:
  Watcher(std::shared_ptr<State> state, InstanceQuery query, net::Shard& shard,
          DiscoveryListener& listener)
      : state_(std::move(state)), query_(std::move(query)), shard_(shard), listener_(&listener) {}

  /// Any thread.
  void wake() STATOR_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    if (!stopped_ && !std::exchange(woken_, true)) {
      net::post_wakeup(shard_, [self = shared_from_this()] { self->deliver(); });
    }
  }

  void stop() {
    STATOR_ASSERT(shard_.on_loop(), "a watch is destroyed on its loop");
    listener_ = nullptr;
    const MutexLock lock(mutex_);
    stopped_ = true;  // a late wake() must not touch the shard, which may go now
  }

 private:
  void deliver() {
    {
      // Before reading the view: what is published from now on wakes again.
      const MutexLock lock(mutex_);
      woken_ = false;
    }
    const ViewDiff diff = advance_view(delivered_, take_changes(), query_);
    tell(diff.removed, &DiscoveryListener::on_removed);
    tell(diff.updated, &DiscoveryListener::on_updated);
    tell(diff.added, &DiscoveryListener::on_added);
    if (!std::exchange(synced_, true) && listener_ != nullptr) {
      listener_->on_synced();
    }
  }

  std::vector<InstanceChange> take_changes() {
    const MutexLock lock(state_->mutex);
    const uint64_t seen = std::exchange(seen_, state_->log_end);
    const uint64_t missed = state_->log_end - seen;
    if (missed > state_->log.size()) {
      return find_changes(delivered_, state_->view);
    }
    return {state_->log.end() - static_cast<ptrdiff_t>(missed), state_->log.end()};
  }

  // The listener may end the watch from inside a call.
  void tell(const std::vector<std::shared_ptr<const InstanceRecord>>& records,
            void (DiscoveryListener::*call)(const InstanceRecord&)) {
    for (const auto& record : records) {
      if (listener_ != nullptr) {
        (listener_->*call)(*record);
      }
    }
  }

  const std::shared_ptr<State> state_;
  const InstanceQuery query_;
  net::Shard& shard_;
  DiscoveryListener* listener_;
  InstanceView delivered_;
  uint64_t seen_ = 0;  // of the log
  bool synced_ = false;
  Mutex mutex_;
  bool woken_ STATOR_GUARDED_BY(mutex_) = false;
  bool stopped_ STATOR_GUARDED_BY(mutex_) = false;
};

class ViewHub::WatchHandle final : public Watch {
 public:
  explicit WatchHandle(std::shared_ptr<Watcher> watcher) : watcher_(std::move(watcher)) {}
  WatchHandle(const WatchHandle&) = delete;
  WatchHandle& operator=(const WatchHandle&) = delete;
  ~WatchHandle() override { watcher_->stop(); }

 private:
  std::shared_ptr<Watcher> watcher_;
};

ViewHub::ViewHub(size_t log_max) : state_(std::make_shared<State>(log_max)) {}

ViewHub::~ViewHub() = default;

size_t ViewHub::size() const {
  const MutexLock lock(state_->mutex);
  return state_->view.size();
}

std::shared_ptr<const InstanceRecord> ViewHub::find(const InstanceKey& key) const {
  const MutexLock lock(state_->mutex);
  const auto found = state_->view.find(key);
  return found == state_->view.end() ? nullptr : found->second;
}

void ViewHub::apply(std::vector<InstanceChange> changes) {
  if (changes.empty()) {
    return;
  }
  {
    const MutexLock lock(state_->mutex);
    for (InstanceChange& change : changes) {
      if (change.record != nullptr) {
        state_->view[change.key] = change.record;
      } else {
        state_->view.erase(change.key);
      }
      ++state_->log_end;
      state_->log.push_back(std::move(change));
      if (state_->log.size() > state_->log_max) {
        state_->log.pop_front();
      }
    }
  }
  wake_watchers();
}

void ViewHub::wake_watchers() {
  std::vector<std::shared_ptr<Watcher>> watchers;
  {
    const MutexLock lock(state_->mutex);
    std::erase_if(state_->watchers, [](const auto& watcher) { return watcher.expired(); });
    for (const auto& watcher : state_->watchers) {
      watchers.push_back(watcher.lock());
    }
  }
  for (const auto& watcher : watchers) {
    if (watcher != nullptr) {
      watcher->wake();
    }
  }
}

std::vector<InstanceRecord> ViewHub::list(const InstanceQuery& query) const {
  std::vector<InstanceRecord> records;
  const MutexLock lock(state_->mutex);
  for (const auto& [key, record] : state_->view) {
    if (query.matches(key)) {
      records.push_back(*record);
    }
  }
  return records;
}

std::unique_ptr<Watch> ViewHub::watch(InstanceQuery query, net::Shard& shard,
                                      DiscoveryListener& listener) {
  auto watcher = std::make_shared<Watcher>(state_, std::move(query), shard, listener);
  {
    const MutexLock lock(state_->mutex);
    state_->watchers.push_back(watcher);
  }
  watcher->wake();
  return std::make_unique<WatchHandle>(std::move(watcher));
}

}  // namespace stator::discovery
