// SPDX-License-Identifier: Apache-2.0
#include "stator/runtime/memory_discovery.h"

#include <fmt/format.h>

#include <utility>

#include "stator/core/mutex.h"
#include "stator/runtime/detail/view_hub.h"

namespace stator::runtime {
namespace {

using detail::InstanceView;

class MemoryDiscovery final : public Discovery {
 public:
  explicit MemoryDiscovery(Metrics& metrics)
      : instances_(metrics.gauge("stator_runtime_discovery_instances",
                                 "instances in the discovery view")) {}

  Result<std::unique_ptr<Registration>> register_instance(InstanceRecord record) override;
  std::vector<InstanceRecord> list(const InstanceQuery& query) override { return hub_.list(query); }
  std::unique_ptr<Watch> watch(InstanceQuery query, net::Shard& shard,
                               DiscoveryListener& listener) override {
    return hub_.watch(std::move(query), shard, listener);
  }

  void update(InstanceRecord record) STATOR_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    put(std::move(record));
  }

  /// Unless a newer life has taken the key over.
  void remove(const InstanceKey& key, Incarnation incarnation) STATOR_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    auto view = std::make_shared<InstanceView>(*hub_.current());
    const auto found = view->find(key);
    if (found != view->end() && found->second->incarnation == incarnation) {
      view->erase(found);
      publish(std::move(view));
    }
  }

 private:
  void put(InstanceRecord record) STATOR_REQUIRES(mutex_) {
    auto view = std::make_shared<InstanceView>(*hub_.current());
    const InstanceKey key = record.key;
    (*view)[key] = std::make_shared<const InstanceRecord>(std::move(record));
    publish(std::move(view));
  }
  void publish(std::shared_ptr<const InstanceView> view) STATOR_REQUIRES(mutex_) {
    instances_.set(static_cast<double>(view->size()));
    hub_.publish(std::move(view));
  }

  Gauge instances_;
  Mutex mutex_;  // serialises read-modify-publish
  detail::ViewHub hub_;
};

class MemoryRegistration final : public Registration {
 public:
  MemoryRegistration(MemoryDiscovery& discovery, InstanceKey key, Incarnation incarnation)
      : discovery_(discovery), key_(std::move(key)), incarnation_(incarnation) {}
  MemoryRegistration(const MemoryRegistration&) = delete;
  MemoryRegistration& operator=(const MemoryRegistration&) = delete;
  ~MemoryRegistration() override { discovery_.remove(key_, incarnation_); }

  Status update(InstanceRecord record) override {
    STATOR_CHECK(validate(record));
    if (record.key != key_ || record.incarnation != incarnation_) {
      return Error(Code::kInvalidArgument,
                   fmt::format("an update of {} must keep key and incarnation", key_.to_string()));
    }
    discovery_.update(std::move(record));
    return {};
  }

 private:
  MemoryDiscovery& discovery_;
  const InstanceKey key_;
  const Incarnation incarnation_;
};

Result<std::unique_ptr<Registration>> MemoryDiscovery::register_instance(InstanceRecord record) {
  STATOR_CHECK(validate(record));
  const MutexLock lock(mutex_);
  const auto view = hub_.current();
  const auto found = view->find(record.key);
  if (found != view->end() && *found->second != record &&
      found->second->incarnation >= record.incarnation) {
    return Error(Code::kAlreadyExists,
                 fmt::format("{} is registered with other content", record.key.to_string()));
  }
  auto registration = std::make_unique<MemoryRegistration>(*this, record.key, record.incarnation);
  put(std::move(record));
  return registration;
}

}  // namespace

std::unique_ptr<Discovery> make_memory_discovery(Metrics& metrics) {
  return std::make_unique<MemoryDiscovery>(metrics);
}

}  // namespace stator::runtime
