// SPDX-License-Identifier: Apache-2.0
#include "stator/lab/fault_sim/virtual_store.h"

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "stator/discovery/etcd_view.h"
#include "stator/discovery/view_hub.h"

namespace stator::fault_sim {
namespace {

using namespace std::chrono_literals;

constexpr Duration kLeaseTick = 500ms;
// How late a watch is, and how often a lost store is asked again.
constexpr Duration kLook = 100ms;
constexpr Duration kKeep = VirtualRegistration::kLease / 3;
constexpr std::string_view kPrefix = "stator/v1/instances/";
constexpr size_t kHistoryMax = 4096;

}  // namespace

VirtualStore::VirtualStore(net::VirtualTime& time, NodeId node) : time_(time), node_(node) {
  expire();
}

void VirtualStore::expire() {
  std::vector<uint64_t> over;
  for (const auto& [id, lease] : leases_) {
    if (up_ && lease.ends <= time_.now()) {
      over.push_back(id);
    }
  }
  std::ranges::for_each(over, [this](uint64_t id) { revoke(id); });
  time_.after(kLeaseTick, [this] { expire(); });
}

uint64_t VirtualStore::grant(Duration ttl) {
  leases_[++last_lease_] = {.ttl = ttl, .ends = time_.now() + ttl};
  return last_lease_;
}

bool VirtualStore::keep_alive(uint64_t id) {
  const auto lease = leases_.find(id);
  if (lease == leases_.end()) {
    return false;
  }
  lease->second.ends = time_.now() + lease->second.ttl;
  return true;
}

void VirtualStore::revoke(uint64_t id) {
  leases_.erase(id);
  std::vector<std::string> keys;
  for (const auto& [key, value] : values_) {
    if (value.lease == id) {
      keys.push_back(key);
    }
  }
  std::ranges::for_each(keys, [this](const std::string& key) { remove(key); });
}

void VirtualStore::revoke_all() {
  const auto leases = leases_;
  for (const auto& [id, lease] : leases) {
    revoke(id);
  }
}

void VirtualStore::put(const std::string& key, std::string value, uint64_t lease) {
  history_.push_back({++revision_, key, value});
  values_[key] = {std::move(value), lease};
  if (history_.size() > kHistoryMax) {
    compacted_ = history_.front().revision;
    history_.pop_front();
  }
}

void VirtualStore::remove(const std::string& key) {
  if (values_.erase(key) > 0) {
    history_.push_back({++revision_, key, std::nullopt});
  }
}

void VirtualStore::set_up(bool up) {
  up_ = up;
  // A member that comes back gives every lease its whole time again.
  for (auto& [id, lease] : leases_) {
    lease.ends = time_.now() + lease.ttl;
  }
}

void VirtualStore::wipe() {
  ++cluster_;
  revision_ = 1;
  compacted_ = 0;
  values_.clear();
  leases_.clear();
  history_.clear();
}

void VirtualStore::compact() {
  compacted_ = revision_;
  history_.clear();
}

struct VirtualDiscovery::State {
  discovery::EtcdView view{{.prefix = std::string(kPrefix)}};
  discovery::ViewHub hub;
};

VirtualDiscovery::VirtualDiscovery(VirtualStore& store, const VirtualNetwork& network,
                                   net::VirtualTime& time, NodeId node)
    : store_(store),
      network_(network),
      time_(time),
      node_(node),
      state_(std::make_unique<State>()) {
  look();
}

VirtualDiscovery::~VirtualDiscovery() = default;

Result<std::unique_ptr<discovery::Registration>> VirtualDiscovery::register_instance(
    discovery::InstanceRecord) {
  return Error(Code::kUnsupported, "workers of a simulation register by VirtualRegistration");
}

std::vector<discovery::InstanceRecord> VirtualDiscovery::list(
    const discovery::InstanceQuery& query) {
  return state_->hub.list(query);
}

std::unique_ptr<discovery::Watch> VirtualDiscovery::watch(discovery::InstanceQuery query,
                                                          net::Shard& shard,
                                                          discovery::DiscoveryListener& listener) {
  return state_->hub.watch(std::move(query), shard, listener);
}

size_t VirtualDiscovery::doubtful() const {
  return state_->view.doubtful();
}

/// As the etcd backend: go on where the watch broke off if the store still knows, else read all.
void VirtualDiscovery::look() {
  discovery::EtcdView& view = state_->view;
  const bool reached = store_.up() && network_.reachable(node_, store_.node());
  view.expire(time_.now());
  if (reached) {
    const discovery::EtcdView::Position at{store_.cluster(), store_.revision()};
    if (!view.can_resume(at) || view.position().revision < store_.compacted()) {
      std::vector<discovery::EtcdView::Entry> entries;
      for (const auto& [key, value] : store_.values()) {
        entries.push_back({key, value.text});
      }
      view.resync(at, entries, time_.now());
    }
    for (const VirtualStore::Change& change : store_.history()) {
      if (change.revision <= view.position().revision) {
        continue;
      }
      if (change.value) {
        view.put({change.key, *change.value});
      } else {
        view.remove(change.key);
      }
      view.advance(change.revision);
    }
  }
  state_->hub.apply(view.take_changes());
  time_.after(kLook, [this, weak = std::weak_ptr(alive_)] {
    if (!weak.expired()) {
      look();
    }
  });
}

VirtualRegistration::VirtualRegistration(VirtualStore& store, const VirtualNetwork& network,
                                         net::VirtualTime& time, NodeId node, Random random)
    : store_(store), network_(network), time_(time), node_(node), random_(random) {}

bool VirtualRegistration::reachable() const {
  return store_.up() && !network_.down(node_) && network_.reachable(node_, store_.node());
}

void VirtualRegistration::publish(const discovery::InstanceRecord& record) {
  const bool first = key_.empty();
  key_ = std::string(kPrefix) + record.key.to_string();
  value_ = to_json(record);
  if (first) {
    keep();
  } else if (reachable() && lease_ != 0) {
    store_.put(key_, value_, lease_);
  }
}

void VirtualRegistration::withdraw() {
  alive_.reset();
  if (reachable() && lease_ != 0) {
    store_.revoke(lease_);
  }
}

void VirtualRegistration::keep() {
  if (reachable()) {
    if (lease_ == 0 || !store_.keep_alive(lease_)) {
      lease_ = store_.grant(kLease);
    }
    const auto known = store_.values().find(key_);
    if (known == store_.values().end() || known->second.text != value_ ||
        known->second.lease != lease_) {
      store_.put(key_, value_, lease_);
    }
  }
  const Duration jitter(random_.below(500'000'000));
  time_.after(kKeep + jitter, [this, weak = std::weak_ptr(alive_)] {
    if (!weak.expired()) {
      keep();
    }
  });
}

}  // namespace stator::fault_sim
