// SPDX-License-Identifier: Apache-2.0
#include "stator/operator/status_pace.h"

#include <gtest/gtest.h>

#include "graphs.h"

namespace stator::op {
namespace {

using json::Value;
using namespace std::chrono_literals;

Value status_of(std::string_view ready, int64_t available, std::string_view state = "pending") {
  Value status = Value::object();
  status["state"] = state;
  Value condition = Value::object();
  condition["type"] = "Ready";
  condition["status"] = ready;
  condition["reason"] = "Why";
  status["conditions"].push_back(std::move(condition));
  status["components"]["Worker"]["availableReplicas"] = available;
  return status;
}

TEST(StatusPace, NewsIsWrittenAtOnce) {
  const Value starting = status_of("False", 0);
  const Value ready = status_of("True", 2, "successful");
  EXPECT_FALSE(is_news(nullptr, starting));
  EXPECT_FALSE(is_news(&starting, status_of("False", 1)));
  EXPECT_TRUE(is_news(&starting, ready));
  EXPECT_TRUE(is_news(&ready, starting));
  EXPECT_TRUE(is_news(nullptr, ready));
  EXPECT_TRUE(is_news(nullptr, status_of("False", 0, "failed")));
  Value changed = ready;
  changed["observedGeneration"] = 2;
  EXPECT_TRUE(is_news(&ready, changed));
  Value changing = starting;
  changing["observedGeneration"] = 2;
  EXPECT_FALSE(is_news(&starting, changing));
  Value rolling = starting;
  rolling["rollingUpdate"]["phase"] = "Pending";
  EXPECT_TRUE(is_news(&starting, rolling));
  Value restarting = starting;
  restarting["restart"]["observedID"] = "1";
  EXPECT_TRUE(is_news(&starting, restarting));
  Value broken = starting;
  broken["message"] = "no quota";
  EXPECT_TRUE(is_news(&starting, broken));
}

TEST(StatusPace, CountsWaitForEachOther) {
  StatusPace pace;
  const TimePoint begin{100s};
  const Value stored = status_of("False", 0);
  EXPECT_EQ(pace.wait("g", nullptr, stored, begin), StatusPace::kFirst);
  EXPECT_EQ(pace.wait("g", nullptr, stored, begin + 400ms), StatusPace::kFirst - 400ms);
  EXPECT_EQ(pace.wait("g", nullptr, stored, begin + 1s), 0s);
  // Written: the next difference waits anew, and news ends the waiting.
  EXPECT_EQ(pace.wait("g", &stored, status_of("False", 1), begin + 2s), StatusPace::kCounts);
  EXPECT_EQ(pace.wait("g", &stored, status_of("True", 2), begin + 3s), 0s);
  EXPECT_EQ(pace.wait("g", &stored, status_of("False", 1), begin + 4s), StatusPace::kCounts);
  EXPECT_EQ(pace.wait("other", &stored, status_of("False", 1), begin + 5s), StatusPace::kCounts);
}

TEST(NewestStatuses, AreOfOneObjectOnly) {
  NewestStatuses newest;
  Value object = from_yaml("{metadata: {name: a, namespace: llm, uid: u1}, status: {old: 1}}");
  EXPECT_TRUE(newest.remember(object, status_of("False", 1)));
  EXPECT_FALSE(newest.remember(object, status_of("False", 1)));
  EXPECT_TRUE(newest.remember(object, status_of("False", 2)));
  newest.overlay(object);
  EXPECT_EQ(object["status"], status_of("False", 2));
  Value again = from_yaml("{metadata: {name: a, namespace: llm, uid: u2}, status: {old: 1}}");
  newest.overlay(again);
  EXPECT_EQ(again.at("status").at("old").text(), "1");
  newest.forget("llm/a");
  Value later = from_yaml("{metadata: {name: a, namespace: llm, uid: u1}}");
  newest.overlay(later);
  EXPECT_EQ(later.find("status"), nullptr);
}

}  // namespace
}  // namespace stator::op
