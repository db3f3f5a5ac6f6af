// SPDX-License-Identifier: Apache-2.0
// The server's half of gRPC against our client's half and against a bare HTTP/2 client in memory.
#include "stator/net/detail/grpc_server_streams.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "stator/net/detail/grpc_client_streams.h"

namespace stator::net::detail {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using Kind = GrpcArrival::Kind;

constexpr size_t kMessageMax = 3'000'000;
constexpr int32_t kFirst = 1;  // HTTP/2's number of a client's first stream

class Recorder final : public GrpcCallListener {
 public:
  void on_message(std::string_view message) override { messages.emplace_back(message); }
  void on_end(GrpcOutcome outcome) override { ends.push_back(std::move(outcome)); }
  std::vector<std::string> messages;
  std::vector<GrpcOutcome> ends;
};

/// What arrived, in words.
std::vector<std::string> words(const std::vector<GrpcArrival>& arrivals) {
  std::vector<std::string> out;
  for (const GrpcArrival& arrival : arrivals) {
    switch (arrival.kind) {
      case Kind::kCall:
        out.push_back("call " + arrival.bytes);
        break;
      case Kind::kMessage:
        out.push_back("message " + arrival.bytes);
        break;
      case Kind::kHalfClosed:
        out.emplace_back("half closed");
        break;
      case Kind::kGone:
        out.emplace_back("gone");
        break;
    }
  }
  return out;
}

class GrpcServerStreamsTest : public testing::Test {
 protected:
  std::vector<std::string> client_to_server() {
    OutputBuffer out;
    client_.append_output(out);
    EXPECT_TRUE(server_.receive(out.front()));
    return words(server_.take_arrivals());
  }
  void server_to_client() {
    OutputBuffer out;
    server_.append_output(out);
    client_.receive(out.front());
  }

  Recorder heard_;
  GrpcClientStreams client_{"worker:9100", false};
  const int32_t call_ = client_.begin({"/pkg.Service/Talk", kMessageMax}, heard_);
  GrpcServerStreams server_{{.message_bytes_max = kMessageMax, .streams_max = 4}};
};

TEST_F(GrpcServerStreamsTest, HearsACallAndAnswersIt) {
  client_.send(call_, "first");
  client_.send(call_, "");
  EXPECT_THAT(client_to_server(),
              ElementsAre("call /pkg.Service/Talk", "message first", "message "));

  server_.send(kFirst, "one");
  server_.send(kFirst, "two");
  EXPECT_EQ(server_.unsent_bytes(kFirst), 16U);
  server_to_client();
  EXPECT_EQ(server_.unsent_bytes(kFirst), 0U);
  server_.send(kFirst, "three");  // after nghttp2 ran dry
  server_to_client();
  EXPECT_THAT(heard_.messages, ElementsAre("one", "two", "three"));
  EXPECT_THAT(heard_.ends, IsEmpty());

  server_.finish(kFirst, {9, "this is worker 7, not 8 — 100%\n"});
  server_.send(kFirst, "too late");
  server_.finish(kFirst, {0, ""});
  server_to_client();
  EXPECT_EQ(heard_.messages.size(), 3U);
  ASSERT_EQ(heard_.ends.size(), 1U);
  EXPECT_EQ(heard_.ends[0].status, 9);
  EXPECT_EQ(heard_.ends[0].message, "this is worker 7, not 8 — 100%\n");
  EXPECT_THAT(words(server_.take_arrivals()), ElementsAre("gone"));
}

TEST_F(GrpcServerStreamsTest, AStatusAloneIsAnAnswer) {
  client_to_server();
  server_.finish(kFirst, {12, "not here"});
  server_to_client();

  ASSERT_EQ(heard_.ends.size(), 1U);
  EXPECT_EQ(heard_.ends[0].status, 12);
  EXPECT_EQ(heard_.ends[0].message, "not here");
  EXPECT_THAT(words(server_.take_arrivals()), ElementsAre("gone"));
}

TEST_F(GrpcServerStreamsTest, TheStatusComesAfterMessagesThatTheClientsWindowHolds) {
  client_to_server();
  server_.send(kFirst, std::string(80'000, 'x'));  // the client's settings allow more than that …
  server_.send(kFirst, std::string(2'900'000, 'y'));
  server_.send(kFirst, std::string(2'900'000, 'z'));  // … but not this
  server_.finish(kFirst, {0, ""});
  OutputBuffer out;
  server_.append_output(out);
  EXPECT_GT(server_.unsent_bytes(kFirst), 1'000'000U);
  EXPECT_FALSE(server_.has_arrivals());
  client_.receive(out.front());
  EXPECT_THAT(heard_.ends, IsEmpty());

  client_to_server();  // its window updates
  server_to_client();
  EXPECT_EQ(heard_.messages.size(), 3U);
  EXPECT_EQ(heard_.ends.size(), 1U);
}

TEST_F(GrpcServerStreamsTest, HearsTheSameHoweverTheBytesAreCut) {
  const std::string long_message(20'000, 'l');
  for (const std::string& message : {std::string("one"), std::string(), long_message}) {
    client_.send(call_, message);
  }
  OutputBuffer out;
  client_.append_output(out);
  const std::string bytes(out.front());

  for (const size_t piece : {size_t{1}, size_t{3}, size_t{7}, size_t{1000}, bytes.size()}) {
    GrpcServerStreams server({.message_bytes_max = kMessageMax, .streams_max = 4});
    for (size_t at = 0; at < bytes.size(); at += piece) {
      ASSERT_TRUE(server.receive(std::string_view(bytes).substr(at, piece)));
    }
    EXPECT_THAT(words(server.take_arrivals()), ElementsAre("call /pkg.Service/Talk", "message one",
                                                           "message ", "message " + long_message))
        << piece;
  }
}

TEST_F(GrpcServerStreamsTest, ACancelledCallIsGone) {
  client_to_server();
  server_.send(kFirst, "one");
  server_to_client();
  client_.cancel(call_);
  EXPECT_THAT(client_to_server(), ElementsAre("gone"));

  server_.send(kFirst, "to nobody");
  server_.finish(kFirst, {0, ""});
  EXPECT_EQ(server_.unsent_bytes(kFirst), 0U);
}

TEST_F(GrpcServerStreamsTest, AMessageBeyondTheBoundEndsTheCall) {
  client_.send(call_, std::string(kMessageMax + 1, 'a'));
  EXPECT_THAT(client_to_server(), ElementsAre("call /pkg.Service/Talk"));
  server_to_client();

  ASSERT_EQ(heard_.ends.size(), 1U);
  EXPECT_EQ(heard_.ends[0].status, 8);
  EXPECT_THAT(heard_.ends[0].message, HasSubstr("3000001 bytes"));
}

TEST_F(GrpcServerStreamsTest, AHeldCallWaitsAndItsClientIsStoppedByTheWindow) {
  client_to_server();
  server_to_client();
  server_.hold(kFirst);
  client_.send(call_, "held");
  client_.send(call_, std::string(2'000'000, 'h'));
  EXPECT_THAT(client_to_server(), IsEmpty());
  server_to_client();
  client_to_server();
  EXPECT_EQ(client_.unsent_bytes(call_),
            2'000'000U + 14U - size_t{GrpcServerStreams::kStreamWindowBytes})
      << "R2";

  server_.go_on(kFirst);
  EXPECT_THAT(words(server_.take_arrivals()), ElementsAre("message held"));
  server_to_client();
  const auto rest = client_to_server();
  ASSERT_EQ(rest.size(), 1U);
  EXPECT_EQ(rest[0].size(), 2'000'000U + std::string_view("message ").size());
}

TEST_F(GrpcServerStreamsTest, GoesAwayWhenItsCallsHaveEnded) {
  client_to_server();
  server_to_client();
  server_.go_away();
  server_.send(kFirst, "last");
  server_to_client();
  EXPECT_FALSE(server_.given_up());
  EXPECT_THAT(heard_.messages, ElementsAre("last"));

  server_.finish(kFirst, {14, "shutting down"});
  server_to_client();
  EXPECT_EQ(heard_.ends.size(), 1U);
  EXPECT_TRUE(server_.given_up());
}

TEST_F(GrpcServerStreamsTest, BytesThatAreNotHttp2AreRefused) {
  EXPECT_FALSE(server_.receive("GET / HTTP/1.1\r\nHost: worker\r\n\r\n"));
}

/// An HTTP/2 client that can say what ours never would.
class BareClient {
 public:
  BareClient() {
    nghttp2_session_callbacks* callbacks = nullptr;
    nghttp2_session_callbacks_new(&callbacks);
    nghttp2_session_callbacks_set_on_header_callback(
        callbacks,
        [](nghttp2_session*, const nghttp2_frame* frame, const uint8_t* name, size_t name_size,
           const uint8_t* value, size_t value_size, uint8_t, void* user) {
          static_cast<BareClient*>(user)
              ->headers[frame->hd.stream_id][{reinterpret_cast<const char*>(name), name_size}] = {
              reinterpret_cast<const char*>(value), value_size};
          return 0;
        });
    nghttp2_session_client_new(&session_, callbacks, this);
    nghttp2_session_callbacks_del(callbacks);
    nghttp2_submit_settings(session_, NGHTTP2_FLAG_NONE, nullptr, 0);
  }
  BareClient(const BareClient&) = delete;
  BareClient& operator=(const BareClient&) = delete;
  ~BareClient() { nghttp2_session_del(session_); }

  /// A call that says `body` and half-closes.
  int32_t ask(const std::string& path, std::string body, const char* content_type,
              const char* timeout = nullptr) {
    body_ = std::move(body);
    std::vector<nghttp2_nv> fields{
        http2_field(":method", "POST"), http2_field(":scheme", "http"),
        http2_field(":path", path),     http2_field(":authority", "worker"),
        http2_field("te", "trailers"),  http2_field("content-type", content_type)};
    if (timeout != nullptr) {
      fields.push_back(http2_field("grpc-timeout", timeout));
    }
    nghttp2_data_provider provider{};
    provider.read_callback = [](nghttp2_session*, int32_t, uint8_t* to, size_t size,
                                uint32_t* flags, nghttp2_data_source*, void* user) -> ssize_t {
      auto& body_left = static_cast<BareClient*>(user)->body_;
      const size_t count = body_left.copy(reinterpret_cast<char*>(to), size);
      body_left.erase(0, count);
      if (body_left.empty()) {
        *flags |= NGHTTP2_DATA_FLAG_EOF;
      }
      return static_cast<ssize_t>(count);
    };
    return nghttp2_submit_request(session_, nullptr, fields.data(), fields.size(), &provider,
                                  nullptr);
  }
  std::vector<GrpcArrival> tell(GrpcServerStreams& server) {
    OutputBuffer out;
    append_http2_output(session_, out);
    EXPECT_TRUE(server.receive(out.front()));
    return server.take_arrivals();
  }
  void hear(GrpcServerStreams& server) {
    OutputBuffer out;
    server.append_output(out);
    ASSERT_GE(nghttp2_session_mem_recv(
                  session_, reinterpret_cast<const uint8_t*>(out.front().data()), out.size()),
              0);
  }

  std::map<int32_t, std::map<std::string, std::string>> headers;

 private:
  nghttp2_session* session_ = nullptr;
  std::string body_;
};

TEST(GrpcServerStreams, HearsTheEndOfWhatAClientHasToSayAndHowLongItWaits) {
  GrpcServerStreams server({.message_bytes_max = 100, .streams_max = 4});
  BareClient client;
  const int32_t stream =
      client.ask("/p", std::string("\0\0\0\0\2hi", 7), "application/grpc+proto", "1500m");
  const auto arrivals = client.tell(server);

  EXPECT_THAT(words(arrivals), ElementsAre("call /p", "message hi", "half closed"));
  EXPECT_EQ(arrivals[0].timeout, std::chrono::milliseconds(1500));
  server.send(stream, "answer");
  server.finish(stream, {0, ""});
  client.hear(server);
  EXPECT_EQ(client.headers[stream]["grpc-status"], "0");
  EXPECT_THAT(words(server.take_arrivals()), ElementsAre("gone"));
}

/// The beginning of a message of 80 bytes.
std::string begun(size_t bytes) {
  return std::string("\0\0\0\0\x50", 5) + std::string(bytes, 'b');
}

TEST(GrpcServerStreams, UnfinishedMessagesBeyondTheBudgetEndTheirCall) {
  GrpcServerStreams server(
      {.message_bytes_max = 100, .streams_max = 4, .unfinished_bytes_max = 120});
  BareClient client;
  client.ask("/p", begun(70), "application/grpc");
  client.tell(server);
  EXPECT_EQ(server.unfinished_bytes(), 75U);
  const int32_t second = client.ask("/p", begun(60), "application/grpc");
  client.tell(server);
  client.hear(server);

  EXPECT_EQ(client.headers[second]["grpc-status"], "8");
  EXPECT_EQ(server.unfinished_bytes(), 75U);
  EXPECT_EQ(server.ended_calls(), 1U);
}

TEST(GrpcServerStreams, AWholeMessageGivesItsBytesBack) {
  GrpcServerStreams server({.message_bytes_max = 100, .streams_max = 4});
  BareClient client;
  client.ask("/p", begun(80) + begun(10), "application/grpc");

  EXPECT_THAT(words(client.tell(server)),
              ElementsAre("call /p", "message " + std::string(80, 'b'), "half closed"));
  EXPECT_EQ(server.unfinished_bytes(), 15U);
}

TEST(GrpcServerStreams, AMessageThatIsStillUnfinishedAtTheSecondLookEndsItsCall) {
  GrpcServerStreams server({.message_bytes_max = 100, .streams_max = 4});
  BareClient client;
  const int32_t stream = client.ask("/p", begun(10), "application/grpc");
  client.tell(server);

  EXPECT_TRUE(server.end_stale());
  client.hear(server);
  EXPECT_TRUE(client.headers[stream].empty());
  EXPECT_FALSE(server.end_stale());
  client.hear(server);
  EXPECT_EQ(client.headers[stream]["grpc-status"], "4");
  EXPECT_EQ(server.unfinished_bytes(), 0U);
}

TEST(GrpcServerStreams, WhatAHeldCallsClientSendsIsCountedToo) {
  GrpcServerStreams server(
      {.message_bytes_max = 100, .streams_max = 4, .unfinished_bytes_max = 50});
  BareClient client;
  const int32_t first = client.ask("/p", begun(10), "application/grpc");
  client.tell(server);
  server.hold(first);
  EXPECT_EQ(server.unfinished_bytes(), 15U);
  EXPECT_FALSE(server.end_stale()) << "it is we who wait";
}

TEST(GrpcServerStreams, ACompressedMessageIsNotImplemented) {
  GrpcServerStreams server({.message_bytes_max = 100, .streams_max = 4});
  BareClient client;
  const int32_t stream = client.ask("/p", std::string("\1\0\0\0\2hi", 7), "application/grpc");
  EXPECT_THAT(words(client.tell(server)), ElementsAre("call /p"));
  client.hear(server);

  EXPECT_EQ(client.headers[stream]["grpc-status"], "12");
}

TEST(GrpcServerStreams, WhoDoesNotSpeakGrpcGetsAnHttpStatus) {
  GrpcServerStreams server({.message_bytes_max = 100, .streams_max = 4});
  BareClient client;
  const int32_t stream = client.ask("/p", "{}", "application/json");
  EXPECT_THAT(words(client.tell(server)), IsEmpty());
  client.hear(server);

  EXPECT_EQ(client.headers[stream][":status"], "415");
  EXPECT_THAT(words(server.take_arrivals()), IsEmpty()) << "it was no call";
}

TEST(GrpcServerStreams, TakesNoMoreCallsAtOnceThanItSaid) {
  GrpcServerStreams server({.message_bytes_max = 100, .streams_max = 2});
  BareClient client;
  for (int i = 0; i < 5; ++i) {
    client.ask("/p", "", "application/grpc");
  }
  size_t calls = 0;
  for (const GrpcArrival& arrival : client.tell(server)) {
    calls += arrival.kind == Kind::kCall ? 1 : 0;
  }
  EXPECT_LE(calls, 2U);
}

TEST(GrpcServerStreams, TwoCallsDoNotMix) {
  GrpcServerStreams server({.message_bytes_max = 100, .streams_max = 4});
  BareClient client;
  const int32_t first = client.ask("/a", std::string("\0\0\0\0\1a", 6), "application/grpc");
  client.tell(server);
  const int32_t second = client.ask("/b", std::string("\0\0\0\0\1b", 6), "application/grpc");
  client.tell(server);
  server.finish(second, {5, "b"});
  server.finish(first, {0, ""});
  client.hear(server);

  EXPECT_EQ(client.headers[first]["grpc-status"], "0");
  EXPECT_EQ(client.headers[second]["grpc-status"], "5");
  EXPECT_EQ(client.headers[second]["grpc-message"], "b");
}

TEST(GrpcCodec, ReadsTimeouts) {
  EXPECT_EQ(parse_grpc_timeout("2H"), std::chrono::hours(2));
  EXPECT_EQ(parse_grpc_timeout("3M"), std::chrono::minutes(3));
  EXPECT_EQ(parse_grpc_timeout("99999999S"), std::chrono::seconds(99'999'999));
  EXPECT_EQ(parse_grpc_timeout("7u"), std::chrono::microseconds(7));
  EXPECT_EQ(parse_grpc_timeout("0n"), std::chrono::nanoseconds(0));
  for (const char* wrong : {"", "S", "5", "-1S", "999999999S", "1x", "1 S"}) {
    EXPECT_EQ(parse_grpc_timeout(wrong), std::nullopt) << wrong;
  }
}

}  // namespace
}  // namespace stator::net::detail
