// SPDX-License-Identifier: Apache-2.0
// The client's half of gRPC calls against an HTTP/2 server in memory.
#include "stator/net/detail/grpc_client_streams.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace stator::net::detail {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class Recorder final : public GrpcCallListener {
 public:
  void on_message(std::string_view message) override { messages.emplace_back(message); }
  void on_end(GrpcOutcome outcome) override { ends.push_back(std::move(outcome)); }
  std::vector<std::string> messages;
  std::vector<GrpcOutcome> ends;
};

std::string framed(std::string_view message) {
  const auto size = static_cast<uint32_t>(message.size());
  std::string out{'\0', static_cast<char>(size >> 24), static_cast<char>(size >> 16),
                  static_cast<char>(size >> 8), static_cast<char>(size)};
  return out.append(message);
}

nghttp2_nv field(const char* name, const char* value) {
  return {reinterpret_cast<uint8_t*>(const_cast<char*>(name)),
          reinterpret_cast<uint8_t*>(const_cast<char*>(value)), std::strlen(name),
          std::strlen(value), NGHTTP2_NV_FLAG_NONE};
}

/// The far end: nghttp2 in its other role.
class Server {
 public:
  Server() {
    nghttp2_session_callbacks* callbacks = nullptr;
    nghttp2_session_callbacks_new(&callbacks);
    nghttp2_session_callbacks_set_on_header_callback(
        callbacks, [](nghttp2_session*, const nghttp2_frame*, const uint8_t* name, size_t name_size,
                      const uint8_t* value, size_t value_size, uint8_t, void* user) {
          auto& self = *static_cast<Server*>(user);
          self.headers[{reinterpret_cast<const char*>(name), name_size}] = {
              reinterpret_cast<const char*>(value), value_size};
          return 0;
        });
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(
        callbacks,
        [](nghttp2_session*, uint8_t, int32_t, const uint8_t* data, size_t size, void* user) {
          static_cast<Server*>(user)->body.append(reinterpret_cast<const char*>(data), size);
          return 0;
        });
    nghttp2_session_callbacks_set_on_frame_recv_callback(
        callbacks, [](nghttp2_session*, const nghttp2_frame* frame, void* user) {
          if (frame->hd.type == NGHTTP2_RST_STREAM) {
            static_cast<Server*>(user)->reset_with = frame->rst_stream.error_code;
          }
          if (frame->hd.type == NGHTTP2_DATA && (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0) {
            ++static_cast<Server*>(user)->ends;
          }
          if (frame->hd.type == NGHTTP2_PING) {
            ++static_cast<Server*>(user)->pings;
          }
          return 0;
        });
    nghttp2_session_server_new(&session_, callbacks, this);
    nghttp2_session_callbacks_del(callbacks);
    nghttp2_submit_settings(session_, NGHTTP2_FLAG_NONE, nullptr, 0);
  }
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;
  ~Server() { nghttp2_session_del(session_); }

  void hear(std::string_view bytes) {
    ASSERT_EQ(nghttp2_session_mem_recv(session_, reinterpret_cast<const uint8_t*>(bytes.data()),
                                       bytes.size()),
              static_cast<ssize_t>(bytes.size()));
  }
  std::string says() {
    std::string out;
    const uint8_t* bytes = nullptr;
    for (ssize_t size = 0; (size = nghttp2_session_mem_send(session_, &bytes)) > 0;) {
      out.append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(size));
    }
    return out;
  }
  /// Answers with a head, `data`, and the trailers, unless these are empty.
  void answer(std::string data, std::vector<nghttp2_nv> trailers, const char* status = "200",
              const char* content_type = "application/grpc", int32_t to = 1) {
    data_ = std::move(data);
    trailers_ = std::move(trailers);
    const std::array head{field(":status", status), field("content-type", content_type)};
    nghttp2_data_provider provider{};
    provider.source.ptr = this;
    provider.read_callback = [](nghttp2_session* session, int32_t stream, uint8_t* to, size_t size,
                                uint32_t* flags, nghttp2_data_source* source, void*) -> ssize_t {
      auto& self = *static_cast<Server*>(source->ptr);
      const size_t count = std::min(size, self.data_.size());
      std::memcpy(to, self.data_.data(), count);
      self.data_.erase(0, count);
      if (self.data_.empty()) {
        if (self.trailers_.empty()) {
          return count == 0 ? ssize_t{NGHTTP2_ERR_DEFERRED} : static_cast<ssize_t>(count);
        }
        *flags |= NGHTTP2_DATA_FLAG_EOF | NGHTTP2_DATA_FLAG_NO_END_STREAM;
        nghttp2_submit_trailer(session, stream, self.trailers_.data(), self.trailers_.size());
      }
      return static_cast<ssize_t>(count);
    };
    nghttp2_submit_response(session_, to, head.data(), head.size(), &provider);
  }
  void answer_with_trailers_only(const std::vector<nghttp2_nv>& fields) {
    nghttp2_submit_response(session_, 1, fields.data(), fields.size(), nullptr);
  }
  void reset() { nghttp2_submit_rst_stream(session_, NGHTTP2_FLAG_NONE, 1, NGHTTP2_CANCEL); }
  /// Says up to which stream it has begun anything.
  void go_away(int32_t last_stream) {
    nghttp2_submit_goaway(session_, NGHTTP2_FLAG_NONE, last_stream, NGHTTP2_NO_ERROR, nullptr, 0);
  }

  std::map<std::string, std::string> headers;
  std::string body;
  uint32_t reset_with = 0;
  int pings = 0;
  int ends = 0;  // of the client's half

 private:
  nghttp2_session* session_ = nullptr;
  std::string data_;
  std::vector<nghttp2_nv> trailers_;
};

class GrpcClientStreamsTest : public testing::Test {
 protected:
  static constexpr size_t kMessageMax = 100'000;

  void client_to_server() {
    OutputBuffer out;
    streams_.append_output(out);
    server_.hear(out.front());
  }
  void server_to_client() { streams_.receive(server_.says()); }

  Recorder heard_;
  GrpcClientStreams streams_{"worker:9100", false};
  const int32_t id_ = streams_.begin({"/pkg.Service/Talk", kMessageMax}, heard_);
  Server server_;
};

TEST_F(GrpcClientStreamsTest, AsksAsGrpcDoesAndFramesMessages) {
  streams_.send(id_, "first");
  streams_.send(id_, "");
  EXPECT_EQ(streams_.unsent_bytes(id_), 15U);
  client_to_server();
  streams_.send(id_, "second");  // after nghttp2 ran dry
  client_to_server();

  EXPECT_EQ(server_.headers[":path"], "/pkg.Service/Talk");
  EXPECT_EQ(server_.headers[":method"], "POST");
  EXPECT_EQ(server_.headers["te"], "trailers");
  EXPECT_EQ(server_.headers["content-type"], "application/grpc");
  EXPECT_EQ(server_.body, framed("first") + framed("") + framed("second"));
  EXPECT_EQ(streams_.unsent_bytes(id_), 0U);
}

TEST_F(GrpcClientStreamsTest, TheServerHearsThatTheOnlyRequestIsAll) {
  streams_.send(id_, "request");
  streams_.finish_sending(id_);
  client_to_server();
  EXPECT_EQ(server_.body, framed("request"));
  EXPECT_EQ(server_.ends, 1);

  server_.answer(framed("one") + framed("two"), {field("grpc-status", "0")});
  server_to_client();
  EXPECT_THAT(heard_.messages, ElementsAre("one", "two"));
  ASSERT_EQ(heard_.ends.size(), 1U);
  EXPECT_TRUE(heard_.ends[0].ok());
}

TEST_F(GrpcClientStreamsTest, TheEndOfRequestsMayComeAfterTheyHaveLeft) {
  streams_.send(id_, "request");
  client_to_server();
  EXPECT_EQ(server_.ends, 0);
  streams_.finish_sending(id_);
  client_to_server();
  EXPECT_EQ(server_.ends, 1);
}

TEST_F(GrpcClientStreamsTest, KeepsWhatTheServersWindowDoesNotTake) {
  streams_.send(id_, std::string(80'000, 'x'));
  client_to_server();
  EXPECT_EQ(streams_.unsent_bytes(id_), 80'005U - 65'535U) << "HTTP/2's first window";

  server_to_client();  // its settings and window updates
  client_to_server();
  EXPECT_EQ(streams_.unsent_bytes(id_), 0U);
  EXPECT_EQ(server_.body, framed(std::string(80'000, 'x')));
}

TEST_F(GrpcClientStreamsTest, HearsTheSameHoweverTheBytesAreCut) {
  const std::string long_message(20'000, 'l');
  client_to_server();
  server_.answer(framed("one") + framed("") + framed(long_message) + framed("last"),
                 {field("grpc-status", "0")});
  const std::string bytes = server_.says();

  for (const size_t piece : {size_t{1}, size_t{3}, size_t{7}, size_t{1000}, bytes.size()}) {
    Recorder heard;
    GrpcClientStreams stream("worker", false);
    stream.begin({"/p", kMessageMax}, heard);
    OutputBuffer out;
    stream.append_output(out);
    for (size_t at = 0; at < bytes.size(); at += piece) {
      stream.receive(std::string_view(bytes).substr(at, piece));
    }
    EXPECT_THAT(heard.messages, ElementsAre("one", "", long_message, "last")) << piece;
    ASSERT_EQ(heard.ends.size(), 1U) << piece;
    EXPECT_EQ(heard.ends[0].status, 0) << piece;
  }
}

TEST_F(GrpcClientStreamsTest, TellsTheServersStatus) {
  client_to_server();
  server_.answer_with_trailers_only(
      {field(":status", "200"), field("content-type", "application/grpc"),
       field("grpc-status", "9"), field("grpc-message", "this is worker 7%2C not 8 %zz")});
  server_to_client();

  ASSERT_EQ(heard_.ends.size(), 1U);
  EXPECT_EQ(heard_.ends[0].status, 9);
  EXPECT_EQ(heard_.ends[0].message, "this is worker 7, not 8 %zz");
  EXPECT_EQ(streams_.open_calls(), 0U);
}

TEST_F(GrpcClientStreamsTest, AServerOfAnotherKindIsNamedByItsStatus) {
  client_to_server();
  server_.answer("<html>", {field("x", "y")}, "404", "text/html");
  server_to_client();

  EXPECT_THAT(heard_.messages, IsEmpty());
  ASSERT_EQ(heard_.ends.size(), 1U);
  EXPECT_THAT(heard_.ends[0].message, HasSubstr("404"));
}

TEST_F(GrpcClientStreamsTest, AMessageBeyondTheBoundEndsTheCall) {
  client_to_server();
  server_.answer(framed(std::string(kMessageMax, 'a')) + framed(std::string(kMessageMax + 1, 'b')),
                 {});
  server_to_client();

  EXPECT_EQ(heard_.messages.size(), 1U);
  ASSERT_EQ(heard_.ends.size(), 1U);
  EXPECT_THAT(heard_.ends[0].message, HasSubstr("100001 bytes"));
}

TEST_F(GrpcClientStreamsTest, ACompressedMessageEndsTheCall) {
  client_to_server();
  std::string compressed = framed("zzz");
  compressed[0] = 1;
  server_.answer(compressed, {});
  server_to_client();

  EXPECT_THAT(heard_.messages, IsEmpty());
  ASSERT_EQ(heard_.ends.size(), 1U);
  EXPECT_THAT(heard_.ends[0].message, HasSubstr("compressed"));
}

TEST_F(GrpcClientStreamsTest, ABrokenOffCallSaysSo) {
  client_to_server();
  server_.answer(framed("one"), {});
  server_to_client();
  server_.reset();
  server_to_client();

  EXPECT_THAT(heard_.messages, ElementsAre("one"));
  ASSERT_EQ(heard_.ends.size(), 1U);
  EXPECT_EQ(heard_.ends[0].status, 14);
  EXPECT_THAT(heard_.ends[0].message, HasSubstr("CANCEL"));
}

TEST_F(GrpcClientStreamsTest, AServerThatGoesAwayFinishesWhatItHasBegun) {
  client_to_server();
  server_.go_away(1);
  server_to_client();
  EXPECT_THAT(heard_.ends, IsEmpty());
  server_.answer(framed("one"), {field("grpc-status", "0")});
  server_to_client();
  EXPECT_THAT(heard_.messages, ElementsAre("one"));
  EXPECT_EQ(heard_.ends.size(), 1U);
}

TEST_F(GrpcClientStreamsTest, AServerThatGoesAwayBeforeItBeganEndsTheCall) {
  client_to_server();
  server_.go_away(0);
  server_to_client();

  ASSERT_EQ(heard_.ends.size(), 1U);
  EXPECT_EQ(heard_.ends[0].status, 14);
}

TEST_F(GrpcClientStreamsTest, BytesThatAreNotHttp2AreGivenUp) {
  client_to_server();
  EXPECT_FALSE(streams_.given_up());
  streams_.receive("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
  OutputBuffer out;
  streams_.append_output(out);

  EXPECT_FALSE(out.empty()) << "the server is told why";
  EXPECT_TRUE(streams_.given_up());
}

TEST_F(GrpcClientStreamsTest, AsksForASignOfLife) {
  client_to_server();
  streams_.ping();
  client_to_server();
  EXPECT_EQ(server_.pings, 1);
}

TEST_F(GrpcClientStreamsTest, CancelTellsTheServerAndNobodyElse) {
  client_to_server();
  streams_.cancel(id_);
  client_to_server();
  EXPECT_EQ(server_.reset_with, NGHTTP2_CANCEL);
  server_to_client();
  EXPECT_THAT(heard_.ends, IsEmpty());
}

TEST_F(GrpcClientStreamsTest, CallsShareTheConnectionAndTellWhatTheyAreFor) {
  streams_.finish_sending(id_);
  Recorder second;
  const int32_t other = streams_.begin({.path = "/pkg.Service/Ask",
                                        .message_bytes_max = kMessageMax,
                                        .metadata = {{"token", "secret"}, {"hasleader", "true"}},
                                        .timeout = std::chrono::milliseconds(1500)},
                                       second);
  EXPECT_EQ(streams_.open_calls(), 2U);
  client_to_server();
  EXPECT_EQ(server_.headers[":path"], "/pkg.Service/Ask");
  EXPECT_EQ(server_.headers["token"], "secret");
  EXPECT_EQ(server_.headers["hasleader"], "true");
  EXPECT_EQ(parse_grpc_timeout(server_.headers["grpc-timeout"]), std::chrono::milliseconds(1500));

  server_.answer(framed("for the second"), {field("grpc-status", "0")}, "200", "application/grpc",
                 other);
  server_to_client();
  EXPECT_THAT(second.messages, ElementsAre("for the second"));
  ASSERT_EQ(second.ends.size(), 1U);
  EXPECT_THAT(heard_.ends, IsEmpty());
  EXPECT_EQ(streams_.open_calls(), 1U);
  client_to_server();  // the second's half was open still: now it is off
  EXPECT_EQ(streams_.streams(), 1U);
}

TEST_F(GrpcClientStreamsTest, AConnectionThatIsGoneEndsAllCalls) {
  Recorder second;
  streams_.begin({"/p", kMessageMax}, second);
  client_to_server();
  streams_.end_all({14, "gone"});

  ASSERT_EQ(heard_.ends.size(), 1U);
  ASSERT_EQ(second.ends.size(), 1U);
  EXPECT_EQ(second.ends[0].message, "gone");
  EXPECT_EQ(streams_.open_calls(), 0U);
}

TEST_F(GrpcClientStreamsTest, ACallThatNeverLeftIsForgotten) {
  streams_.send(id_, "request");
  streams_.cancel(id_);
  client_to_server();

  EXPECT_EQ(server_.body, "");
  EXPECT_EQ(streams_.streams(), 0U);
}

TEST_F(GrpcClientStreamsTest, NoCallBeginsWhereTheServerGoesAway) {
  client_to_server();
  EXPECT_TRUE(streams_.takes_calls());
  server_.go_away(1);
  server_to_client();

  EXPECT_FALSE(streams_.takes_calls());
  Recorder late;
  EXPECT_EQ(streams_.begin({"/p", kMessageMax}, late), 0);
}

TEST(GrpcTimeout, IsWrittenAsItIsRead) {
  using namespace std::chrono_literals;
  for (const Duration timeout : {Duration(0), Duration(1us), Duration(50ms), Duration(3s),
                                 Duration(1h), Duration(24h * 365)}) {
    EXPECT_EQ(parse_grpc_timeout(format_grpc_timeout(timeout)), timeout);
  }
  EXPECT_EQ(format_grpc_timeout(1ns), "1u") << "rounded up";
  EXPECT_EQ(format_grpc_timeout(-1s), "0u");
}

}  // namespace
}  // namespace stator::net::detail
