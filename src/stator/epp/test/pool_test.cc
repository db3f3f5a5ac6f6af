// SPDX-License-Identifier: Apache-2.0
#include "stator/epp/pool.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <set>

#include "stator/epp/pool_watch.h"
#include "stator/kube/yaml.h"

namespace stator::epp {
namespace {

json::Value yaml(std::string_view text) {
  return kube::parse_yaml(text, "test").value().at(0);
}

TEST(Endpoints, AreReadFromLinesListsAndObjects) {
  EXPECT_EQ(read_endpoints(yaml("10.0.0.1:8000\n10.0.0.2:8000\n")).value().size(), 2U);
  EXPECT_EQ(read_endpoints(yaml("[10.0.0.1:8000]")).value().at(0).address, "10.0.0.1:8000");
  const auto list =
      read_endpoints(yaml("endpoints:\n- {address: a:1, role: prefill, instance: 7}\n")).value();
  EXPECT_TRUE(list.at(0).is_prefill);
  EXPECT_EQ(list.at(0).instance, "7");
  EXPECT_FALSE(read_endpoints(yaml("[nowhere]")));
}

TEST(Endpoints, ComeFromReadyPodsOfAPool) {
  const auto pool = yaml(
      "spec: {selector: {matchLabels: {app: w}}, targetPorts: [{number: 8000}, {number: 8001}]}");
  const auto pod = [](std::string_view app, std::string_view ready) {
    return yaml(
        fmt::format("metadata: {{labels: {{app: {}}}}}\nstatus: {{podIP: 10.0.0.9, conditions: "
                    "[{{type: Ready, status: \"{}\"}}]}}",
                    app, ready));
  };
  EXPECT_EQ(endpoints_of(pool, {pod("w", "True"), pod("w", "False"), pod("x", "True")}).size(), 2U);
  EXPECT_TRUE(endpoints_of(yaml("spec: {targetPorts: [{number: 1}]}"), {pod("w", "True")}).empty());
}

TEST(EndpointPool, SendsEqualBeginningsToOneEndpointAndSpreadsOthers) {
  SystemClock clock;
  Metrics metrics;
  auto pool = EndpointPool::create(clock, metrics).value();
  pool->set_endpoints({{.address = "a:1"}, {.address = "b:1"}, {.address = "c:1"}});
  const std::string prompt(4000, 'p');
  const std::string first =
      pool->pick({.request_id = "1", .model = "m", .prompt = prompt}).value().endpoint;
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(pool->pick({.request_id = "2", .model = "m", .prompt = prompt}).value().endpoint,
              first);
  }
  std::set<std::string> used;
  std::vector<Pick> held;
  for (int i = 0; i < 3; ++i) {
    held.push_back(
        pool->pick({.request_id = "3", .model = "m", .prompt = std::string(4000, char('a' + i))})
            .value());
    used.insert(held.back().endpoint);
  }
  EXPECT_EQ(used.size(), 3U);
}

TEST(EndpointPool, KeepsToTheSubsetAndSaysWhenNobodyIsThere) {
  SystemClock clock;
  Metrics metrics;
  auto pool = EndpointPool::create(clock, metrics).value();
  EXPECT_FALSE(pool->pick({.request_id = "0"}));
  pool->set_endpoints({{.address = "10.0.0.1:1"}, {.address = "10.0.0.2:1"}});
  const auto pick = [&](std::vector<std::string> subset) {
    auto picked = pool->pick({.request_id = "1", .subset = std::move(subset)});
    return picked ? picked->endpoint : std::string();
  };
  EXPECT_EQ(pick({"10.0.0.2"}), "10.0.0.2:1");
  EXPECT_EQ(pick({"10.0.0.1:1"}), "10.0.0.1:1");
  EXPECT_EQ(pick({"10.0.0.3"}), "");
  EXPECT_EQ(pick({}), "");
}

TEST(EndpointPool, PicksAPrefillWorkerWhereThereIsOne) {
  SystemClock clock;
  Metrics metrics;
  auto pool = EndpointPool::create(clock, metrics).value();
  pool->set_endpoints({{.address = "d:1"}, {.address = "p:1", .is_prefill = true}});
  const auto pick = pool->pick({.request_id = "1", .prompt = "hello"});
  ASSERT_TRUE(pick);
  EXPECT_EQ(pick->endpoint, "d:1");
  EXPECT_EQ(pick->prefill, "p:1");
}

TEST(RequestFacts, ReadsModelAndPrompt) {
  const auto chat =
      read_request(R"({"model":"m","messages":[{"role":"user","content":"hi"}],"stream":true})");
  ASSERT_TRUE(chat);
  EXPECT_EQ(chat->model, "m");
  EXPECT_EQ(chat->prompt, R"([{"role":"user","content":"hi"}])");
  EXPECT_TRUE(chat->stream);
  EXPECT_EQ(read_request(R"({"prompt":"text"})").value().prompt, "text");
  EXPECT_FALSE(read_request("{"));
  EXPECT_FALSE(read_request("[]"));
}

}  // namespace
}  // namespace stator::epp
