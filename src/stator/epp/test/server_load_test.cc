// SPDX-License-Identifier: Apache-2.0
#include "stator/epp/server_load.h"

#include <gtest/gtest.h>

#include <set>

#include "stator/epp/pool.h"

namespace stator::epp {
namespace {

TEST(ServerLoad, ReadsWhatServersOfAllKindsSay) {
  const auto vllm = read_server_load(
      "vllm:num_requests_waiting{engine=\"0\"} 3.0\nvllm:num_requests_waiting{engine=\"1\"} 4\n"
      "vllm:num_requests_running{engine=\"0\"} 2\nvllm:kv_cache_usage_perc{engine=\"0\"} 0.25\n"
      "vllm:kv_cache_usage_perc{engine=\"1\"} 0.75\n"
      "vllm:cache_config_info{block_size=\"16\",num_gpu_blocks=\"1000\"} 1.0\n"
      "vllm:lora_requests_info{max_lora=\"4\",running_lora_adapters=\"old\"} 1\n"
      "vllm:lora_requests_info{max_lora=\"4\",running_lora_adapters=\"a, b\","
      "waiting_lora_adapters=\"b,c\"} 2\n");
  EXPECT_EQ(vllm, (ServerLoad{.waiting = 7,
                              .running = 2,
                              .cache_usage = 0.5,
                              .cache_blocks = 1000,
                              .adapters_max = 4,
                              .adapters = {"a", "b", "c"}}));
  const auto sglang = read_server_load(
      "sglang:num_queue_reqs 1\nsglang:num_running_reqs 2\nsglang:token_usage 0.125\n");
  EXPECT_EQ(sglang, (ServerLoad{.waiting = 1, .running = 2, .cache_usage = 0.125}));
  const auto triton = read_server_load(
      "nv_trt_llm_request_metrics{model=\"m\",request_type=\"waiting\"} 6\n"
      "nv_trt_llm_request_metrics{model=\"m\",request_type=\"scheduled\"} 5\n"
      "nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=\"fraction\",model=\"m\"} 0.5\n"
      "nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=\"used\",model=\"m\"} 0.1\n");
  EXPECT_EQ(triton, (ServerLoad{.waiting = 6, .running = 5, .cache_usage = 0.5}));
  EXPECT_EQ(read_server_load("go_goroutines 7\n"), std::nullopt);
}

TEST(ServerLoad, DoesNotBelieveWhatCannotBe) {
  const auto load = read_server_load(
      "vllm:num_requests_waiting -3\nvllm:num_requests_running NaN\nvllm:kv_cache_usage_perc 7\n"
      "vllm:cache_config_info{num_gpu_blocks=\"None\"} 1\n");
  EXPECT_EQ(load, (ServerLoad{.cache_usage = 1}));
}

class ServerLoadPool : public testing::Test {
 protected:
  std::string pick(PickRequest request = {}) {
    const std::string id = std::to_string(++number_);
    const std::string prompt = id + std::string(400, 'x');
    request.request_id = id;
    request.prompt = prompt;
    auto pick = pool_->pick(request);
    if (!pick) {
      return std::string(pick.error().message());
    }
    std::string endpoint = pick->endpoint;
    held_.push_back(std::move(*pick));
    return endpoint;
  }

  SystemClock clock_;
  Metrics metrics_;
  std::unique_ptr<EndpointPool> pool_ = EndpointPool::create(clock_, metrics_).value();
  std::vector<Pick> held_;
  int number_ = 0;
};

TEST_F(ServerLoadPool, RequestsOfOthersAreLoad) {
  pool_->set_endpoints({{.address = "a:1"}, {.address = "b:1"}});
  pool_->set_server_load("a:1", ServerLoad{.waiting = 20, .running = 8});
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(pick(), "b:1");
  }
  // What it has is ours: nothing to add. Then it does not answer: nothing is known.
  pool_->set_server_load("b:1", ServerLoad{.waiting = 0, .running = 4});
  EXPECT_EQ(pick(), "b:1");
  pool_->set_server_load("a:1", std::nullopt);
  EXPECT_EQ(pick(), "a:1");
  EXPECT_EQ(pool_->averages().told, 1U);
  EXPECT_EQ(pool_->averages().running, 4);
}

TEST_F(ServerLoadPool, LowPrioritiesAreShedWhereAllAreSaturated) {
  pool_->set_endpoints({{.address = "a:1"}, {.address = "b:1"}});
  pool_->set_server_load("a:1", ServerLoad{.waiting = 6});
  EXPECT_EQ(pick({.priority = -1}), "b:1");
  pool_->set_server_load("b:1", ServerLoad{.cache_usage = 0.9});
  EXPECT_TRUE(pick({.priority = -1}).starts_with("all endpoints are saturated"));
  EXPECT_EQ(pick({.subset = std::vector<std::string>{"a"}, .priority = 0}), "a:1");
}

TEST_F(ServerLoadPool, AdaptersAreLookedForWhereTheyAre) {
  pool_->set_endpoints({{.address = "a:1"}, {.address = "b:1"}, {.address = "c:1"}});
  pool_->set_server_load("a:1", ServerLoad{.adapters_max = 2, .adapters = {"x", "y"}});
  pool_->set_server_load("b:1", ServerLoad{.adapters_max = 2, .adapters = {"z"}});
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(pick({.model = "z"}), "b:1");
    EXPECT_EQ(pick({.model = "x"}), "a:1");
  }
  // Where it is there is no room: an endpoint that has some, but the subset says more.
  pool_->set_server_load("b:1", ServerLoad{.waiting = 9, .adapters_max = 2, .adapters = {"z"}});
  pool_->set_server_load("c:1", ServerLoad{.adapters_max = 2});
  EXPECT_EQ(pick({.model = "z"}), "c:1");
  EXPECT_EQ(pick({.model = "z", .subset = std::vector<std::string>{"b"}}), "b:1");
  pool_->set_server_load("b:1", ServerLoad{.adapters_max = 2, .adapters = {"z"}});
  std::set<std::string> others;
  for (int i = 0; i < 12; ++i) {
    others.insert(pick({.model = "base"}));
  }
  EXPECT_EQ(others.size(), 3U);
}

}  // namespace
}  // namespace stator::epp
