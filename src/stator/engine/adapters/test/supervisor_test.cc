// SPDX-License-Identifier: Apache-2.0
#include "stator/engine/adapters/supervisor.h"

#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>

#include "stator/net/test/raw_client.h"

namespace stator::engine::adapters {
namespace {

using namespace std::chrono_literals;

TEST(RestartPolicy, WaitsLongerEachTimeUntilOneRanWell) {
  RestartPolicy policy({.first = 1s, .longest = 5s, .steady = 60s});
  EXPECT_EQ(policy.on_exit(1s), 1s);
  EXPECT_EQ(policy.on_exit(1s), 2s);
  EXPECT_EQ(policy.on_exit(1s), 4s);
  EXPECT_EQ(policy.on_exit(1s), 5s);
  EXPECT_EQ(policy.on_exit(59s), 5s);
  EXPECT_EQ(policy.on_exit(60s), 1s);
  EXPECT_EQ(policy.on_exit(0s), 2s);
}

class SupervisorTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/stator-supervisor-XXXXXX";
    folder = mkdtemp(name);
  }
  void TearDown() override { std::filesystem::remove_all(folder); }

  std::unique_ptr<Supervisor> run(const std::string& script, Duration stop_timeout = 20s) {
    auto made = Supervisor::start({.command = {"sh", "-c", script},
                                   .restart = {.first = 10ms, .longest = 10ms, .steady = 60s},
                                   .stop_timeout = stop_timeout},
                                  clock, metrics);
    EXPECT_TRUE(made.has_value()) << made.error().message();
    return std::move(*made);
  }
  std::string path(const std::string& name) const { return folder + "/" + name; }
  bool exists(const std::string& name) const { return std::filesystem::exists(path(name)); }

  SystemClock clock;
  Metrics metrics;
  std::string folder;
};

TEST_F(SupervisorTest, AProcessThatEndsIsStartedAgain) {
  const auto supervisor = run("echo hello; sleep 0.01; exit 3");

  EXPECT_TRUE(net::eventually([&] { return supervisor->restarts() >= 2; }));
}

TEST_F(SupervisorTest, StopAsksPolitelyAndEndsTheWholeGroup) {
  const auto supervisor =
      run("trap 'touch " + path("asked") + "; exit 0' TERM; sleep 1000 & echo $! > " +
          path("child") + "; touch " + path("up") + "; wait");
  ASSERT_TRUE(net::eventually([&] { return exists("up"); }));
  int grandchild = 0;
  std::ifstream(path("child")) >> grandchild;

  supervisor->stop();

  EXPECT_TRUE(exists("asked"));
  EXPECT_EQ(supervisor->pid(), 0);
  EXPECT_TRUE(net::eventually([&] {
    std::ifstream stat("/proc/" + std::to_string(grandchild) + "/stat");
    std::string id;
    std::string name;
    std::string state;
    return !(stat >> id >> name >> state) || state == "Z";
  }));
}

TEST_F(SupervisorTest, OneThatDoesNotListenIsKilled) {
  const auto supervisor =
      run("trap '' TERM; touch " + path("up") + "; while :; do sleep 1; done", 50ms);
  ASSERT_TRUE(net::eventually([&] { return exists("up"); }));

  supervisor->stop();

  EXPECT_EQ(supervisor->pid(), 0);
}

TEST_F(SupervisorTest, AProgramThatDoesNotExistIsNamed) {
  const auto made = Supervisor::start({.command = {"/no/such/engine"}}, clock, metrics);

  ASSERT_FALSE(made.has_value());
  EXPECT_EQ(made.error().code(), Code::kNotFound);
  EXPECT_NE(made.error().message().find("/no/such/engine"), std::string::npos);
}

}  // namespace
}  // namespace stator::engine::adapters
