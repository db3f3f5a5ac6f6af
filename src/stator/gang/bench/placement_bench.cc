// SPDX-License-Identifier: Apache-2.0
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <set>

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

}  // namespace
}  // namespace stator::gang
