// SPDX-License-Identifier: Apache-2.0
#include "stator/app/kv_store_discovery.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "stator/core/log.h"
#include "stator/core/random.h"
#include "stator/net/loopback.h"

namespace stator::app {
namespace {

constexpr Duration kWait = std::chrono::seconds(5);
constexpr Duration kPoll = std::chrono::milliseconds(50);

discovery::InstanceQuery store_query() {
  return {.namespace_name = {}, .component = "kv", .endpoint = "store"};
}

bool is_far(const discovery::InstanceRecord& record) {
  return !net::is_loopback_host(record.address.substr(0, record.address.rfind(':')));
}

}  // namespace

Result<std::unique_ptr<discovery::Registration>> publish_store(discovery::Discovery& discovery,
                                                               std::string address,
                                                               const Clock& clock) {
  Random random = Random::from_entropy();
  const auto started = clock.wall_now();
  discovery::InstanceRecord record;
  record.key = {.namespace_name = "default",
                .component = "kv",
                .endpoint = "store",
                .worker = WorkerId((random.next() >> 11) | 1)};
  record.incarnation = Incarnation(static_cast<uint64_t>(started.time_since_epoch().count()));
  record.address = std::move(address);
  record.started_at_ms = unix_seconds(started) * 1000;
  record.model.name = "kv-store";
  return discovery.register_instance(std::move(record));
}

Settings with_store(const Settings& settings, discovery::Discovery& discovery, Signals& signals) {
  Settings out = settings;
  if (settings.kv.store != kDiscoverStore) {
    return out;
  }
  std::vector<discovery::InstanceRecord> stores;
  for (Duration waited{}; waited < kWait; waited += kPoll) {
    stores = discovery.list(store_query());
    if (!stores.empty() || signals.wait_for(kPoll)) {
      break;
    }
  }
  if (stores.empty()) {
    log::error("kv",
               "kv.store is \"discover\", but no `stator store --discovery …` is published: "
               "serving goes on without a store");
    out.kv.store.clear();
    return out;
  }
  const auto& chosen = *std::ranges::min_element(stores, {}, [](const auto& record) {
    return std::tuple(is_far(record), record.started_at_ms, record.key);
  });
  out.kv.store = chosen.address;
  log::info("kv", "store found", {{"address", chosen.address}, {"published", stores.size()}});
  return out;
}

}  // namespace stator::app
