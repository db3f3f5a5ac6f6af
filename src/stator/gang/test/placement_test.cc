// SPDX-License-Identifier: Apache-2.0
#include "stator/gang/placement.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "stator/core/random.h"

namespace stator::gang {
namespace {

Amounts gpus(int64_t count) {
  Amounts amounts;
  amounts.of[0] = count;
  return amounts;
}

/// Zones of racks of nodes; every node has 8 GPUs.
std::vector<Node> make_nodes(uint32_t zones, uint32_t racks, uint32_t nodes, int64_t free = 8) {
  std::vector<Node> all;
  for (uint32_t zone = 0; zone < zones; ++zone) {
    for (uint32_t rack = 0; rack < racks; ++rack) {
      for (uint32_t node = 0; node < nodes; ++node) {
        all.push_back({.name = fmt::format("n-{}-{}-{}", zone, rack, node),
                       .free = gpus(free),
                       .domains = {fmt::format("z{}", zone), fmt::format("z{}-r{}", zone, rack)}});
      }
    }
  }
  return all;
}

constexpr uint32_t kZone = 0;
constexpr uint32_t kRack = 1;

Gang simple_gang(uint32_t pods, int64_t gpus_each, Pack pack) {
  return {.name = "g",
          .sets = {{.groups = {{.name = "w", .pods_min = pods, .demand = gpus(gpus_each)}}}},
          .pack = pack};
}

std::set<uint32_t> domains_used(const Cluster& cluster, const Placement& placement,
                                uint32_t level) {
  std::set<uint32_t> used;
  for (const Placement::Group& group : placement.groups) {
    for (const uint32_t node : group.nodes) {
      used.insert(cluster.domain_of(node, level));
    }
  }
  return used;
}

int64_t free_gpus(const Cluster& cluster) {
  int64_t sum = 0;
  for (const Node& node : cluster.nodes()) {
    sum += node.free.of[0];
  }
  return sum;
}

TEST(Placement, PutsAGangIntoOneDomainOfItsRequiredLevel) {
  auto cluster = Cluster::create(make_nodes(2, 3, 4), 2).value();
  const auto placed = cluster.place(simple_gang(4, 8, {.required = kRack}));
  ASSERT_TRUE(placed) << placed.error().message();
  EXPECT_EQ(domains_used(cluster, *placed, kRack).size(), 1U);
  EXPECT_EQ(free_gpus(cluster), (2 * 3 * 4 - 4) * 8);
}

TEST(Placement, RefusesWholeGangsAndChangesNothing) {
  auto cluster = Cluster::create(make_nodes(1, 3, 4), 2).value();
  const auto placed = cluster.place(simple_gang(5, 8, {.required = kRack}));
  ASSERT_FALSE(placed);
  EXPECT_EQ(placed.error().code(), Code::kUnavailable);
  EXPECT_NE(placed.error().message().find("gang g"), std::string::npos);
  EXPECT_EQ(free_gpus(cluster), 3 * 4 * 8);
}

TEST(Placement, FallsBackToAWiderDomainWhenOnlyPreferred) {
  auto cluster = Cluster::create(make_nodes(2, 2, 2), 2).value();
  const auto placed = cluster.place(simple_gang(3, 8, {.required = kZone, .preferred = kRack}));
  ASSERT_TRUE(placed);
  EXPECT_EQ(domains_used(cluster, *placed, kZone).size(), 1U);
  EXPECT_EQ(domains_used(cluster, *placed, kRack).size(), 2U);
  EXPECT_EQ(placed->score, 0);
}

TEST(Placement, TakesTheTightestDomainThatHasRoom) {
  auto nodes = make_nodes(1, 3, 2);
  auto cluster = Cluster::create(std::move(nodes), 2).value();
  ASSERT_TRUE(cluster.take(cluster.find_node("n-0-1-0").value(), gpus(8)));
  const auto placed = cluster.place(simple_gang(1, 8, {.preferred = kRack}));
  ASSERT_TRUE(placed);
  EXPECT_EQ(cluster.nodes()[placed->groups[0].nodes[0]].name, "n-0-1-1");
  EXPECT_EQ(placed->score, 1);
}

TEST(Placement, KeepsRulesOfPartsWithinTheRuleOfTheGang) {
  // Two replicas of a scaling group, each in a rack of its own zone-wide gang.
  auto cluster = Cluster::create(make_nodes(2, 4, 2), 2).value();
  Gang gang{.name = "pd", .pack = {.required = kZone}};
  for (int replica = 0; replica < 3; ++replica) {
    gang.sets.push_back({.groups = {{.name = "ldr", .pods_min = 1, .demand = gpus(8)},
                                    {.name = "wkr", .pods_min = 1, .demand = gpus(8)}},
                         .pack = {.required = kRack}});
  }
  const auto placed = cluster.place(gang);
  ASSERT_TRUE(placed) << placed.error().message();
  EXPECT_EQ(domains_used(cluster, *placed, kZone).size(), 1U);
  for (int replica = 0; replica < 3; ++replica) {
    const uint32_t leader = placed->groups[replica * 2].nodes.at(0);
    const uint32_t worker = placed->groups[replica * 2 + 1].nodes.at(0);
    EXPECT_EQ(cluster.domain_of(leader, kRack), cluster.domain_of(worker, kRack));
  }
}

TEST(Placement, ExtrasFollowTheMinimumAndNeverBreakARequirement) {
  auto cluster = Cluster::create(make_nodes(1, 2, 2), 2).value();
  Gang gang = simple_gang(1, 8, {.required = kRack});
  gang.sets[0].groups[0].pods_extra = 5;
  const auto placed = cluster.place(gang);
  ASSERT_TRUE(placed);
  EXPECT_EQ(placed->groups[0].nodes.size(), 2U);
  EXPECT_EQ(placed->groups[0].extra_unplaced, 4U);
  EXPECT_EQ(domains_used(cluster, *placed, kRack).size(), 1U);
}

TEST(Placement, HonoursSelectorsAndNodesWithoutADomain) {
  auto nodes = make_nodes(1, 1, 2);
  nodes.push_back({.name = "loose", .free = gpus(8), .domains = {"z0", ""}});
  auto cluster = Cluster::create(std::move(nodes), 2).value();
  EXPECT_FALSE(cluster.place(simple_gang(3, 8, {.required = kRack})));
  EXPECT_TRUE(cluster.place(simple_gang(3, 8, {.required = kZone})));
  auto other = Cluster::create(make_nodes(1, 1, 2), 2).value();
  std::vector<bool> only_first(2, false);
  only_first[0] = true;
  Gang gang = simple_gang(2, 4, {});
  gang.sets[0].groups[0].selector = other.add_selector(only_first);
  const auto placed = other.place(gang);
  ASSERT_TRUE(placed);
  EXPECT_EQ(placed->groups[0].nodes, (std::vector<uint32_t>{0, 0}));
}

TEST(Placement, RefusesNodesOfAnotherTopology) {
  EXPECT_FALSE(Cluster::create({{.name = "n", .domains = {"z"}}}, 2));
}

TEST(Placement, RandomGangsAreWholeWithinTheirRulesAndBalanced) {
  Random random(11);
  for (int trial = 0; trial < 30; ++trial) {
    auto cluster = Cluster::create(make_nodes(2, 4, 4), 2).value();
    const int64_t total = free_gpus(cluster);
    int64_t held = 0;
    std::vector<std::pair<Gang, Placement>> placed;
    for (int step = 0; step < 60; ++step) {
      if (!placed.empty() && random.below(3) == 0) {
        auto [gang, placement] = std::move(placed.back());
        placed.pop_back();
        for (const uint32_t node : placement.groups[0].nodes) {
          cluster.release(node, gang.sets[0].groups[0].demand);
          held -= gang.sets[0].groups[0].demand.of[0];
        }
        continue;
      }
      Pack pack;
      if (random.below(2) == 0) {
        pack.required = static_cast<uint32_t>(random.below(2));
      }
      if (random.below(2) == 0) {
        pack.preferred = kRack;
      }
      Gang gang = simple_gang(static_cast<uint32_t>(1 + random.below(6)),
                              static_cast<int64_t>(1 + random.below(8)), pack);
      if (auto placement = cluster.place(gang)) {
        ASSERT_EQ(placement->groups[0].nodes.size(), gang.sets[0].groups[0].pods_min);
        if (pack.required) {
          ASSERT_EQ(domains_used(cluster, *placement, *pack.required).size(), 1U);
        }
        held += static_cast<int64_t>(placement->groups[0].nodes.size()) *
                gang.sets[0].groups[0].demand.of[0];
        placed.emplace_back(std::move(gang), std::move(*placement));
      }
      ASSERT_EQ(free_gpus(cluster) + held, total);
      for (const Node& node : cluster.nodes()) {
        ASSERT_GE(node.free.of[0], 0);
      }
    }
  }
}

}  // namespace
}  // namespace stator::gang
