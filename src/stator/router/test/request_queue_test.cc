// SPDX-License-Identifier: Apache-2.0
#include "stator/router/queue/request_queue.h"

#include <gtest/gtest.h>

#include <array>
#include <map>
#include <string>

#include "stator/core/random.h"

namespace stator::router {
namespace {

using namespace std::chrono_literals;
using Id = RequestQueue::Id;

RequestQueue make_queue(const std::string& order, QueueConfig config = {}) {
  config.order = order;
  return RequestQueue(config, parse_queue_order(order).value());
}

TimePoint at(double seconds) {
  return TimePoint(std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds)));
}

bool always(Id) {
  return true;
}

/// What comes out, given all may run.
std::vector<Id> drain(RequestQueue& queue) {
  std::vector<Id> ids;
  while (const auto id = queue.pop(always)) {
    ids.push_back(*id);
  }
  return ids;
}

TEST(RequestQueue, FcfsGivesAPriorityJumpItsHeadStart) {
  RequestQueue queue = make_queue("fcfs");
  const Id early = *queue.push({.arrival = at(7.0)});
  const Id middle = *queue.push({.arrival = at(8.0)});
  const Id jumps = *queue.push({.arrival = at(12.5), .priority_jump = 5});
  const Id modest = *queue.push({.arrival = at(12.5), .priority_jump = -3});
  EXPECT_EQ(drain(queue), (std::vector<Id>{early, jumps, middle, modest}));
}

TEST(RequestQueue, LcfsServesTheNewest) {
  RequestQueue queue = make_queue("lcfs");
  const Id first = *queue.push({.arrival = at(1)});
  const Id second = *queue.push({.arrival = at(2)});
  const Id jumps = *queue.push({.arrival = at(0), .priority_jump = 10});
  EXPECT_EQ(drain(queue), (std::vector<Id>{jumps, second, first}));
}

TEST(RequestQueue, WsptServesTheLeastUncachedWork) {
  RequestQueue queue = make_queue("wspt");
  const Id long_uncached = *queue.push({.prompt_tokens = 4096});
  const Id long_cached = *queue.push({.prompt_tokens = 8192, .cached_tokens = 6144});
  const Id jumps = *queue.push({.priority_jump = 3, .prompt_tokens = 4096});
  const Id fully_cached = *queue.push({.prompt_tokens = 64, .cached_tokens = 64});
  // 1/4096, 1/2048, 4/4096, 1/1
  EXPECT_EQ(drain(queue), (std::vector<Id>{fully_cached, jumps, long_cached, long_uncached}));
}

TEST(RequestQueue, DeadlineServesTheLeastSlack) {
  QueueConfig config;
  config.ttft_target = 2s;
  RequestQueue queue = make_queue("deadline", config);
  const Id relaxed = *queue.push({.arrival = at(0), .deadline = at(60)});
  const Id none_given = *queue.push({.arrival = at(1)});  // due at 3
  const Id much_work =
      *queue.push({.arrival = at(1), .deadline = at(10), .predicted_work = 8s});  // start by 2
  EXPECT_EQ(drain(queue), (std::vector<Id>{much_work, none_given, relaxed}));
}

TEST(RequestQueue, AStrictTierGoesFirstWhateverTheScore) {
  RequestQueue queue = make_queue("fcfs");
  const Id old = *queue.push({.arrival = at(0), .priority_jump = 1000});
  const Id tier = *queue.push({.arrival = at(99), .strict_priority = 1});
  EXPECT_EQ(drain(queue), (std::vector<Id>{tier, old}));
}

TEST(RequestQueue, ABlockedLaneHoldsUpNobodyElse) {
  RequestQueue queue = make_queue("fcfs");
  const Id pinned = *queue.push({.arrival = at(0), .lane = 7});
  const Id free = *queue.push({.arrival = at(1)});
  const auto not_pinned = [&](Id id) { return id != pinned; };
  EXPECT_EQ(queue.pop(not_pinned), free);
  EXPECT_EQ(queue.pop(not_pinned), std::nullopt);
  EXPECT_EQ(queue.pop(always), pinned);
}

TEST(RequestQueue, AsksOncePerLane) {
  RequestQueue queue = make_queue("fcfs");
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(queue.push({.tenant = std::to_string(i % 5), .lane = uint64_t(i % 2)}).has_value());
  }
  int asked = 0;
  EXPECT_FALSE(queue.pop([&](Id) {
    ++asked;
    return false;
  }));
  EXPECT_EQ(asked, 2);
}

TEST(RequestQueue, TenantsShareByWorkNotByRequests) {
  RequestQueue queue = make_queue("fcfs", {.requests_max = 20'000, .quantum_tokens = 512});
  std::map<Id, std::string> tenant_of;
  for (int i = 0; i < 10'000; ++i) {
    const bool flood = i % 10 != 0;
    const auto id = queue.push({.arrival = at(i),
                                .prompt_tokens = flood ? 100U : 400U,
                                .tenant = flood ? "flood" : "calm"});
    tenant_of[*id] = flood ? "flood" : "calm";
  }
  std::map<std::string, double> tokens;
  for (int i = 0; i < 1000; ++i) {
    const Id id = *queue.pop(always);
    tokens[tenant_of[id]] += tenant_of[id] == "flood" ? 100 : 400;
  }
  EXPECT_NEAR(tokens["flood"] / tokens["calm"], 1.0, 0.02);
}

TEST(RequestQueue, AQuantumSmallerThanAPromptStillServes) {
  RequestQueue queue = make_queue("fcfs", {.quantum_tokens = 1});
  const Id big = *queue.push({.prompt_tokens = 1'000'000, .tenant = "a"});
  const Id bigger = *queue.push({.prompt_tokens = 2'000'000, .tenant = "b"});
  EXPECT_EQ(drain(queue), (std::vector<Id>{big, bigger}));
}

TEST(RequestQueue, ATenantWithoutRequestsKeepsNoCredit) {
  RequestQueue queue = make_queue("fcfs", {.quantum_tokens = 1000});
  ASSERT_TRUE(queue.push({.prompt_tokens = 10, .tenant = "a"}).has_value());
  EXPECT_EQ(queue.tenants(), 1U);
  drain(queue);
  EXPECT_EQ(queue.tenants(), 0U);
}

TEST(RequestQueue, TenantsBeyondTheBoundShareATurn) {
  RequestQueue queue = make_queue("fcfs", {.tenants_max = 3});
  for (int i = 0; i < 50; ++i) {
    ASSERT_TRUE(queue.push({.arrival = at(i), .tenant = "t" + std::to_string(i)}).has_value());
  }
  EXPECT_EQ(queue.tenants(), 4U);
  EXPECT_EQ(drain(queue).size(), 50U);
}

TEST(RequestQueue, EveryLimitShedsWithItsReason) {
  RequestQueue requests = make_queue("fcfs", {.requests_max = 2});
  ASSERT_TRUE(requests.push({}).has_value());
  ASSERT_TRUE(requests.push({}).has_value());
  EXPECT_EQ(requests.push({}).error(), Shed::kRequests);

  RequestQueue bytes = make_queue("fcfs", {.bytes_max = 100});
  ASSERT_TRUE(bytes.push({.bytes = 60}).has_value());
  EXPECT_EQ(bytes.push({.bytes = 41}).error(), Shed::kBytes);
  EXPECT_TRUE(bytes.push({.bytes = 40}).has_value());

  RequestQueue tokens = make_queue("fcfs", {.prompt_tokens_max = 100, .cached_tokens_max = 50});
  ASSERT_TRUE(tokens.push({.prompt_tokens = 99, .cached_tokens = 49}).has_value());
  ASSERT_TRUE(tokens.push({.prompt_tokens = 0, .cached_tokens = 1}).has_value());
  EXPECT_EQ(tokens.push({.prompt_tokens = 1}).error(), Shed::kCachedTokens);
  RequestQueue raw = make_queue("fcfs", {.prompt_tokens_max = 100});
  ASSERT_TRUE(raw.push({.prompt_tokens = 150}).has_value()) << "the crossing one is kept";
  EXPECT_EQ(raw.push({.prompt_tokens = 1}).error(), Shed::kPromptTokens);
}

TEST(RequestQueue, NobodyWaitsForever) {
  RequestQueue queue = make_queue("lcfs", {.wait_max = 5s});
  const Id old = *queue.push({.arrival = at(0)});
  const Id young = *queue.push({.arrival = at(3)});
  EXPECT_TRUE(queue.expire(at(5)).empty());
  EXPECT_EQ(queue.expire(at(6)), std::vector<Id>{old});
  EXPECT_EQ(drain(queue), std::vector<Id>{young});
}

TEST(RequestQueue, OrderNamesAreChecked) {
  EXPECT_EQ(parse_queue_order("sjf").error().code(), Code::kInvalidArgument);
  EXPECT_EQ(queue_order_names().size(), 4U);
}

TEST(RequestQueue, SumsBalanceUnderRandomOperations) {
  Random random(17);
  RequestQueue queue = make_queue("wspt", {.requests_max = 300, .wait_max = 40s, .tenants_max = 5});
  std::map<Id, QueueItem> model;
  for (int step = 0; step < 30'000; ++step) {
    const TimePoint now = at(step * 0.01);
    const uint64_t action = random.below(10);
    if (action < 6) {
      static const std::array<std::string, 8> kTenants = {"a", "b", "c", "d", "e", "f", "g", "h"};
      const QueueItem item{.arrival = now,
                           .strict_priority = static_cast<uint32_t>(random.below(2)),
                           .prompt_tokens = static_cast<uint32_t>(random.below(5000)),
                           .cached_tokens = static_cast<uint32_t>(random.below(5000)),
                           .bytes = random.below(1000),
                           .tenant = kTenants[random.below(8)],
                           .lane = random.below(3)};
      if (const auto id = queue.push(item)) {
        model.emplace(*id, item);
      } else {
        EXPECT_EQ(model.size(), 300U);
      }
    } else if (action < 9) {
      const uint64_t blocked = random.below(4);
      const auto id = queue.pop([&](Id head) { return model.at(head).lane != blocked; });
      if (id) {
        EXPECT_EQ(model.erase(*id), 1U);
      } else {
        for (const auto& [left, item] : model) {
          EXPECT_EQ(item.lane, blocked);
        }
      }
    } else if (!model.empty()) {
      const Id id = model.begin()->first;
      EXPECT_TRUE(queue.remove(id));
      EXPECT_FALSE(queue.remove(id));
      model.erase(id);
    }
    for (const Id id : queue.expire(now)) {
      EXPECT_EQ(model.erase(id), 1U);
    }
    uint64_t bytes = 0;
    uint64_t prompt_tokens = 0;
    for (const auto& [id, item] : model) {
      bytes += item.bytes;
      prompt_tokens += item.prompt_tokens;
    }
    ASSERT_EQ(queue.size(), model.size());
    ASSERT_EQ(queue.bytes(), bytes);
    ASSERT_EQ(queue.prompt_tokens(), prompt_tokens);
  }
}

}  // namespace
}  // namespace stator::router
