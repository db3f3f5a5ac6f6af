// SPDX-License-Identifier: Apache-2.0
#include "stator/router/queue/policy_classes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>

#include "stator/core/random.h"
#include "stator/router/dispatcher.h"

namespace stator::router {
namespace {

using testing::HasSubstr;

constexpr std::string_view kDocument = R"({
  "default_policy_family": "cached",
  "uncached_isl_buckets": [{"min_tokens": 0, "bucket": "short"}, {"min_tokens": 4096, "bucket": "long"}],
  "policy_classes": [
    {"name": "cached-short", "policy_family": "cached", "cache_bucket": "short", "queue_policy": "wspt",
     "quantum": 512, "prefill_busy_threshold": 0, "request_queue_limit_per_worker": 2},
    {"name": "cached-long", "policy_family": "cached", "cache_bucket": "long", "quantum": 128,
     "prefill_busy_threshold_frac": 0},
    {"name": "batch", "prefill_busy_threshold": null}
  ],
  "models": {"other": {"default_policy_family": "f",
    "policy_classes": [{"name": "only", "policy_family": "f", "cache_bucket": "all"}]}},
  "worker_selection": {"aggregated": "default", "instances": []}
})";

Result<std::shared_ptr<const PolicyConfig>> parse(std::string_view text) {
  return parse_policy_config(*json::parse(text));
}

std::string with(std::string_view from, std::string_view to) {
  std::string text(kDocument);
  text.replace(text.find(from), from.size(), to);
  return text;
}

TEST(PolicyClasses, AreChosenByNameFamilyAndLength) {
  const auto config = *parse(kDocument);

  EXPECT_EQ(config->choose("", 4095).name, "cached-short");
  EXPECT_EQ(config->choose("", 4096).name, "cached-long");
  EXPECT_EQ(config->choose("batch", 4096).name, "batch");
  EXPECT_EQ(config->choose("cached", 0).name, "cached-short");
  EXPECT_EQ(config->choose("nobody", 0).name, "cached-short");
  EXPECT_EQ(config->models.at("other")->choose("", 7).name, "only");
  EXPECT_FALSE(config->choose("batch", 0).wait.any());
}

TEST(PolicyClasses, SayWhatIsWrong) {
  struct {
    std::string text;
    std::string_view said;
  } const cases[] = {
      {with("\"quantum\": 512", "\"quantum\": 0"), "quantum"},
      {with("\"queue_policy\": \"wspt\"", "\"queue_policy\": \"best\""), "queue_policy"},
      {with("\"cache_bucket\": \"long\"", "\"cache_bucket\": \"short\""), "exactly one class"},
      {with("\"min_tokens\": 0", "\"min_tokens\": 1"), "min_tokens 0"},
      {with("\"min_tokens\": 4096", "\"min_tokens\": 0"), "ascend"},
      {with("\"name\": \"batch\"", "\"name\": \"cached-long\""), "two classes"},
      {with("\"name\": \"batch\"", "\"name\": \"b c\""), "name"},
      {with("\"default_policy_family\": \"cached\"", "\"default_policy_family\": \"x\""),
       "has no class"},
      {with("\"aggregated\": \"default\"", "\"aggregated\": \"mine\""), "worker_selection"},
      {with("\"models\"", "\"model\""), "unknown key 'model'"},
      {"[]", "must be a map"},
      {"{}", "policy_classes"},
  };
  for (const auto& [text, said] : cases) {
    const auto config = parse(text);
    ASSERT_FALSE(config) << text;
    EXPECT_THAT(std::string(config.error().message()), HasSubstr(std::string(said)));
  }
}

/// One worker, busy with whatever is to be computed there.
class ClassesTest : public testing::Test {
 protected:
  ClassesTest() {
    RouterConfig config;
    config.mode = "least_loaded";
    config.policies = *parse(kDocument);
    book_ = LoadBook::make(clock_);
    auto router = Router::create(config, book_, Random(3));
    dispatcher_.emplace(std::move(*router), QueueOrder::kFcfs);
    dispatcher_->router().add_worker({WorkerId(1), 0}, {.max_num_batched_tokens = 1000});
  }
  auto submit(uint32_t tokens, std::string_view wish = {}) {
    return dispatcher_->submit({.request_id = "r", .model = "m", .prompt_tokens = tokens},
                               {.arrival = clock_.now(), .policy_class = wish}, {});
  }

  SimClock clock_;
  std::shared_ptr<LoadBook> book_;
  std::optional<Dispatcher> dispatcher_;
};

TEST_F(ClassesTest, WaitByTheirOwnThresholds) {
  auto first = submit(100);
  ASSERT_TRUE(first && std::holds_alternative<Decision>(*first));

  EXPECT_TRUE(std::holds_alternative<Dispatcher::Id>(*submit(100)));
  EXPECT_TRUE(std::holds_alternative<Decision>(*submit(100, "batch")));  // it waits for nobody
  EXPECT_EQ(dispatcher_->queue().backlog("cached-short").requests, 1U);
}

TEST_F(ClassesTest, HaveLimitsOfTheirOwn) {
  auto first = submit(100);
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(submit(100));
  }
  const auto beyond = submit(100);
  ASSERT_FALSE(beyond);
  EXPECT_EQ(beyond.error().code(), Code::kOverloaded);
  EXPECT_THAT(
      std::string(beyond.error().message()),
      HasSubstr(
          R"({"policy_class":"cached-short","limit_kind":"requests","current":2,"limit":2})"));
  EXPECT_TRUE(submit(5000));
}

TEST_F(ClassesTest, ShareByTheirQuanta) {
  RequestQueue queue({}, QueueOrder::kFcfs);
  const auto push = [&](std::string_view name, double weight) {
    EXPECT_TRUE(queue.push({.prompt_tokens = 64, .tenant = name, .tenant_weight = weight}));
  };
  for (int i = 0; i < 400; ++i) {
    push("wide", 512.0 / 2048);
    push("narrow", 128.0 / 2048);
  }
  for (int i = 0; i < 320; ++i) {
    EXPECT_TRUE(queue.pop([](RequestQueue::Id) { return true; }));
  }
  EXPECT_NEAR(static_cast<double>(400 - queue.backlog("wide").requests), 256, 3);
}

}  // namespace
}  // namespace stator::router
