// SPDX-License-Identifier: Apache-2.0
// Calls that share a connection, against our server on real sockets.
#include "stator/net/grpc_channel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "stator/core/mutex.h"
#include "stator/net/detail/socket.h"
#include "stator/net/grpc_server.h"
#include "stator/net/grpc_status.h"
#include "stator/net/shard.h"
#include "stator/net/test/raw_client.h"
#include "stator/net/test/test_certificate.h"
#include "stator/net/thread.h"

namespace stator::net {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::HasSubstr;

/// Says back what it hears; "end" ends the call.
class Echo final : public GrpcCallHandler {
 public:
  explicit Echo(std::shared_ptr<GrpcServerCall> call) : call_(std::move(call)) {}
  void on_message(std::string_view message) override {
    call_->send(message);
    call_->flush();
    if (message == "end") {
      call_->finish({});
    }
  }
  void on_half_closed() override { call_->finish({}); }
  void on_gone() override {}

 private:
  const std::shared_ptr<GrpcServerCall> call_;
};

/// Ends with OK and no answer.
class Mute final : public GrpcCallHandler {
 public:
  explicit Mute(std::shared_ptr<GrpcServerCall> call) : call_(std::move(call)) {}
  void on_message(std::string_view /*message*/) override {}
  void on_half_closed() override { call_->finish({}); }
  void on_gone() override {}

 private:
  const std::shared_ptr<GrpcServerCall> call_;
};

/// Never ends by itself; counts those whose client gave up.
class Hang final : public GrpcCallHandler {
 public:
  explicit Hang(std::atomic<int>& gone) : gone_(gone) {}
  void on_message(std::string_view /*message*/) override {}
  void on_half_closed() override {}
  void on_gone() override { ++gone_; }

 private:
  std::atomic<int>& gone_;
};

class Listener final : public GrpcCallListener {
 public:
  void on_message(std::string_view message) override { add(std::string(message)); }
  void on_end(GrpcOutcome outcome) override {
    add("end " + std::to_string(outcome.status) + " " + outcome.message);
  }
  void add(std::string line) {
    const MutexLock lock(mutex_);
    lines_.push_back(std::move(line));
  }
  std::vector<std::string> lines() const {
    const MutexLock lock(mutex_);
    return lines_;
  }
  std::string last() const {
    const std::vector<std::string> all = lines();
    return all.empty() ? "" : all.back();
  }
  bool ended() const { return last().starts_with("end "); }

 private:
  mutable Mutex mutex_;
  std::vector<std::string> lines_ STATOR_GUARDED_BY(mutex_);
};

class GrpcChannelTest : public testing::Test {
 protected:
  GrpcChannelTest() { shards_.start(); }
  ~GrpcChannelTest() override {
    on_client([this] {
      calls_.clear();
      unary_.reset();
      channel_.reset();
    });
    server_.reset();
    shards_.stop();
  }

  void serve(uint16_t port = 0, std::shared_ptr<const ServerTls> tls = nullptr,
             uint32_t calls_max = 128) {
    GrpcServer::Methods methods;
    methods["/pkg.Service/Echo"] = [](std::shared_ptr<GrpcServerCall> call) {
      return std::make_shared<Echo>(std::move(call));
    };
    methods["/pkg.Service/Mute"] = [](std::shared_ptr<GrpcServerCall> call) {
      return std::make_shared<Mute>(std::move(call));
    };
    methods["/pkg.Service/Hang"] = [this](const std::shared_ptr<GrpcServerCall>& /*call*/) {
      return std::make_shared<Hang>(gone_);
    };
    GrpcServerOptions options;
    options.port = port;
    options.tls = std::move(tls);
    options.calls_max = calls_max;
    options.first_message_timeout = 1h;
    auto server =
        GrpcServer::listen(std::move(options), std::move(methods), shards_.shard(0), metrics_);
    ASSERT_TRUE(server.has_value()) << server.error().to_string();
    server_ = std::move(*server);
    port_ = server_->port();
  }
  GrpcChannelOptions options() const {
    GrpcChannelOptions options{.address = "127.0.0.1:" + std::to_string(port_)};
    options.retry_min = 1ms;
    options.retry_max = 1ms;
    options.connect_timeout = 1h;
    return options;
  }
  void open(GrpcChannelOptions options) {
    on_client([&] { channel_ = GrpcChannel::open(std::move(options), shards_.shard(1)); });
  }
  GrpcCall& begin(Listener& listener, std::string path = "/pkg.Service/Echo",
                  std::optional<Duration> deadline = std::nullopt) {
    on_client([&] {
      calls_.push_back(channel_->begin({.path = std::move(path), .deadline = deadline}, listener));
    });
    return *calls_.back();
  }
  void say(GrpcCall& call, const std::string& message) {
    on_client([&] { call.send(message); });
  }
  template <typename Task>
  void on_client(Task task) {
    ASSERT_TRUE(shards_.shard(1).run_and_wait([&task] { task(); }));
  }
  double connections() { return metrics_.gauge("stator_grpc_connections_open", "").value(); }
  /// The outcome of a call with one request, and its answer.
  std::string ask(const std::string& path, const std::string& request) {
    std::atomic<bool> done = false;
    std::string heard;
    on_client([&] {
      unary_ = std::make_unique<GrpcUnaryCall>(
          *channel_, GrpcChannelCall{.path = path}, request,
          [&](const GrpcOutcome& outcome, std::string_view answer) {
            heard = std::to_string(outcome.status) + " " + outcome.message + std::string(answer);
            unary_.reset();
            done = true;
          });
    });
    EXPECT_TRUE(eventually([&] { return done.load(); }));
    return heard;
  }

  SystemClock clock_;
  Metrics metrics_;
  ShardSet shards_{2, clock_, metrics_};  // the server's, the client's
  std::unique_ptr<GrpcServer> server_;
  uint16_t port_ = 0;
  std::atomic<int> gone_ = 0;
  std::unique_ptr<GrpcChannel> channel_;
  std::unique_ptr<GrpcUnaryCall> unary_;
  std::vector<std::unique_ptr<GrpcCall>> calls_;
};

TEST_F(GrpcChannelTest, CallsShareAConnectionAndEndApart) {
  serve();
  open(options());
  Listener first;
  Listener second;
  GrpcCall& one = begin(first);
  GrpcCall& two = begin(second);
  say(one, "a");
  say(two, "b");
  ASSERT_TRUE(eventually([&] { return first.last() == "a" && second.last() == "b"; }));
  EXPECT_EQ(connections(), 1);

  say(one, "end");
  ASSERT_TRUE(eventually([&] { return first.ended(); }));
  say(two, "c");
  EXPECT_TRUE(eventually([&] { return second.last() == "c"; }));
  EXPECT_THAT(first.lines(), ElementsAre("a", "end", "end 0 "));
}

TEST_F(GrpcChannelTest, OneRequestHasOneAnswer) {
  serve();
  open(options());

  EXPECT_EQ(ask("/pkg.Service/Echo", "question"), "0 question");
  EXPECT_THAT(ask("/pkg.Service/Mute", "question"), HasSubstr("13 the call ended without"));
  EXPECT_THAT(ask("/pkg.Service/None", "question"), HasSubstr("12 no method"));
  EXPECT_EQ(connections(), 1);
}

TEST_F(GrpcChannelTest, ACallIsCancelledAtTheServerToo) {
  serve();
  open(options());
  Listener given_up;
  Listener late;
  Listener other;
  begin(given_up, "/pkg.Service/Hang");
  begin(late, "/pkg.Service/Hang", 1ms);
  GrpcCall& echo = begin(other);
  ASSERT_TRUE(eventually([&] { return late.ended(); }));
  EXPECT_THAT(late.last(), HasSubstr("end 4 "));
  on_client([this] { calls_.front().reset(); });

  EXPECT_TRUE(eventually([&] { return gone_ == 2; }));
  say(echo, "still here");
  EXPECT_TRUE(eventually([&] { return other.last() == "still here"; }));
  EXPECT_TRUE(given_up.lines().empty());
}

TEST_F(GrpcChannelTest, AServerThatCannotBeReachedFailsCallsAtOnceForAWhile) {
  serve();
  server_.reset();
  GrpcChannelOptions patient = options();
  patient.retry_min = 1h;
  patient.retry_max = 1h;
  open(patient);
  Listener first;
  Listener second;
  begin(first);
  ASSERT_TRUE(eventually([&] { return first.ended(); }));
  EXPECT_THAT(first.last(), HasSubstr("end 14 it cannot be reached"));

  serve(port_);
  begin(second);
  ASSERT_TRUE(eventually([&] { return second.ended(); }));
  EXPECT_EQ(second.last(), first.last()) << "not tried again yet";
}

TEST_F(GrpcChannelTest, ABrokenConnectionIsMadeAnew) {
  serve();
  open(options());
  Listener broken;
  say(begin(broken), "a");
  ASSERT_TRUE(eventually([&] { return broken.last() == "a"; }));
  server_.reset();
  ASSERT_TRUE(eventually([&] { return broken.ended(); }));
  EXPECT_THAT(broken.last(), HasSubstr("end 14 "));

  serve(port_);
  EXPECT_TRUE(eventually([&] { return ask("/pkg.Service/Echo", "b") == "0 b"; }));
}

TEST_F(GrpcChannelTest, AServerThatGoesAwayEndsWhatItHasBegun) {
  serve();
  open(options());
  Listener old;
  GrpcCall& call = begin(old);
  say(call, "a");
  ASSERT_TRUE(eventually([&] { return old.last() == "a"; }));
  net::Thread stopping("stop", [this] { server_->stop(1h); });
  // Its port is closed, and the connection it has takes no more calls.
  EXPECT_TRUE(eventually(
      [&] { return ask("/pkg.Service/Echo", "b").starts_with("14 it cannot be reached"); }));

  say(call, "end");
  EXPECT_TRUE(eventually([&] { return old.ended(); }));
  EXPECT_EQ(old.last(), "end 0 ");
  stopping.join();
}

TEST_F(GrpcChannelTest, MoreCallsThanAllowedAreRefused) {
  serve();
  GrpcChannelOptions few = options();
  few.calls_max = 1;
  open(few);
  Listener first;
  Listener second;
  say(begin(first), "a");
  begin(second);

  ASSERT_TRUE(eventually([&] { return second.ended(); }));
  EXPECT_THAT(second.last(), HasSubstr("end 8 "));
  EXPECT_TRUE(eventually([&] { return first.last() == "a"; }));
}

TEST_F(GrpcChannelTest, ACallThatCouldNotBeginMayGoWithItsConnection) {
  serve(0, nullptr, 0);
  open(options());
  Listener refused;
  begin(refused);  // before the server has said that it takes none
  ASSERT_TRUE(eventually([&] { return refused.ended(); }));
  struct GivesUp final : GrpcCallListener {
    void on_message(std::string_view /*message*/) override {}
    void on_end(GrpcOutcome outcome) override {
      call.reset();
      status = outcome.status;
    }
    std::unique_ptr<GrpcCall> call;
    std::atomic<int> status = -1;
  } waiting;
  on_client([&] {
    waiting.call = channel_->begin({.path = "/pkg.Service/Echo"}, waiting);
    channel_.reset();
  });
  server_->stop(1h);  // returns when the client has closed, too

  EXPECT_TRUE(eventually([&] { return waiting.status == kGrpcUnavailable; }));
}

TEST_F(GrpcChannelTest, ASilentServerIsGivenUpAfterADeadline) {
  serve();
  GrpcChannelOptions quick = options();
  quick.keepalive_interval = 1h;  // the deadline asks, nothing else
  quick.keepalive_timeout = 5ms;
  open(quick);
  Listener open_call;
  say(begin(open_call), "a");
  ASSERT_TRUE(eventually([&] { return open_call.last() == "a"; }));
  std::atomic<bool> frozen = false;
  std::atomic<bool> thawed = false;
  ASSERT_TRUE(shards_.shard(0).post([&] {
    frozen = true;
    EXPECT_TRUE(eventually([&] { return thawed.load(); }));
  }));
  ASSERT_TRUE(eventually([&] { return frozen.load(); }));

  std::vector<std::unique_ptr<Listener>> late;
  ASSERT_TRUE(eventually([&] {
    if (late.empty() || late.back()->ended()) {
      late.push_back(std::make_unique<Listener>());
      begin(*late.back(), "/pkg.Service/Echo", 1ms);
    }
    return open_call.ended();
  }));
  EXPECT_THAT(open_call.last(), HasSubstr("end 14 it has been silent for too long"));
  thawed = true;
  EXPECT_TRUE(eventually([&] { return ask("/pkg.Service/Echo", "b") == "0 b"; }));
}

TEST_F(GrpcChannelTest, AServerThatSaysNothingIsNotReached) {
  auto listening = detail::listen_tcp("127.0.0.1", 0, detail::Sharing::kExclusive);
  ASSERT_TRUE(listening.has_value());
  port_ = listening->port;
  GrpcChannelOptions quick = options();
  quick.connect_timeout = 5ms;
  open(quick);
  Listener listener;
  begin(listener);

  ASSERT_TRUE(eventually([&] { return listener.ended(); }));
  EXPECT_EQ(listener.last(), "end 14 it cannot be reached: no answer in time");
}

TEST_F(GrpcChannelTest, AClientWithoutACertificateChecksTheServers) {
  const TestCertificate certificate;  // its own authority
  serve(0, std::move(ServerTls::load(certificate.cert_path(), certificate.key_path(), "").value()));
  GrpcChannelOptions secret = options();
  secret.tls = std::move(ClientTls::load("", "", certificate.cert_path()).value());
  open(secret);
  EXPECT_EQ(ask("/pkg.Service/Echo", "secret"), "0 secret");

  const TestCertificate other;
  secret.tls = std::move(ClientTls::load("", "", other.cert_path()).value());
  open(secret);
  EXPECT_THAT(ask("/pkg.Service/Echo", "secret"), HasSubstr("14 its certificate: "));
  secret.tls = std::move(ClientTls::load("", "", "").value());  // the system's authorities
  open(secret);
  EXPECT_THAT(ask("/pkg.Service/Echo", "secret"), HasSubstr("14 its certificate: "));
}

}  // namespace
}  // namespace stator::net
