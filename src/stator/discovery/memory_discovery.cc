// SPDX-License-Identifier: Apache-2.0
#include "stator/discovery/memory_discovery.h"

#include <utility>

#include "stator/core/mutex.h"
#include "stator/discovery/detail/record_registration.h"
#include "stator/discovery/view_hub.h"

namespace stator::discovery {
namespace {

class MemoryDiscovery final : public Discovery, public detail::RecordKeeper {
 public:
  explicit MemoryDiscovery(Metrics& metrics)
      : instances_(metrics.gauge("stator_runtime_discovery_instances",
                                 "instances in the discovery view")) {}

  Result<std::unique_ptr<Registration>> register_instance(InstanceRecord record) override {
    STATOR_CHECK(validate(record));
    const MutexLock lock(mutex_);
    if (const auto present = hub_.find(record.key)) {
      STATOR_CHECK(detail::check_free(*present, record));
    }
    auto registration = std::make_unique<detail::RecordRegistration>(*this, record);
    put(std::move(record));
    return registration;
  }
  std::vector<InstanceRecord> list(const InstanceQuery& query) override { return hub_.list(query); }
  std::unique_ptr<Watch> watch(InstanceQuery query, net::Shard& shard,
                               DiscoveryListener& listener) override {
    return hub_.watch(std::move(query), shard, listener);
  }

  Status update(InstanceRecord record) override STATOR_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    put(std::move(record));
    return {};
  }

  void withdraw(const InstanceKey& key, Incarnation incarnation) override STATOR_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    const auto present = hub_.find(key);
    if (present != nullptr && present->incarnation == incarnation) {
      apply({key, nullptr});
    }
  }

 private:
  void put(InstanceRecord record) STATOR_REQUIRES(mutex_) {
    const InstanceKey key = record.key;
    apply({key, std::make_shared<const InstanceRecord>(std::move(record))});
  }
  void apply(InstanceChange change) STATOR_REQUIRES(mutex_) {
    hub_.apply({std::move(change)});
    instances_.set(static_cast<double>(hub_.size()));
  }

  Gauge instances_;
  Mutex mutex_;  // serialises look and change
  ViewHub hub_;
};

}  // namespace

std::unique_ptr<Discovery> make_memory_discovery(Metrics& metrics) {
  return std::make_unique<MemoryDiscovery>(metrics);
}

}  // namespace stator::discovery
