// SPDX-License-Identifier: Apache-2.0
// What a tenant that asks for ten times its share costs the others: the queue in front of servers
// that each compute one prompt at a time, on virtual time.

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <map>
#include <numbers>
#include <queue>
#include <string>
#include <vector>

#include "stator/core/random.h"
#include "stator/router/queue/request_queue.h"

namespace stator::router {
namespace {

constexpr int kTenants = 10;
constexpr double kTokensPerSecond = 8000;

struct Trial {
  int servers = 8;
  double tenant_load = 0.08;  ///< of the fleet, by each tenant
  double flood = 1;           ///< times that, by the first one
  double weight = 1;          ///< of the first one
  double seconds = 300;
};

struct Outcome {
  std::vector<double> waits;  ///< to the end of the prompt, of all but the first tenant
  double first_tokens = 0;    ///< that the first tenant got
  double tokens = 0;          ///< all
  int lost = 0;               ///< of all but the first tenant
  double p99() {
    std::ranges::sort(waits);
    return waits[waits.size() * 99 / 100];
  }
};

struct Request {
  double at = 0;
  int tenant = 0;
  uint32_t tokens = 0;
};

double uniform(Random& random) {
  return std::max(random.uniform(), 1e-12);
}

/// Each tenant's requests are the same whatever the others ask for.
std::vector<Request> make_requests(const Trial& trial) {
  constexpr double kMeanTokens = 680;
  std::vector<Request> all;
  for (int tenant = 0; tenant < kTenants; ++tenant) {
    Random random(static_cast<uint64_t>(tenant) + 17);
    const double rate = trial.tenant_load * trial.servers * kTokensPerSecond / kMeanTokens *
                        (tenant == 0 ? trial.flood : 1);
    for (double at = 0; at < trial.seconds;) {
      at += -std::log(uniform(random)) / rate;
      const double normal = std::sqrt(-2 * std::log(uniform(random))) *
                            std::cos(2 * std::numbers::pi * uniform(random));
      all.push_back(
          {at, tenant,
           static_cast<uint32_t>(std::clamp(std::exp(6.2 + 0.8 * normal), 50.0, 8000.0))});
    }
  }
  std::ranges::sort(all, {}, &Request::at);
  return all;
}

TimePoint time_of(double seconds) {
  return TimePoint(std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds)));
}

/// The fleet: a request that comes while nobody waits and a server is idle does not queue.
class Fleet {
 public:
  explicit Fleet(const Trial& trial)
      : trial_(trial), queue_(QueueConfig{.wait_max = Duration::zero()}, QueueOrder::kFcfs) {}

  Outcome run(const std::vector<Request>& requests) {
    for (const Request& request : requests) {
      while (!busy_.empty() && busy_.top() <= request.at) {
        end_one();
      }
      if (queue_.empty() && busy_.size() < static_cast<size_t>(trial_.servers)) {
        queue_.charge(name_of(request), weight_of(request), request.tokens, time_of(request.at));
        start(request, request.at);
      } else {
        wait(request);
      }
    }
    while (!busy_.empty()) {
      end_one();
    }
    return std::move(outcome_);
  }

 private:
  static std::string name_of(const Request& request) {
    return "t" + std::to_string(request.tenant);
  }
  double weight_of(const Request& request) const { return request.tenant == 0 ? trial_.weight : 1; }

  void wait(const Request& request) {
    const std::string name = name_of(request);
    const QueueItem item{.arrival = time_of(request.at),
                         .prompt_tokens = request.tokens,
                         .tenant = name,
                         .tenant_weight = weight_of(request)};
    auto id = queue_.push(item);
    if (!id) {
      if (const auto out = queue_.make_room(item)) {
        outcome_.lost += waiting_.at(*out).tenant == 0 ? 0 : 1;
        waiting_.erase(*out);
        id = queue_.push(item);
      }
    }
    if (id) {
      waiting_.emplace(*id, request);
    } else {
      outcome_.lost += request.tenant == 0 ? 0 : 1;
    }
  }

  void start(const Request& request, double now) {
    const double end = now + request.tokens / kTokensPerSecond;
    busy_.push(end);
    outcome_.tokens += request.tokens;
    if (request.tenant == 0) {
      outcome_.first_tokens += request.tokens;
    } else {
      outcome_.waits.push_back(end - request.at);
    }
  }

  void end_one() {
    const double now = busy_.top();
    busy_.pop();
    queue_.expire(time_of(now));
    if (const auto id = queue_.pop([](RequestQueue::Id) { return true; })) {
      start(waiting_.at(*id), now);
      waiting_.erase(*id);
    }
  }

  const Trial trial_;
  RequestQueue queue_;
  std::map<RequestQueue::Id, Request> waiting_;
  std::priority_queue<double, std::vector<double>, std::greater<>> busy_;  // when each is idle
  Outcome outcome_;
};

Outcome run(const Trial& trial) {
  return Fleet(trial).run(make_requests(trial));
}

TEST(Fairness, ATenantAtTenTimesItsShareCostsTheOthersNothing) {
  for (const double load : {0.08, 0.095}) {
    Outcome calm = run({.tenant_load = load});
    Outcome flooded = run({.tenant_load = load, .flood = 10});
    EXPECT_LE(flooded.p99(), 1.05 * calm.p99()) << load;
    EXPECT_EQ(calm.lost + flooded.lost, 0) << load;
    EXPECT_EQ(calm.waits.size(), flooded.waits.size()) << load;
    // And it gets what the others leave.
    EXPECT_GT(flooded.first_tokens, 1 - 9 * load - 0.05) << load;
  }
}

TEST(Fairness, WhatTheOthersLeaveIsNotWasted) {
  const Outcome flooded = run({.tenant_load = 0.05, .flood = 20});
  EXPECT_GT(flooded.tokens / (300 * 8 * kTokensPerSecond), 0.98);
  EXPECT_GT(flooded.first_tokens / flooded.tokens, 0.5);
}

TEST(Fairness, FloodsShareByWeight) {
  RequestQueue queue(QueueConfig{.requests_max = 100'000, .wait_max = Duration::zero()},
                     QueueOrder::kFcfs);
  std::map<RequestQueue::Id, std::string> tenants;
  const std::map<std::string, double> weights = {{"a", 1}, {"b", 2}, {"c", 5}};
  for (int i = 0; i < 20'000; ++i) {
    for (const auto& [tenant, weight] : weights) {
      tenants[*queue.push({.prompt_tokens = 500, .tenant = tenant, .tenant_weight = weight})] =
          tenant;
    }
  }
  std::map<std::string, double> served;
  for (int i = 0; i < 20'000; ++i) {
    queue.expire(TimePoint(std::chrono::milliseconds(i)));
    served[tenants[*queue.pop([](RequestQueue::Id) { return true; })]] += 1;
  }
  for (const auto& [tenant, weight] : weights) {
    EXPECT_NEAR(served[tenant] / 20'000, weight / 8, 0.01) << tenant;
  }
}

TEST(Fairness, AFullQueueTakesANewcomerInPlaceOfWhoFillsIt) {
  RequestQueue queue(QueueConfig{.requests_max = 10}, QueueOrder::kFcfs);
  std::vector<RequestQueue::Id> flood;
  for (int i = 0; i < 10; ++i) {
    flood.push_back(*queue.push(
        {.arrival = TimePoint(std::chrono::seconds(i)), .prompt_tokens = 100, .tenant = "flood"}));
  }
  const QueueItem calm{
      .arrival = TimePoint(std::chrono::seconds(11)), .prompt_tokens = 100, .tenant = "calm"};
  ASSERT_FALSE(queue.push(calm));
  EXPECT_EQ(queue.make_room(calm), flood.back());
  EXPECT_TRUE(queue.push(calm));
  // Who fills it makes no room for itself, and large newcomers none that is beyond their share.
  const QueueItem more{.prompt_tokens = 100, .tenant = "flood"};
  EXPECT_FALSE(queue.push(more));
  EXPECT_EQ(queue.make_room(more), std::nullopt);
  const QueueItem large{.prompt_tokens = 1000, .tenant = "calm"};
  EXPECT_EQ(queue.make_room(large), std::nullopt);
  const QueueItem lower{.prompt_tokens = 100, .tenant = "class", .is_class = true};
  EXPECT_EQ(queue.make_room(lower), std::nullopt);
}

TEST(Fairness, UseFades) {
  RequestQueue queue(QueueConfig{.wait_max = Duration::zero()}, QueueOrder::kFcfs);
  const auto at = [](int seconds) { return TimePoint(std::chrono::seconds(seconds)); };
  const auto next = [&queue] { return *queue.pop([](RequestQueue::Id) { return true; }); };
  queue.charge("heavy", 1, 100'000, at(0));
  queue.charge("light", 1, 100, at(0));
  const auto heavy = *queue.push({.arrival = at(1), .prompt_tokens = 10, .tenant = "heavy"});
  const auto light = *queue.push({.arrival = at(2), .prompt_tokens = 10, .tenant = "light"});
  EXPECT_EQ(next(), light);
  EXPECT_EQ(next(), heavy);

  // Ten minutes later the other's use is forgotten.
  queue.charge("light", 1, 1000, at(600));
  queue.charge("heavy", 1, 500, at(600));
  const auto first = *queue.push({.arrival = at(601), .prompt_tokens = 10, .tenant = "light"});
  const auto second = *queue.push({.arrival = at(602), .prompt_tokens = 10, .tenant = "heavy"});
  EXPECT_EQ(next(), second);
  EXPECT_EQ(next(), first);
}

}  // namespace
}  // namespace stator::router
