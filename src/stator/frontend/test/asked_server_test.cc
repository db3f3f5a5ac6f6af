// SPDX-License-Identifier: Apache-2.0
#include "stator/frontend/asked_server.h"

#include <gtest/gtest.h>

#include <future>
#include <optional>
#include <string>
#include <utility>

#include "stator/net/test/http_server_fixture.h"

namespace stator::frontend {
namespace {

using std::chrono::seconds;

class AskedServerTest : public net::HttpServerTest {
 protected:
  using Got = std::optional<AskedServer::Answer>;

  std::shared_ptr<AskedServer> start_asking(std::string url, size_t open_max = 8) {
    auto made = AskedServer::start({.thread = "asked",
                                    .url = std::move(url),
                                    .log_target = "test",
                                    .away = "it does not answer",
                                    .open_max = open_max},
                                   clock);
    EXPECT_TRUE(made.has_value());
    return std::move(*made);
  }
  std::string url() const { return "http://127.0.0.1:" + std::to_string(server->port()); }

  /// What comes, once it has; invalid if the question was not taken.
  static std::future<Got> ask(AskedServer& server, std::string path, bool good = true) {
    auto promise = std::make_shared<std::promise<Got>>();
    auto future = promise->get_future();
    const bool taken = server.ask({.path = std::move(path),
                                   .body = "{}",
                                   .timeout = seconds(20),
                                   .on_answer = [promise, good](const AskedServer::Answer* answer) {
                                     promise->set_value(answer != nullptr ? Got(*answer) : Got());
                                     return good && answer != nullptr;
                                   }});
    return taken ? std::move(future) : std::future<Got>();
  }
};

TEST_F(AskedServerTest, AnAnswerBringsItsStatusAndBody) {
  start_echo();
  const auto asked = start_asking(url());
  const Got got = ask(*asked, "/where").get();
  ASSERT_TRUE(got.has_value());
  EXPECT_EQ(got->status, 200);
  EXPECT_EQ(got->body, "POST /where {}");
}

TEST_F(AskedServerTest, AServerThatFailsThriceInARowIsPaused) {
  start_echo();
  const auto asked = start_asking(url());
  for (int i = 0; i < AskedServer::kFailuresMax - 1; ++i) {
    ask(*asked, "/", false).get();
  }
  ask(*asked, "/").get();  // a good one in between begins anew
  EXPECT_FALSE(asked->paused());
  for (int i = 0; i < AskedServer::kFailuresMax; ++i) {
    ask(*asked, "/", false).get();
  }
  EXPECT_TRUE(net::eventually([&] { return asked->paused(); }));
  EXPECT_TRUE(net::eventually([&] { return !asked->paused(); })) << "and asked again later";
}

TEST_F(AskedServerTest, QuestionsBeyondTheBoundAreNotTakenAndStopAnswersTheRest) {
  std::promise<void> asked_once;
  start([&](net::HttpExchange&) { asked_once.set_value(); });  // never answers
  const auto asked = start_asking(url(), 1);
  auto open = ask(*asked, "/");
  EXPECT_FALSE(ask(*asked, "/").valid());
  asked_once.get_future().wait();
  asked->stop();
  EXPECT_FALSE(open.get().has_value());
  EXPECT_FALSE(ask(*asked, "/").valid());
}

TEST(BaseUrl, TakesHttpAddressesOnly) {
  EXPECT_EQ(base_url("http://a:1//"), "http://a:1");
  EXPECT_EQ(base_url("https://a"), "https://a");
  EXPECT_EQ(base_url("ftp://a"), "");
  EXPECT_EQ(base_url("a:1"), "");
}

}  // namespace
}  // namespace stator::frontend
