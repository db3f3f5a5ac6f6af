// SPDX-License-Identifier: Apache-2.0
#include "stator/engine/adapters/adapter_service.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <map>
#include <optional>
#include <string>

#include "stator/core/mutex.h"
#include "stator/engine/adapters/silence.h"
#include "stator/engine/adapters/test/recorded.h"
#include "stator/net/test/http_server_fixture.h"

namespace stator::engine::adapters {
namespace {

using std::chrono::milliseconds;
using testing::ElementsAre;

/// Waits for steps; the engine's thread fills it.
class Sink final : public EngineSink {
 public:
  void on_step(inference::StepOutput output) noexcept override {
    const MutexLock lock(mutex_);
    for (const inference::Delta& delta : output.deltas) {
      const auto tokens = output.tokens_of(delta);
      EXPECT_EQ(delta.offset, first_offset + tokens_.size());
      tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
      if (delta.finish != inference::FinishReason::kNone) {
        finish_ = delta;
      }
    }
    for (inference::Failure& failure : output.failures) {
      failure_ = failure.error.code();
    }
    changed_.notify_all();
  }

  /// The end of the request: its last delta, or nothing if it failed.
  std::optional<inference::Delta> wait_for_end() {
    MutexLock lock(mutex_);
    while (!finish_ && !failure_) {
      changed_.wait(lock);
    }
    return finish_;
  }
  std::vector<TokenId> wait_for_tokens(size_t count) {
    MutexLock lock(mutex_);
    while (tokens_.size() < count) {
      changed_.wait(lock);
    }
    return tokens_;
  }
  /// What comes next is another request's.
  void forget() {
    const MutexLock lock(mutex_);
    tokens_.clear();
  }
  std::optional<Code> failure() {
    const MutexLock lock(mutex_);
    return failure_;
  }
  bool ended() {
    const MutexLock lock(mutex_);
    return finish_ || failure_;
  }

  size_t first_offset = 0;

 private:
  Mutex mutex_;
  std::condition_variable_any changed_;
  std::vector<TokenId> tokens_;
  std::optional<inference::Delta> finish_;
  std::optional<Code> failure_;
};

/// An adapter in front of a server that replays recorded answers by path.
class AdapterServiceTest : public net::HttpServerTest {
 protected:
  void TearDown() override {
    engine.reset();
    HttpServerTest::TearDown();
  }

  void serve() {
    start([this](net::HttpExchange& exchange) { answer(exchange); });
    config.kind = "vllm";
    config.url = "http://127.0.0.1:" + std::to_string(server->port());
    config.vocab_size = 32'000;
    config.poll_interval = milliseconds(20);
  }
  void connect_engine() {
    auto dialect = make_dialect(config.kind, {});
    ASSERT_TRUE(dialect.has_value());
    auto asked = ask_engine(config, **dialect);
    ASSERT_TRUE(asked.has_value()) << asked.error().message();
    auto made = make_adapter(config, std::move(*asked), std::move(*dialect), clock, metrics);
    ASSERT_TRUE(made.has_value()) << made.error().message();
    engine = std::move(*made);
    ASSERT_TRUE(engine->start());
    session = engine->open_session(sink);
  }

  void answer(net::HttpExchange& exchange) {
    const std::string path(exchange.request().target());
    if (frozen || (metrics_frozen && path == "/metrics")) {
      exchange.set_observer(&ignored);  // no answer, ever
      return;
    }
    health_calls += path == "/health" ? 1 : 0;
    if (path == "/v1/completions") {
      last_body = exchange.request().body();
      ++calls;
      complete(exchange);
    } else if (path == "/metrics") {
      exchange.respond(broken ? 503 : 200, "text/plain", load_testdata("vllm-0.32/metrics.txt"));
    } else if (path == "/kv_event_sources") {
      exchange.respond(404, "application/json", R"({"detail":"Not Found"})");
    } else {
      const Recorded info =
          load_recorded(path == "/version" ? "vllm-0.32/info-version" : "vllm-0.32/info-v1-models");
      exchange.respond(info.status, info.content_type, info.body);
    }
  }
  void complete(net::HttpExchange& exchange) {
    if (status != 200) {
      exchange.respond(status, "application/json", R"({"error":{"message":"no"}})");
      return;
    }
    const Recorded reply = load_recorded("vllm-0.32/completions-stop-token");
    exchange.set_observer(&observer);
    exchange.start_stream(200, reply.content_type);
    // The first event, then the rest unless the test holds it back.
    const size_t first = reply.body.find("\n\n") + 2;
    exchange.write(reply.body.substr(0, first));
    if (!hold) {
      exchange.write(reply.body.substr(first));
      exchange.finish();
    }
  }

  AdapterConfig config;
  std::unique_ptr<AdapterEngine> engine;
  Sink sink;
  SessionId session;
  net::GoneObserver observer;
  net::GoneObserver ignored;
  std::string last_body;
  std::atomic<int> calls = 0;
  std::atomic<int> health_calls = 0;
  std::atomic<int> status = 200;
  std::atomic<bool> hold = false;
  std::atomic<bool> broken = false;
  std::atomic<bool> frozen = false;          // nothing new is answered
  std::atomic<bool> metrics_frozen = false;  // as llama.cpp's while it computes a long prompt
};

TEST_F(AdapterServiceTest, ARequestGoesOutAndItsTokensComeBack) {
  serve();
  connect_engine();
  EXPECT_EQ(engine->info().kind, "vllm");
  EXPECT_EQ(engine->info().block_size, 32U);
  EXPECT_EQ(engine->info().max_model_len, 1024U);
  inference::EngineRequest request = make_request();
  request.stop.stop_token_ids = {124};
  request.generated = 1;
  sink.first_offset = 1;

  ASSERT_TRUE(engine->submit(session, request));
  const auto end = sink.wait_for_end();

  ASSERT_TRUE(end.has_value());
  EXPECT_EQ(end->finish, inference::FinishReason::kStop);
  EXPECT_TRUE(end->stopped_by_token);
  EXPECT_THAT(sink.wait_for_tokens(3), ElementsAre(19281, 27518, 124));
  EXPECT_THAT(last_body, testing::HasSubstr(R"("prompt":[1,14826,28371])"));
  EXPECT_EQ(engine->load().running, 0U);
}

TEST_F(AdapterServiceTest, AContextLengthThatNobodySaysIsAskedFor) {
  auto dialect = make_dialect("vllm", {});
  ASSERT_TRUE(dialect.has_value());

  auto made = make_adapter({.kind = "vllm", .url = "http://127.0.0.1:1"}, EngineFacts(),
                           std::move(*dialect), clock, metrics);

  ASSERT_FALSE(made.has_value());
  EXPECT_EQ(made.error().code(), Code::kInvalidArgument);
  EXPECT_THAT(made.error().message(), testing::HasSubstr("--max-model-len"));
}

TEST_F(AdapterServiceTest, CancelClosesTheConnectionToTheEngine) {
  hold = true;
  serve();
  connect_engine();
  const inference::EngineRequest request = make_request();
  ASSERT_TRUE(engine->submit(session, request));
  sink.wait_for_tokens(1);
  EXPECT_EQ(engine->load().running, 1U);

  engine->cancel(session, request.key);

  EXPECT_TRUE(net::eventually([&] { return observer.count == 1; }));
  EXPECT_FALSE(sink.ended());
  EXPECT_EQ(engine->load().running, 0U);
  Sink again;
  const SessionId other = engine->open_session(again);
  ASSERT_TRUE(engine->submit(other, request)) << "the adapter goes on";
  again.wait_for_tokens(1);
  engine->close_session(other);
  sink.forget();
  EXPECT_TRUE(engine->submit(session, request)) << "the key is free again";
}

TEST_F(AdapterServiceTest, AClosedSessionsRequestsAreAborted) {
  hold = true;
  serve();
  connect_engine();
  ASSERT_TRUE(engine->submit(session, make_request()));
  sink.wait_for_tokens(1);

  engine->close_session(session);

  EXPECT_TRUE(net::eventually([&] { return observer.count == 1; }));
  EXPECT_EQ(engine->submit(session, make_request()).error().code(), Code::kNotFound);
}

TEST_F(AdapterServiceTest, TheEnginesErrorsKeepTheirMeaning) {
  serve();
  connect_engine();
  const std::pair<int, Code> cases[] = {{400, Code::kInvalidArgument},
                                        {404, Code::kNotFound},
                                        {429, Code::kOverloaded},
                                        {500, Code::kInternal},
                                        {503, Code::kOverloaded}};
  for (const auto& [http, code] : cases) {
    status = http;
    Sink own;
    const SessionId other = engine->open_session(own);
    ASSERT_TRUE(engine->submit(other, make_request()));
    EXPECT_EQ(own.wait_for_end(), std::nullopt);
    EXPECT_EQ(own.failure(), code) << http;
    engine->close_session(other);
  }
}

TEST_F(AdapterServiceTest, WhatIsRefusedIsNeverSent) {
  serve();
  connect_engine();
  inference::EngineRequest request = make_request();
  request.tokens.push_back(32'000);

  const Status submitted = engine->submit(session, request);

  ASSERT_FALSE(submitted.has_value());
  EXPECT_EQ(submitted.error().code(), Code::kInvalidArgument);
  EXPECT_EQ(calls, 0);
  EXPECT_TRUE(metric_is("stator_adapter_refused_total{engine=\"engine\"} 1"));
}

TEST_F(AdapterServiceTest, AtMostTheLimitIsInTheEngine) {
  hold = true;
  serve();
  config.inflight_max = 1;
  connect_engine();
  inference::EngineRequest request = make_request();
  ASSERT_TRUE(engine->submit(session, request));
  EXPECT_EQ(engine->submit(session, request).error().code(), Code::kOverloaded);

  engine->cancel(session, request.key);

  EXPECT_TRUE(engine->submit(session, request));
}

TEST_F(AdapterServiceTest, AnEngineThatDiesFailsItsRequestsAndTakesNoMore) {
  hold = true;
  serve();
  connect_engine();
  ASSERT_TRUE(engine->submit(session, make_request()));
  sink.wait_for_tokens(1);

  stop();

  EXPECT_EQ(sink.wait_for_end(), std::nullopt);
  EXPECT_EQ(sink.failure(), Code::kDisconnected) << "another worker may go on";
  EXPECT_TRUE(net::eventually([&] { return !engine->healthy(); }));
  inference::EngineRequest next = make_request();
  next.key.attempt = Attempt(2);
  EXPECT_EQ(engine->submit(session, next).error().code(), Code::kUnavailable);
  EXPECT_TRUE(metric_is("stator_adapter_engine_up{engine=\"engine\"} 0"));
}

TEST_F(AdapterServiceTest, AnEngineThatAnswersAgainIsUsedAgain) {
  serve();
  connect_engine();
  broken = true;
  ASSERT_TRUE(net::eventually([&] { return !engine->healthy(); }));

  broken = false;

  EXPECT_TRUE(net::eventually([&] { return engine->healthy(); }));
  EXPECT_TRUE(engine->submit(session, make_request()));
  EXPECT_TRUE(sink.wait_for_end().has_value());
}

TEST_F(AdapterServiceTest, ASilentEngineIsGivenUp) {
  hold = true;
  serve();
  config.stall_timeout = std::chrono::seconds(1);
  connect_engine();

  ASSERT_TRUE(engine->submit(session, make_request()));

  EXPECT_EQ(sink.wait_for_end(), std::nullopt);
  EXPECT_EQ(sink.failure(), Code::kDisconnected);
}

TEST_F(AdapterServiceTest, AnEngineThatStandsStillLosesItsRequestsUntilItAnswersAgain) {
  hold = true;
  serve();
  config.silence_timeout = milliseconds(800);
  connect_engine();
  ASSERT_TRUE(engine->submit(session, make_request()));
  sink.wait_for_tokens(1);

  frozen = true;

  EXPECT_EQ(sink.wait_for_end(), std::nullopt);
  EXPECT_EQ(sink.failure(), Code::kDisconnected) << "another worker may go on";
  EXPECT_FALSE(engine->healthy());
  EXPECT_TRUE(metric_is("stator_adapter_stalls_total{engine=\"engine\"} 1"));
  frozen = false;
  EXPECT_TRUE(net::eventually([&] { return engine->healthy(); }));
}

TEST_F(AdapterServiceTest, ABusyEngineThatAnswersItsHealthKeepsItsRequests) {
  hold = true;
  serve();
  config.silence_timeout = milliseconds(400);
  connect_engine();
  ASSERT_TRUE(engine->submit(session, make_request()));
  sink.wait_for_tokens(1);

  metrics_frozen = true;

  EXPECT_TRUE(net::eventually([&] { return health_calls >= 12; })) << "each 100 ms after another";
  EXPECT_FALSE(sink.ended());
  EXPECT_TRUE(engine->healthy());
}

TEST(Silence, LastsOnlyWhileAQuestionIsOpenAndNothingComes) {
  using std::chrono::seconds;
  Silence silence;
  TimePoint now{};
  const auto look = [&](bool open) {
    now += seconds(1);
    return silence.lasts(open, now, seconds(6));
  };
  for (int i = 0; i < 60; ++i) {
    EXPECT_FALSE(look(false));
  }
  for (int i = 0; i < 60; ++i) {
    EXPECT_FALSE(look(true));
    if (i % 5 == 0) {
      silence.heard();
    }
  }
  silence.heard();
  for (int i = 0; i < 6; ++i) {
    EXPECT_FALSE(look(true)) << i;
  }
  EXPECT_TRUE(look(true));
  EXPECT_FALSE(look(true)) << "it starts over";
}

TEST(Silence, TimeInWhichNobodyLookedIsNoProof) {
  using std::chrono::seconds;
  Silence silence;
  TimePoint now{};
  EXPECT_FALSE(silence.lasts(true, now, seconds(6)));
  now += seconds(3600);
  EXPECT_FALSE(silence.lasts(true, now, seconds(6)));
  now += seconds(1);
  EXPECT_FALSE(silence.lasts(true, now, seconds(6)));
}

TEST_F(AdapterServiceTest, StopFailsWhatRuns) {
  hold = true;
  serve();
  connect_engine();
  ASSERT_TRUE(engine->submit(session, make_request()));
  sink.wait_for_tokens(1);

  engine->stop();

  EXPECT_EQ(sink.failure(), Code::kDraining);
  EXPECT_EQ(engine->submit(session, make_request()).error().code(), Code::kDraining);
}

TEST_F(AdapterServiceTest, ADeadUrlAndAnotherKindOfServerAreTold) {
  serve();
  auto llamacpp = make_dialect("llamacpp", {});
  const auto wrong = ask_engine(config, **llamacpp);
  const std::string url = config.url;
  stop();
  const auto dead = ask_engine(config, **llamacpp);

  ASSERT_FALSE(wrong.has_value());
  EXPECT_EQ(wrong.error().code(), Code::kInvalidArgument);
  EXPECT_NE(wrong.error().message().find("use --engine vllm"), std::string::npos)
      << wrong.error().message();
  ASSERT_FALSE(dead.has_value());
  EXPECT_EQ(dead.error().code(), Code::kUnavailable);
  EXPECT_EQ(host_of("http://h:8000").value_or(""), "h");
  for (const char* bad : {"h:8000", "ftp://h", "http://", "http://h/v1", ""}) {
    EXPECT_FALSE(host_of(bad).has_value()) << bad;
  }
}

}  // namespace
}  // namespace stator::engine::adapters
