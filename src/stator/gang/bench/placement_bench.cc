// SPDX-License-Identifier: Apache-2.0
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <set>

#include "stator/core/random.h"
#include "stator/gang/placement.h"

namespace stator::gang {
namespace {

Amounts gpus(int64_t count) {
  Amounts amounts;
  amounts.of[0] = count;
  return amounts;
}

/// 20,000 nodes of 8 GPUs: 4 zones of 5 blocks of 10 racks of 100 nodes.
std::vector<Node> big_cluster() {
  std::vector<Node> nodes;
  for (int rack = 0; rack < 200; ++rack) {
    for (int node = 0; node < 100; ++node) {
      nodes.push_back({.name = fmt::format("n{}-{}", rack, node),
                       .free = gpus(8),
                       .domains = {fmt::format("z{}", rack / 50), fmt::format("b{}", rack / 10),
                                   fmt::format("r{}", rack)}});
    }
  }
  return nodes;
}

/// 1,000 gangs of 16 pods with one node each (16,000 pods): four leaders and twelve workers in one
/// rack where that is possible, in one block at least.
void place_16000_pods(benchmark::State& state) {
  const auto nodes = big_cluster();
  double in_one_rack = 0;
  double placed_gangs = 0;
  for (auto _ : state) {
    state.PauseTiming();
    auto cluster = Cluster::create(nodes, 3).value();
    state.ResumeTiming();
    for (int i = 0; i < 1000; ++i) {
      const Gang gang{.name = fmt::format("g{}", i),
                      .sets = {{.groups = {{.name = "ldr", .pods_min = 4, .demand = gpus(8)},
                                           {.name = "wkr", .pods_min = 12, .demand = gpus(8)}}}},
                      .pack = {.required = 1, .preferred = 2}};
      if (const auto placed = cluster.place(gang)) {
        placed_gangs += 1;
        in_one_rack += placed->score;
      }
    }
  }
  const auto runs = static_cast<double>(state.iterations());
  state.counters["gangs"] = placed_gangs / runs;
  state.counters["one_rack_share"] = in_one_rack / placed_gangs;
}
BENCHMARK(place_16000_pods)->Unit(benchmark::kMillisecond);

/// 200 racks of six nodes with 8 GPUs, a seventh of the GPUs taken at random: three gangs of 16 fit
/// into a rack only where little of it is taken.
std::vector<Node> used_racks() {
  Random random(3);
  std::vector<Node> nodes;
  for (int rack = 0; rack < 200; ++rack) {
    for (int node = 0; node < 6; ++node) {
      const auto taken = random.below(7) == 0 ? static_cast<int64_t>(random.below(9)) : 0;
      nodes.push_back({.name = fmt::format("n{}-{}", rack, node),
                       .free = gpus(8 - taken),
                       .domains = {fmt::format("b{}", rack / 10), fmt::format("r{}", rack)}});
    }
  }
  return nodes;
}

/// 500 gangs of 16 pods with a GPU each, all of them in one rack where that is possible.
void place_500_gangs_on_200_racks(benchmark::State& state) {
  const auto nodes = used_racks();
  double gangs = 0;
  double whole = 0;
  double in_one_rack = 0;
  for (auto _ : state) {
    state.PauseTiming();
    auto cluster = Cluster::create(nodes, 2).value();
    state.ResumeTiming();
    for (int i = 0; i < 500; ++i) {
      const Gang gang{
          .name = fmt::format("g{}", i),
          .sets = {{.groups = {{.name = "w", .pods_min = 16, .demand = gpus(1)}}, .pack = {}}},
          .pack = {.required = std::nullopt, .preferred = 1}};
      if (const auto placed = cluster.place(gang)) {
        gangs += 1;
        whole += placed->groups[0].nodes.size() == 16 ? 1 : 0;
        std::set<std::string> racks;
        for (const uint32_t node : placed->groups[0].nodes) {
          racks.insert(cluster.nodes()[node].domains[1]);
        }
        in_one_rack += racks.size() == 1 ? 1 : 0;
      }
    }
  }
  state.counters["gangs"] = gangs / static_cast<double>(state.iterations());
  state.counters["whole_share"] = whole / gangs;
  state.counters["one_rack_share"] = in_one_rack / gangs;
}
BENCHMARK(place_500_gangs_on_200_racks)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace stator::gang
