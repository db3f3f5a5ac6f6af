// SPDX-License-Identifier: Apache-2.0
// The server on real sockets, asked by our own client and by clients that behave badly.
#include "stator/net/grpc_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nghttp2/nghttp2.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "stator/core/mutex.h"
#include "stator/net/detail/grpc_codec.h"
#include "stator/net/grpc_call.h"
#include "stator/net/shard.h"
#include "stator/net/test/raw_client.h"
#include "stator/net/test/test_certificate.h"

namespace stator::net {
namespace {

using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::HasSubstr;

/// What a call at the server has heard; the test's thread looks.
class Heard {
 public:
  void add(std::string line) {
    const MutexLock lock(mutex_);
    lines_.push_back(std::move(line));
  }
  std::vector<std::string> lines() const {
    const MutexLock lock(mutex_);
    return lines_;
  }
  bool has(const std::string& line) const {
    const std::vector<std::string> all = lines();
    return std::ranges::find(all, line) != all.end();
  }

 private:
  mutable Mutex mutex_;
  std::vector<std::string> lines_ STATOR_GUARDED_BY(mutex_);
};

/// Says back what it hears.
class Echo final : public GrpcCallHandler {
 public:
  Echo(std::shared_ptr<GrpcServerCall> call, Heard& heard)
      : call_(std::move(call)), heard_(heard) {}
  void on_message(std::string_view message) override {
    heard_.add(std::string(message));
    call_->send(message);
    call_->flush();
    if (message == "end") {
      call_->finish({7, "as you wish"});
    }
  }
  void on_half_closed() override { heard_.add("half closed"); }
  void on_room() override { heard_.add("room"); }
  void on_gone() override { heard_.add("gone"); }

 private:
  const std::shared_ptr<GrpcServerCall> call_;
  Heard& heard_;
};

class Client final : public GrpcCallListener {
 public:
  void on_message(std::string_view message) override { heard.add(std::string(message)); }
  void on_end(GrpcOutcome outcome) override {
    heard.add("end " + std::to_string(outcome.status) + " " + outcome.message);
  }
  Heard heard;
};

class GrpcServerTest : public testing::Test {
 protected:
  GrpcServerTest() { shards_.start(); }
  ~GrpcServerTest() override {
    on_client([this] { call_.reset(); });
    server_.reset();  // its loop sets call_at_server_
    call_at_server_.reset();
    shards_.stop();
  }

  /// Tests may say nothing for as long as the machine likes.
  static GrpcServerOptions patient() {
    GrpcServerOptions options;
    options.first_message_timeout = std::chrono::hours(1);
    return options;
  }
  void serve(GrpcServerOptions options = patient()) {
    GrpcServer::Methods methods;
    methods["/pkg.Service/Echo"] = [this](std::shared_ptr<GrpcServerCall> call) {
      call_at_server_ = call;
      called_ = true;
      return std::make_shared<Echo>(std::move(call), heard_);
    };
    auto server =
        GrpcServer::listen(std::move(options), std::move(methods), shards_.shard(0), metrics_);
    ASSERT_TRUE(server.has_value()) << server.error().to_string();
    server_ = std::move(*server);
  }
  void call(const std::string& path = "/pkg.Service/Echo",
            std::shared_ptr<const ClientTls> tls = nullptr) {
    on_client([&] {
      call_ = GrpcCall::open({.address = "127.0.0.1:" + std::to_string(server_->port()),
                              .path = path,
                              .tls = std::move(tls)},
                             shards_.shard(1), client_);
    });
  }
  template <typename Task>
  void on_client(Task task) {
    ASSERT_TRUE(shards_.shard(1).run_and_wait([&task] { task(); }));
  }
  void say(const std::string& message) {
    on_client([&] { call_->send(message); });
  }
  uint64_t count(const std::string& metric) { return metrics_.counter(metric, "").value(); }

  SystemClock clock_;
  Metrics metrics_;
  ShardSet shards_{2, clock_, metrics_};  // the server's, the client's
  Heard heard_;
  Client client_;
  std::unique_ptr<GrpcServer> server_;
  std::unique_ptr<GrpcCall> call_;
  std::shared_ptr<GrpcServerCall> call_at_server_;
  std::atomic<bool> called_ = false;
};

TEST_F(GrpcServerTest, ServesACall) {
  serve();
  call();
  say("one");
  ASSERT_TRUE(eventually([&] { return client_.heard.has("one"); }));
  say("end");
  ASSERT_TRUE(eventually([&] { return client_.heard.has("end 7 as you wish"); }));

  EXPECT_THAT(client_.heard.lines(), ElementsAre("one", "end", "end 7 as you wish"));
  EXPECT_TRUE(eventually([&] { return heard_.has("gone"); }));
  EXPECT_THAT(heard_.lines(), ElementsAre("one", "end", "gone"));
}

TEST_F(GrpcServerTest, AMethodThatNobodyServesIsNotImplemented) {
  serve();
  call("/pkg.Service/Other");
  ASSERT_TRUE(eventually([&] { return !client_.heard.lines().empty(); }));
  EXPECT_THAT(client_.heard.lines()[0], HasSubstr("end 12 no method /pkg.Service/Other"));
}

TEST_F(GrpcServerTest, ACallThatIsGivenUpIsGone) {
  serve();
  call();
  say("one");
  ASSERT_TRUE(eventually([&] { return heard_.has("one"); }));
  on_client([this] { call_.reset(); });

  EXPECT_TRUE(eventually([&] { return heard_.has("gone"); }));
  call_at_server_->send("to nobody");
  call_at_server_->flush();
  call_at_server_->finish({});
  EXPECT_EQ(call_at_server_->unsent_bytes(), 0U);
}

TEST_F(GrpcServerTest, AnyThreadMayAnswerAndASlowClientIsWaitedFor) {
  serve();
  call();
  ASSERT_TRUE(eventually([&] { return called_.load(); }));
  std::atomic<bool> release = false;
  ASSERT_TRUE(
      shards_.shard(1).post([&] { EXPECT_TRUE(eventually([&] { return release.load(); })); }));
  const std::string message(10'000, 'm');
  size_t sent = 0;
  while (call_at_server_->has_room()) {
    call_at_server_->send(message);
    call_at_server_->flush();
    ++sent;
  }
  EXPECT_GE(call_at_server_->unsent_bytes(), size_t{64} * 1024);
  EXPECT_FALSE(heard_.has("room"));
  release = true;

  EXPECT_TRUE(eventually([&] { return heard_.has("room"); }));
  EXPECT_TRUE(eventually([&] { return client_.heard.lines().size() == sent; }));
  EXPECT_EQ(call_at_server_->unsent_bytes(), 0U);
}

TEST_F(GrpcServerTest, AHeldCallSpeaksLater) {
  serve();
  call();
  ASSERT_TRUE(eventually([&] { return called_.load(); }));
  ASSERT_TRUE(shards_.shard(0).run_and_wait([this] { call_at_server_->hold(); }));
  say("one");
  say("end");
  // A second connection is served meanwhile, so what was said has been read.
  Client other;
  std::unique_ptr<GrpcCall> other_call;
  on_client([&] {
    other_call = GrpcCall::open(
        {.address = "127.0.0.1:" + std::to_string(server_->port()), .path = "/pkg.Service/Other"},
        shards_.shard(1), other);
  });
  ASSERT_TRUE(eventually([&] { return !other.heard.lines().empty(); }));
  on_client([&] { other_call.reset(); });
  EXPECT_THAT(heard_.lines(), testing::IsEmpty());

  call_at_server_->go_on();
  EXPECT_TRUE(eventually([&] { return heard_.has("gone"); }));
  EXPECT_THAT(heard_.lines(), ElementsAre("one", "end", "gone"));
}

TEST_F(GrpcServerTest, StoppingEndsCallsThatDoNotEndByThemselves) {
  serve();
  call();
  say("one");
  ASSERT_TRUE(eventually([&] { return heard_.has("one"); }));
  server_->stop(milliseconds(1));

  EXPECT_THAT(heard_.lines(), ElementsAre("one", "gone"));
  EXPECT_TRUE(eventually([&] { return client_.heard.lines().size() == 2; }));
  EXPECT_THAT(client_.heard.lines()[1], HasSubstr("end 14"));
}

TEST_F(GrpcServerTest, StoppingLetsStatusesArrive) {
  serve();
  call();
  say("one");
  ASSERT_TRUE(eventually([&] { return heard_.has("one"); }));
  call_at_server_->finish({14, "shutting down"});
  server_->stop(std::chrono::seconds(10));

  EXPECT_TRUE(eventually([&] { return client_.heard.has("end 14 shutting down"); }));
}

TEST_F(GrpcServerTest, RefusesConnectionsBeyondItsBound) {
  GrpcServerOptions options = patient();
  options.connections_max = 1;
  serve(std::move(options));
  call();
  say("one");
  ASSERT_TRUE(eventually([&] { return heard_.has("one"); }));
  RawClient second(server_->port());

  EXPECT_EQ(second.read_to_end(), "");
  EXPECT_TRUE(eventually([&] { return count("stator_grpc_refused_connections_total") == 1; }));
}

TEST_F(GrpcServerTest, GivesUpClientsThatAreSilent) {
  GrpcServerOptions options;
  options.keepalive_interval = milliseconds(5);
  options.keepalive_timeout = milliseconds(5);
  serve(std::move(options));
  RawClient silent(server_->port());
  silent.read_to_end();

  EXPECT_TRUE(eventually([&] { return count("stator_grpc_silent_connections_total") == 1; }));
}

TEST_F(GrpcServerTest, ClosesConnectionsThatAreNotHttp2) {
  serve();
  RawClient browser(server_->port());
  ASSERT_TRUE(browser.send("GET / HTTP/1.1\r\nHost: worker\r\n\r\n"));
  browser.read_to_end();

  EXPECT_TRUE(eventually([&] { return count("stator_grpc_broken_connections_total") == 1; }));
  EXPECT_TRUE(
      eventually([&] { return metrics_.gauge("stator_grpc_connections_open", "").value() == 0; }));
}

/// The first bytes of a client that calls with a deadline, says `data` and then nothing more.
std::string call_with_timeout(const char* timeout, std::string data = {}) {
  nghttp2_session_callbacks* callbacks = nullptr;
  nghttp2_session* session = nullptr;
  nghttp2_session_callbacks_new(&callbacks);
  nghttp2_session_client_new(&session, callbacks, nullptr);
  nghttp2_session_callbacks_del(callbacks);
  const detail::Http2Session owned(session);
  nghttp2_submit_settings(session, NGHTTP2_FLAG_NONE, nullptr, 0);
  const std::vector fields{detail::http2_field(":method", "POST"),
                           detail::http2_field(":scheme", "http"),
                           detail::http2_field(":path", "/pkg.Service/Echo"),
                           detail::http2_field(":authority", "worker"),
                           detail::http2_field("content-type", "application/grpc"),
                           detail::http2_field("grpc-timeout", timeout)};
  nghttp2_data_provider provider{};
  provider.source.ptr = &data;
  provider.read_callback = [](nghttp2_session*, int32_t, uint8_t* to, size_t size, uint32_t*,
                              nghttp2_data_source* source, void*) -> ssize_t {
    auto& rest = *static_cast<std::string*>(source->ptr);
    const size_t count = rest.copy(reinterpret_cast<char*>(to), size);
    rest.erase(0, count);
    return count == 0 ? NGHTTP2_ERR_DEFERRED : static_cast<ssize_t>(count);
  };
  nghttp2_submit_request(session, nullptr, fields.data(), fields.size(), &provider, nullptr);
  detail::OutputBuffer out;
  detail::append_http2_output(session, out);
  return std::string(out.front());
}

TEST_F(GrpcServerTest, ACallPastItsDeadlineIsEnded) {
  serve();
  RawClient client(server_->port());
  ASSERT_TRUE(client.send(call_with_timeout("5m")));

  EXPECT_TRUE(eventually([&] { return heard_.has("gone"); }));
}

TEST_F(GrpcServerTest, ACallWhoseFirstMessageDoesNotComeIsEnded) {
  GrpcServerOptions options;
  options.first_message_timeout = milliseconds(5);
  serve(std::move(options));
  call();

  ASSERT_TRUE(eventually([&] { return !client_.heard.lines().empty(); }));
  EXPECT_THAT(client_.heard.lines()[0], HasSubstr("end 4 the call's first message"));
  EXPECT_TRUE(eventually([&] { return heard_.has("gone"); }));
  EXPECT_EQ(count("stator_grpc_silent_calls_total"), 1U);
}

TEST_F(GrpcServerTest, ACallThatHasSpokenMayBeSilent) {
  GrpcServerOptions options = patient();
  options.silent_calls_max = 1;
  serve(std::move(options));
  call();
  say("one");
  ASSERT_TRUE(eventually([&] { return client_.heard.has("one"); }));
  RawClient silent(server_->port());
  ASSERT_TRUE(silent.send(call_with_timeout("1H")));
  RawClient newer(server_->port());
  ASSERT_TRUE(newer.send(call_with_timeout("1H")));

  EXPECT_TRUE(eventually([&] { return heard_.has("gone"); })) << "the older silent one";
  EXPECT_EQ(count("stator_grpc_silent_calls_total"), 1U);
  say("end");
  EXPECT_TRUE(eventually([&] { return client_.heard.has("end 7 as you wish"); }));
}

TEST_F(GrpcServerTest, AMessageThatDoesNotEndInTimeEndsItsCall) {
  GrpcServerOptions options = patient();
  options.message_timeout = milliseconds(5);
  serve(std::move(options));
  RawClient client(server_->port());
  ASSERT_TRUE(client.send(call_with_timeout("1H", std::string("\0\0\0\0\x50 begun", 11))));

  EXPECT_TRUE(eventually([&] { return heard_.has("gone"); }));
  EXPECT_EQ(count("stator_grpc_unfinished_calls_total"), 1U);
  EXPECT_EQ(metrics_.gauge("stator_grpc_unfinished_bytes", "").value(), 0);
}

TEST_F(GrpcServerTest, ServersShareABudgetForUnfinishedMessages) {
  GrpcServerOptions options = patient();
  options.message_budget = std::make_shared<ByteBudget>("test", size_t{48} * 1024, metrics_);
  const auto budget = options.message_budget;
  serve(std::move(options));
  RawClient first(server_->port());
  // The beginning of a message of 64 KiB.
  const std::string begun = std::string("\0\0\1\0\0", 5) + std::string(size_t{20} * 1024, 'b');
  ASSERT_TRUE(first.send(call_with_timeout("1H", begun)));
  ASSERT_TRUE(eventually([&] { return budget->used() == size_t{32} * 1024; }));
  RawClient second(server_->port());
  ASSERT_TRUE(second.send(call_with_timeout("1H", begun)));

  EXPECT_TRUE(eventually([&] { return count("stator_grpc_unfinished_calls_total") == 1; }));
  EXPECT_EQ(budget->used(), size_t{32} * 1024);
  EXPECT_EQ(budget->refusals(), 1U);
}

TEST_F(GrpcServerTest, ANameOfThisMachineIsAnAddressAndAnotherIsNone) {
  GrpcServerOptions options;
  options.host = "localhost";
  serve(std::move(options));
  EXPECT_GT(server_->port(), 0);

  GrpcServerOptions wrong;
  wrong.host = "no such host";
  const auto refused = GrpcServer::listen(std::move(wrong), {}, shards_.shard(0), metrics_);
  ASSERT_FALSE(refused.has_value());
  EXPECT_THAT(refused.error().message(), HasSubstr("no such host"));
}

TEST_F(GrpcServerTest, KnowsItsCallersByTheirCertificates) {
  const TestCertificate certificate;  // its own authority
  GrpcServerOptions options;
  options.tls = std::move(
      ServerTls::load(certificate.cert_path(), certificate.key_path(), certificate.cert_path())
          .value());
  serve(std::move(options));
  call("/pkg.Service/Echo",
       std::move(
           ClientTls::load(certificate.cert_path(), certificate.key_path(), certificate.cert_path())
               .value()));
  say("secret");
  ASSERT_TRUE(eventually([&] { return client_.heard.has("secret"); }));

  EXPECT_THAT(call_at_server_->caller().names, ElementsAre("127.0.0.1", "localhost"));
  EXPECT_THAT(call_at_server_->caller().address, testing::StartsWith("127.0.0.1:"));
}

TEST_F(GrpcServerTest, ClientsWithoutACertificateAreNotHeard) {
  const TestCertificate certificate;
  GrpcServerOptions options;
  options.tls = std::move(
      ServerTls::load(certificate.cert_path(), certificate.key_path(), certificate.cert_path())
          .value());
  serve(std::move(options));
  call();  // in the clear
  ASSERT_TRUE(eventually([&] { return !client_.heard.lines().empty(); }));
  EXPECT_THAT(client_.heard.lines()[0], HasSubstr("end 14"));
  EXPECT_TRUE(eventually([&] { return count("stator_grpc_broken_connections_total") == 1; }));

  const auto missing = ServerTls::load("/nonexistent.pem", certificate.key_path(), "/ca.pem");
  ASSERT_FALSE(missing.has_value());
  EXPECT_THAT(missing.error().message(), HasSubstr("/nonexistent.pem"));
}

}  // namespace
}  // namespace stator::net
