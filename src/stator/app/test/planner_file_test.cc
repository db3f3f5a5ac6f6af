// SPDX-License-Identifier: Apache-2.0
#include "stator/app/planner_file.h"

#include <gtest/gtest.h>

#include <string>

namespace stator::app {
namespace {

std::string refusal(const std::string& text) {
  planner::PlannerConfig config;
  const auto read = read_planner_file(text, config);
  if (!read) {
    return read.error().message();
  }
  const auto valid = planner::validate(config);
  return valid ? std::string() : valid.error().message();
}

TEST(PlannerFile, WhatTheReferenceTakesIsTaken) {
  for (const std::string_view text :
       {"{}", R"({"min_endpoint":0,"mode":"disagg"})", R"({"throughput_metrics_source":"router"})",
        R"({"fpm_sample_bucket_size":25,"max_num_fpm_samples":100,"speculative_nextn":3})",
        R"({"environment":"global-planner","global_planner_namespace":"g"})",
        R"({"enable_power_awareness":true,"total_gpu_power_limit":5000,
            "decode_power_watts_per_replica":700,"prefill_power_watts_per_replica":700})",
        R"({"optimization_target":"sla","enable_throughput_scaling":true,"mode":"agg"})",
        R"({"aic_perf_model":{"hf_id":"m"},"load_predictor":"prophet","control_api_port":0,
            "prefill_engine_num_gpu":null,"scheduling":{"scale_interval_seconds":5}})"}) {
    EXPECT_EQ(refusal(std::string(text)), "") << text;
  }
}

TEST(PlannerFile, WhatTheReferenceRefusesIsRefusedByKey) {
  const std::pair<std::string_view, std::string_view> cases[] = {
      {R"({"environment":"moon"})", "environment"},
      {R"({"mode":"both"})", "mode"},
      {R"({"throughput_metrics_source":"invalid"})", "throughput_metrics_source"},
      {R"({"environment":"global-planner"})", "global_planner_namespace"},
      {R"({"enable_power_awareness":true})", "total_gpu_power_limit"},
      {R"({"enable_power_awareness":true,"total_gpu_power_limit":5000,"mode":"agg"})", "agg"},
      {R"({"enable_power_awareness":true,"total_gpu_power_limit":5000,"environment":"virtual"})",
       "kubernetes"},
      {R"({"total_gpu_power_limit":0})", "total_gpu_power_limit"},
      {R"({"mode":"prefill","decode_min_endpoint":2})", "decode_min_endpoint"},
      {R"({"mode":"decode","prefill_min_endpoint":2})", "prefill_min_endpoint"},
      {R"({"mode":"agg","prefill_min_endpoint":2})", "prefill_min_endpoint"},
      {R"({"mode":"agg","decode_min_endpoint":2})", "decode_min_endpoint"},
      {R"({"min_endpoint":-1})", "min_endpoint"},
      {R"({"min_endpoint":1.5})", "min_endpoint"},
      {R"({"prefill_min_endpoint":0})", "prefill_min_endpoint"},
      {R"({"fpm_sample_bucket_size":10})", "perfect square"},
      {R"({"ttft_ms":0})", "ttft_ms"},
      {R"({"itl_ms":"fast"})", "itl_ms"},
      {R"({"advisory":"perhaps"})", "advisory"},
      {R"({"load_predictor":"oracle"})", "predictor"},
      {R"({"optimization_target":"sla","enable_throughput_scaling":false})", "enable_load_scaling"},
      {R"({"optimization_target":"sla","enable_load_scaling":true,
           "load_adjustment_interval_seconds":180})",
       "interval"},
      {R"({"optimization_target":"load","mode":"agg"})", "decode_scale_up_kv_rate"},
      {R"({"optimization_target":"load","mode":"disagg","decode_scale_up_kv_rate":80,
           "decode_scale_down_kv_rate":20})",
       "prefill_scale_up_queue_tokens"},
      {R"({"mode":"disagg","prefill_engine_num_gpu":8,"decode_engine_num_gpu":4,
           "max_gpu_budget":11})",
       "12 GPUs"},
      {R"({"wishes":3})", "wishes"}};
  for (const auto& [text, word] : cases) {
    EXPECT_NE(refusal(std::string(text)).find(word), std::string::npos)
        << text << " -> " << refusal(std::string(text));
  }
}

TEST(PlannerFile, PoolsHaveSizesOfTheirOwn) {
  planner::PlannerConfig config;
  ASSERT_TRUE(read_planner_file(
      R"({"mode":"disagg","min_endpoint":2,"prefill_min_endpoint":3,"prefill_engine_num_gpu":4,
          "decode_engine_num_gpu":1,"max_gpu_budget":20})",
      config));

  EXPECT_EQ(planner::pool_of(config, true).min_workers, 3U);
  EXPECT_EQ(planner::pool_of(config, true).gpus_per_worker, 4U);
  EXPECT_EQ(planner::pool_of(config, false).min_workers, 2U);
  EXPECT_EQ(planner::pool_of(config, false).gpus_per_worker, 1U);
}

}  // namespace
}  // namespace stator::app
