// SPDX-License-Identifier: Apache-2.0
#include "stator/runtime/detail/view_hub.h"

#include <utility>

#include "stator/core/assert.h"
#include "stator/runtime/detail/shard_post.h"

namespace stator::runtime {

bool InstanceQuery::matches(const InstanceKey& key) const {
  return (namespace_name.empty() || namespace_name == key.namespace_name) &&
         (component.empty() || component == key.component) &&
         (endpoint.empty() || endpoint == key.endpoint);
}

namespace detail {

ViewDiff diff_views(const InstanceView& before, const InstanceView& after,
                    const InstanceQuery& query) {
  ViewDiff diff;
  for (const auto& [key, record] : before) {
    const auto now = after.find(key);
    const bool same_life = now != after.end() && now->second->incarnation == record->incarnation;
    if (!same_life && query.matches(key)) {
      diff.removed.push_back(record);
    }
  }
  for (const auto& [key, record] : after) {
    if (!query.matches(key)) {
      continue;
    }
    const auto old = before.find(key);
    if (old == before.end() || old->second->incarnation != record->incarnation) {
      diff.added.push_back(record);
    } else if (old->second != record && *old->second != *record) {
      diff.updated.push_back(record);
    }
  }
  return diff;
}

/// One listener's position. Everything but `wake` runs on its loop.
class ViewHub::Watcher : public std::enable_shared_from_this<Watcher> {
 public:
  Watcher(std::shared_ptr<State> state, InstanceQuery query, net::Shard& shard,
          DiscoveryListener& listener)
      : state_(std::move(state)),
        query_(std::move(query)),
        shard_(shard),
        listener_(&listener),
        delivered_(std::make_shared<InstanceView>()) {}

  /// Any thread.
  void wake() STATOR_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    if (!stopped_ && !std::exchange(woken_, true)) {
      post_wakeup(shard_, [self = shared_from_this()] { self->deliver(); });
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
    std::shared_ptr<const InstanceView> view;
    {
      const MutexLock lock(state_->mutex);
      view = state_->view;
    }
    const ViewDiff diff = diff_views(*delivered_, *view, query_);
    delivered_ = std::move(view);
    tell(diff.removed, &DiscoveryListener::on_removed);
    tell(diff.updated, &DiscoveryListener::on_updated);
    tell(diff.added, &DiscoveryListener::on_added);
    if (!std::exchange(synced_, true) && listener_ != nullptr) {
      listener_->on_synced();
    }
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
  std::shared_ptr<const InstanceView> delivered_;
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

ViewHub::ViewHub() : state_(std::make_shared<State>()) {
  const MutexLock lock(state_->mutex);
  state_->view = std::make_shared<InstanceView>();
}

ViewHub::~ViewHub() = default;

std::shared_ptr<const InstanceView> ViewHub::current() const {
  const MutexLock lock(state_->mutex);
  return state_->view;
}

void ViewHub::publish(std::shared_ptr<const InstanceView> view) {
  std::vector<std::shared_ptr<Watcher>> watchers;
  {
    const MutexLock lock(state_->mutex);
    state_->view = std::move(view);
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
  for (const auto& [key, record] : *current()) {
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

}  // namespace detail
}  // namespace stator::runtime
