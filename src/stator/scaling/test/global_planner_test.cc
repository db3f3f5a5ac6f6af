// SPDX-License-Identifier: Apache-2.0
#include "stator/scaling/global_planner.h"

#include <gtest/gtest.h>

#include "stator/core/random.h"

namespace stator::scaling {
namespace {

using Kind = GlobalVerdict::Kind;

ScaleRequest ask(std::string graph, uint32_t decode) {
  return {.caller_namespace = "team",
          .graph = std::move(graph),
          .kube_namespace = {},
          .targets = {.prefill = {}, .decode = decode},
          .blocking = false,
          .predicted_load = {}};
}

TEST(GlobalPlanner, ApprovesWhatStaysInTheBand) {
  GlobalPlanner planner({.max_total_gpus = 10});
  const GlobalVerdict verdict =
      planner.decide(ask("a", 6), {{.name = "a", .decode = 4}, {.name = "b", .decode = 4}}, 0);
  EXPECT_EQ(verdict.kind, Kind::kSuccess);
  ASSERT_EQ(verdict.steps.size(), 1U);
  EXPECT_EQ(verdict.steps[0].targets.decode, 6U);
}

TEST(GlobalPlanner, PairsAGrowerWithAPoolThatWantedToShrink) {
  GlobalPlanner planner({.max_total_gpus = 8, .min_total_gpus = 8});
  const std::vector<PoolNow> pools = {{.name = "a", .decode = 4}, {.name = "b", .decode = 4}};
  EXPECT_EQ(planner.decide(ask("b", 2), pools, 0).kind, Kind::kRejected);  // below the least

  const GlobalVerdict verdict = planner.decide(ask("a", 6), pools, 10);

  EXPECT_EQ(verdict.kind, Kind::kSuccess);
  ASSERT_EQ(verdict.steps.size(), 2U);
  EXPECT_EQ(verdict.steps[0].pool, "b");  // what shrinks goes first
  EXPECT_EQ(verdict.steps[0].targets.decode, 2U);
  EXPECT_EQ(verdict.steps[1].targets.decode, 6U);
}

TEST(GlobalPlanner, TakesAPartnerThatIsTooLargeInPart) {
  GlobalPlanner planner({.max_total_gpus = 8, .min_total_gpus = 8});
  const std::vector<PoolNow> pools = {{.name = "a", .decode = 4}, {.name = "b", .decode = 4}};
  planner.decide(ask("b", 1), pools, 0);
  const GlobalVerdict verdict = planner.decide(ask("a", 5), pools, 1);
  EXPECT_EQ(verdict.kind, Kind::kSuccess);
  ASSERT_EQ(verdict.steps.size(), 2U);
  EXPECT_EQ(verdict.steps[0].targets.decode, 3U);
}

TEST(GlobalPlanner, IntentsAreForgotten) {
  GlobalPlanner planner({.max_total_gpus = 8, .min_total_gpus = 8, .intent_ttl_s = 360});
  const std::vector<PoolNow> pools = {{.name = "a", .decode = 4}, {.name = "b", .decode = 4}};
  planner.decide(ask("b", 2), pools, 0);
  EXPECT_EQ(planner.decide(ask("a", 6), pools, 400).kind, Kind::kRejected);
}

TEST(GlobalPlanner, RefusesOtherNamespacesAndUnknownPools) {
  GlobalPlanner planner({.managed_namespaces = {"mine"}});
  EXPECT_EQ(planner.decide(ask("a", 1), {{.name = "a"}}, 0).kind, Kind::kRejected);
  GlobalPlanner all({});
  EXPECT_EQ(all.decide(ask("z", 1), {{.name = "a"}}, 0).kind, Kind::kError);
}

TEST(GlobalPlanner, ZeroMeansNoGpuAtAll) {
  GlobalPlanner planner({.max_total_gpus = 0});
  EXPECT_EQ(planner.decide(ask("a", 1), {{.name = "a"}}, 0).kind, Kind::kRejected);
}

TEST(GlobalPlanner, NothingApprovedEverLeavesTheBand) {
  Random random(11);
  for (int round = 0; round < 200; ++round) {
    const int64_t most = 8 + static_cast<int64_t>(random.below(24));
    GlobalPlanner planner({.max_total_gpus = most, .min_total_gpus = most / 2});
    std::vector<PoolNow> pools = {{.name = "a", .decode = 1, .gpus_per_decode = 2},
                                  {.name = "b", .decode = 1},
                                  {.name = "c", .prefill = 1}};
    for (int step = 0; step < 40; ++step) {
      const std::string name = pools[random.below(3)].name;
      ScaleRequest request = ask(name, static_cast<uint32_t>(random.below(12)));
      if (random.below(2) == 0) {
        request.targets.prefill = static_cast<uint32_t>(random.below(6));
      }
      const GlobalVerdict verdict = planner.decide(request, pools, step);
      int64_t before = 0, total = 0;
      for (const PoolNow& pool : pools) {
        before += pool.gpus();
      }
      for (const GlobalVerdict::Step& change : verdict.steps) {
        for (PoolNow& pool : pools) {
          if (pool.name == change.pool) {
            pool.decode = change.targets.decode.value_or(pool.decode);
            pool.prefill = change.targets.prefill.value_or(pool.prefill);
          }
        }
      }
      for (const PoolNow& pool : pools) {
        total += pool.gpus();
      }
      ASSERT_LE(total, std::max(before, most)) << "round " << round << " step " << step;
    }
  }
}

TEST(ScaleRequest, ReadsWhatItWritesAndNamesWhatIsWrong) {
  ScaleRequest request = ask("llama", 3);
  request.kube_namespace = "prod";
  request.targets.prefill = 2;
  const auto again = parse_scale_request(render_json(request));
  ASSERT_TRUE(again) << again.error().message();
  EXPECT_EQ(again->targets, request.targets);
  EXPECT_EQ(again->pool(), "prod/llama");
  for (
      const char* text :
      {"", "[]", "{}", R"({"caller_namespace":"a","graph_deployment_name":"b"})",
       R"({"caller_namespace":"a","graph_deployment_name":"b","target_replicas":[{"sub_component_type":"x","desired_replicas":1}]})",
       R"({"caller_namespace":"a","graph_deployment_name":"b","target_replicas":[{"sub_component_type":"decode","desired_replicas":-1}]})"}) {
    EXPECT_FALSE(parse_scale_request(text)) << text;
  }
}

}  // namespace
}  // namespace stator::scaling
