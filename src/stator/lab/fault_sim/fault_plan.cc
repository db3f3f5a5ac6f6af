// SPDX-License-Identifier: Apache-2.0
#include "stator/lab/fault_sim/fault_plan.h"

#include <algorithm>
#include <chrono>

namespace stator::fault_sim {
namespace {

using namespace std::chrono_literals;

constexpr std::array<std::string_view, kFaultCount> kNames = {
    "crash",     "restart",    "drain",      "hang",       "freeze",        "slow",
    "partition", "one-way",    "delay",      "drop",       "duplicate",     "reorder",
    "corrupt",   "skew",       "store-down", "store-wipe", "store-compact", "lease-loss",
    "store-cut", "event-loss", "frontend",   "copy-cut",   "replica-loss",  "client"};

constexpr std::array<std::string_view, 3> kRouterModes = {"kv", "round_robin", "least_loaded"};
constexpr std::array<std::string_view, 4> kQueueOrders = {"fcfs", "lcfs", "wspt", "deadline"};

Duration between(Random& random, Duration low, Duration high) {
  return low + Duration(random.below(static_cast<uint64_t>((high - low).count()) + 1));
}

/// From the end of a breath to the edge of what time limits of production bridge.
Duration length_of(Fault fault, Random& random) {
  switch (fault) {
    case Fault::kRestart:
      return between(random, 1ms, 60ms);
    case Fault::kCrash:
    case Fault::kFrontend:
      return between(random, 300ms, 8s);
    case Fault::kDrain:
      return between(random, 10ms, 2s);
    case Fault::kStoreWipe:
    case Fault::kStoreCompact:
    case Fault::kLeaseLoss:
    case Fault::kClient:
      return 0s;
    default:
      return between(random, 50ms, 25s);
  }
}

}  // namespace

std::string_view to_string(Fault fault) {
  return kNames[static_cast<size_t>(fault)];
}

Result<FaultSet> FaultSet::parse(std::string_view names) {
  if (names == "all") {
    return all();
  }
  FaultSet set;
  while (!names.empty() && names != "none") {
    const size_t comma = std::min(names.find(','), names.size());
    const std::string_view name = names.substr(0, comma);
    const auto found = std::ranges::find(kNames, name);
    if (found == kNames.end()) {
      std::string known = "all, none";
      for (const std::string_view other : kNames) {
        known += ", " + std::string(other);
      }
      return Error(Code::kInvalidArgument,
                   "--fault knows " + known + "; not '" + std::string(name) + "'");
    }
    set.add(static_cast<Fault>(found - kNames.begin()));
    names.remove_prefix(std::min(comma + 1, names.size()));
  }
  return set;
}

std::vector<Fault> FaultSet::list() const {
  std::vector<Fault> kinds;
  for (size_t i = 0; i < kFaultCount; ++i) {
    if (has(static_cast<Fault>(i))) {
      kinds.push_back(static_cast<Fault>(i));
    }
  }
  return kinds;
}

bool Plan::copies_safe() const {
  const auto count = [this](Fault kind) {
    return std::ranges::count(faults, kind, &PlannedFault::fault);
  };
  return resumable && count(Fault::kFrontend) <= 1 && count(Fault::kCopyCut) == 0;
}

Plan make_plan(FaultSet kinds, Random& random) {
  Plan plan;
  plan.workers = 2 + static_cast<uint32_t>(random.below(4));
  plan.frontends = 1 + static_cast<uint32_t>(random.below(2));
  plan.requests = 20 + static_cast<uint32_t>(random.below(40));
  plan.router_mode = kRouterModes[random.below(kRouterModes.size())];
  plan.strict = random.below(2) == 0;
  plan.resumable = plan.frontends > 1 && random.below(4) != 0;
  plan.replicas = plan.frontends > 1 && random.below(2) == 0;
  plan.event_plane = random.below(3) == 0;
  plan.queued = random.below(2) == 0;
  plan.queue_order = kQueueOrders[random.below(kQueueOrders.size())];
  plan.wait_tokens = static_cast<uint32_t>(random.below(100));
  const std::vector<Fault> known = kinds.list();
  const uint64_t count = known.empty() ? 0 : 1 + random.below(10);
  for (uint64_t i = 0; i < count; ++i) {
    PlannedFault fault;
    fault.fault = known[random.below(known.size())];
    fault.at = between(random, 10ms, kFaultsEnd);
    fault.lasts = length_of(fault.fault, random);
    const uint32_t spared = plan.strict ? 1 : 0;
    fault.worker = spared + static_cast<uint32_t>(random.below(plan.workers - spared));
    fault.frontend = static_cast<uint32_t>(random.below(plan.frontends));
    fault.amount = 1 + random.below(60);
    plan.faults.push_back(fault);
  }
  std::ranges::sort(plan.faults, {}, &PlannedFault::at);
  return plan;
}

}  // namespace stator::fault_sim
