// SPDX-License-Identifier: Apache-2.0
#include "stator/configurator/search.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

#include "stator/configurator/output.h"

namespace stator::configurator {
namespace {

Goal goal_of(std::string_view model, std::string_view system, uint32_t gpus) {
  Goal goal;
  goal.engine.model = *perf::find_model(model);
  goal.engine.system = *perf::find_system(system);
  goal.engine.weights = goal.engine.experts = *perf::find_quant("fp8_block");
  goal.engine.kv = *perf::find_quant("bfloat16");
  goal.gpus = gpus;
  return goal;
}

TEST(Search, EveryAnswerKeepsGoalsGpusAndMemory) {
  Goal goal = goal_of("Qwen/Qwen3-32B", "h200_sxm", 8);
  goal.itl_ms = 20;

  const auto result = search(goal);

  ASSERT_TRUE(result) << result.error().message();
  EXPECT_TRUE(result->goal_met);
  ASSERT_FALSE(result->best.empty());
  for (const Candidate& c : result->best) {
    EXPECT_LE(c.point.ttft_ms, goal.ttft_ms);
    EXPECT_LE(c.point.itl_ms, goal.itl_ms);
    EXPECT_LE(c.point.gpus * c.replicas, goal.gpus);
    EXPECT_GE(c.decode.kv_tokens_max, c.decode.batch * 5000.0);
    EXPECT_LE(c.decode.memory_bytes, goal.engine.system.memory_bytes);
  }
  EXPECT_GE(result->best[0].cluster_tokens_per_s_per_gpu,
            result->best.back().cluster_tokens_per_s_per_gpu);
}

TEST(Search, AnImpossibleGoalGivesTheClosestAndTheLimit) {
  Goal goal = goal_of("Qwen/Qwen3-32B", "h200_sxm", 8);
  goal.itl_ms = 0.1;

  const auto result = search(goal);

  ASSERT_TRUE(result);
  EXPECT_FALSE(result->goal_met);
  EXPECT_EQ(result->binding_limit, "itl");
  ASSERT_FALSE(result->best.empty());
  EXPECT_EQ(result->best[0].decode.batch, 1U);
}

TEST(Search, AModelThatFitsNowhereNamesMemory) {
  const auto result = search(goal_of("deepseek-ai/DeepSeek-R1", "l4", 8));

  ASSERT_TRUE(result);
  EXPECT_TRUE(result->best.empty());
  EXPECT_EQ(result->binding_limit, "memory");
}

TEST(Search, RefusesWhatMakesNoSense) {
  EXPECT_FALSE(search(goal_of("Qwen/Qwen3-32B", "h200_sxm", 0)));
  Goal goal = goal_of("Qwen/Qwen3-32B", "h200_sxm", 8);
  goal.work.input_tokens = 1e7;
  const auto result = search(goal);
  ASSERT_FALSE(result);
  EXPECT_NE(result.error().message().find("context"), std::string::npos);
}

TEST(Search, MoreGpusNeverYieldLess) {
  double last = 0;
  for (const uint32_t gpus : {1U, 2U, 4U, 8U, 16U}) {
    const auto result = search(goal_of("Qwen/Qwen3-8B", "h100_sxm", gpus));
    ASSERT_TRUE(result && !result->best.empty());
    const double yield = result->best[0].cluster_tokens_per_s_per_gpu * gpus;
    EXPECT_GE(yield, last);
    last = yield;
  }
}

TEST(ParetoFront, IsWhatTheDefinitionSays) {
  std::mt19937 random(7);
  std::uniform_int_distribution<int> value(0, 30);
  for (int round = 0; round < 50; ++round) {
    std::vector<std::pair<double, double>> points(40);
    for (auto& point : points) {
      point = {value(random), value(random)};
    }
    std::set<std::pair<double, double>> expected;
    for (const auto& a : points) {
      const bool beaten = std::ranges::any_of(points, [&](const auto& b) {
        return b != a && b.first >= a.first && b.second >= a.second;
      });
      if (!beaten) {
        expected.insert(a);
      }
    }
    std::set<std::pair<double, double>> got;
    for (const size_t index : pareto_front(points)) {
      got.insert(points[index]);
    }
    EXPECT_EQ(got, expected);
  }
}

TEST(Output, FilesNameTheEngineAndTheGraph) {
  Goal goal = goal_of("Qwen/Qwen3-32B", "h200_sxm", 8);
  const auto result = search(goal);
  ASSERT_TRUE(result && !result->best.empty());

  const auto files = render_files(goal, result->best[0], "Qwen/Qwen3-32B");

  std::string all;
  for (const auto& [name, content] : files) {
    all += name + content;
  }
  for (const std::string_view part :
       {"stator.yaml", "kind: DynamoGraphDeployment", "vllm serve", "--tensor-parallel-size"}) {
    EXPECT_NE(all.find(part), std::string::npos) << part;
  }
}

}  // namespace
}  // namespace stator::configurator
