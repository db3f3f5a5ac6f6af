// SPDX-License-Identifier: Apache-2.0
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <set>
#include <unordered_map>

#include "stator/grove/gang_schedule.h"
#include "stator/grove/layout.h"
#include "stator/grove/names.h"

namespace stator::grove {
namespace {

using json::Value;

Value object(const std::string& text) {
  return json::parse(text).value();
}

/// 200 racks of six nodes with 8 GPUs; 500 gangs of 16 pods with one GPU each, none placed yet, all
/// of them in one rack where that is possible: as the API server shows them.
ScheduleView five_hundred_gangs() {
  ScheduleView view;
  view.topologies.push_back(object(
      R"({"metadata":{"name":"t"},"spec":{"levels":[{"domain":"rack","key":"rack"},{"domain":"host","key":"host"}]}})"));
  for (int node = 0; node < 1200; ++node) {
    view.nodes.push_back(object(fmt::format(
        R"({{"kind":"Node","metadata":{{"name":"n{}","labels":{{"rack":"r{}","host":"n{}"}}}},"status":{{"allocatable":{{"cpu":"64","memory":"512Gi","pods":"110","nvidia.com/gpu":"8"}}}}}})",
        node, node / 6, node)));
  }
  for (int gang = 0; gang < 500; ++gang) {
    Value made = object(fmt::format(
        R"({{"kind":"PodGang","metadata":{{"name":"g{}","namespace":"n","creationTimestamp":"2026-01-01T00:00:00Z"}},"spec":{{"topologyConstraint":{{"packConstraint":{{"preferred":"rack"}}}},"podgroups":[{{"name":"w{}","minReplicas":16}}]}}}})",
        gang, gang));
    made["metadata"]["annotations"][kTopologyName] = "t";
    view.gangs.push_back(std::move(made));
    for (int pod = 0; pod < 16; ++pod) {
      Value one = object(fmt::format(
          R"({{"kind":"Pod","metadata":{{"name":"p{0}-{1}","namespace":"n","uid":"u{0}-{1}","labels":{{}}}},"spec":{{"containers":[{{"name":"m","resources":{{"limits":{{"nvidia.com/gpu":"1"}}}}}}],"schedulingGates":[{{"name":"{2}"}}]}},"status":{{"phase":"Pending"}}}})",
          gang, pod, kGate));
      one["metadata"]["labels"][kGang] = fmt::format("g{}", gang);
      one["metadata"]["labels"][kClique] = fmt::format("w{}", gang);
      one["metadata"]["labels"][kPodIndex] = std::to_string(pod);
      view.pods.push_back(std::move(one));
    }
  }
  return view;
}

void schedule_500_gangs_of_16(benchmark::State& state) {
  const ScheduleView view = five_hundred_gangs();
  Schedule last;
  for (auto _ : state) {
    last = schedule_gangs(view);
  }
  std::map<std::string_view, std::multiset<std::string>> racks;
  for (const Release& release : last.releases) {
    racks[kube::label_of(*release.pod, kGang)].insert(
        std::to_string(std::strtol(release.node.c_str() + 1, nullptr, 10) / 6));
  }
  double whole = 0;
  double one = 0;
  for (const auto& [gang, found] : racks) {
    whole += found.size() == 16 ? 1 : 0;
    one += *found.begin() == *found.rbegin() ? 1 : 0;
  }
  state.counters["gangs"] = static_cast<double>(last.placed);
  state.counters["whole_share"] = whole / 500;
  state.counters["one_rack_share"] = one / 500;
}
BENCHMARK(schedule_500_gangs_of_16)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace stator::grove
