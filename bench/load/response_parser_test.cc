// SPDX-License-Identifier: Apache-2.0
#include "response_parser.h"

#include <gtest/gtest.h>

namespace stator::bench {
namespace {

using State = ResponseParser::State;

constexpr std::string_view kChunkedStream =
    "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    "5C\r\n"
    "data: {\"choices\":[{\"delta\":{\"content\":\"\"}}]}\n\n"
    "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n"
    "\r\n"
    "40\r\n"
    "\ndata: {\"choices\":[{\"delta\":{\"content\": \"\\\"b\"}}]}\n\n"
    "data: [DONE]\n"
    "\r\n"
    "0\r\n\r\n";

TEST(ResponseParser, CountsEventsOfAChunkedStreamWhateverTheReads) {
  for (size_t piece = 1; piece <= kChunkedStream.size(); ++piece) {
    ResponseParser parser;
    State state = State::kMore;
    for (size_t at = 0; at < kChunkedStream.size(); at += piece) {
      ASSERT_EQ(state, State::kMore) << "pieces of " << piece;
      state = parser.feed(kChunkedStream.substr(at, piece));
    }

    ASSERT_EQ(state, State::kDone) << "pieces of " << piece;
    EXPECT_EQ(parser.status(), 200);
    EXPECT_EQ(parser.sse().events, 4U);
    EXPECT_EQ(parser.sse().content_events, 2U);
    EXPECT_TRUE(parser.sse().done);
    EXPECT_FALSE(parser.sse().error);
    EXPECT_FALSE(parser.must_close());
  }
}

TEST(ResponseParser, ReadsASizedBodyAndKeepsTheTextOfAnError) {
  ResponseParser parser;

  const State state =
      parser.feed("HTTP/1.1 503 Busy\r\ncontent-length: 4\r\nConnection: close\r\n\r\nbusy");

  EXPECT_EQ(state, State::kDone);
  EXPECT_EQ(parser.status(), 503);
  EXPECT_EQ(parser.error_body(), "busy");
  EXPECT_TRUE(parser.must_close());
}

TEST(ResponseParser, EndsABodyWithoutLengthAtTheClose) {
  ResponseParser parser;

  EXPECT_EQ(parser.feed("HTTP/1.1 200 OK\r\n\r\nabc"), State::kMore);
  EXPECT_EQ(parser.on_close(), State::kDone);
}

TEST(ResponseParser, CallsACutStreamBroken) {
  ResponseParser parser;
  parser.feed(kChunkedStream.substr(0, kChunkedStream.size() - 3));

  EXPECT_EQ(parser.on_close(), State::kBroken);
}

TEST(ResponseParser, SkipsAnInterimAnswer) {
  ResponseParser parser;

  const State state =
      parser.feed("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");

  EXPECT_EQ(state, State::kDone);
  EXPECT_EQ(parser.status(), 200);
}

TEST(ResponseParser, RefusesWhatIsNotHttp) {
  ResponseParser garbage;
  ResponseParser endless_head;
  ResponseParser bad_chunk;

  EXPECT_EQ(garbage.feed("SSH-2.0-OpenSSH\r\n\r\n"), State::kBroken);
  EXPECT_EQ(endless_head.feed(std::string(65 * 1024, 'x')), State::kBroken);
  EXPECT_EQ(bad_chunk.feed("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"),
            State::kBroken);
}

TEST(ResponseParser, IsReusedAfterReset) {
  ResponseParser parser;
  parser.feed(kChunkedStream);

  parser.reset();

  EXPECT_EQ(parser.feed("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"), State::kDone);
  EXPECT_EQ(parser.sse().events, 0U);
}

TEST(SseCounter, SeesErrorEvents) {
  SseCounter named;
  SseCounter object;
  SseCounter text_about_errors;

  named.feed("event: error\n");
  object.feed("data: {\"error\":{\"message\":\"x\"}}\n\n");
  text_about_errors.feed("data: {\"choices\":[{\"delta\":{\"content\":\"\\\"error\\\"\"}}]}\n");

  EXPECT_TRUE(named.counts().error);
  EXPECT_TRUE(object.counts().error);
  EXPECT_FALSE(text_about_errors.counts().error);
}

TEST(SseCounter, CountsCompletionAndReasoningText) {
  SseCounter counter;

  counter.feed("data: {\"choices\":[{\"text\":\"a\"}]}\n\n");
  counter.feed(
      "data: {\"choices\":[{\"delta\":{\"reasoning_content\":\"b\",\"content\":\"\"}}]}\n");

  EXPECT_EQ(counter.counts().content_events, 2U);
}

TEST(SseCounter, DropsALineWithoutEnd) {
  SseCounter counter;

  counter.feed(std::string((1 << 20) + 1, 'x'));

  EXPECT_TRUE(counter.counts().error);
}

}  // namespace
}  // namespace stator::bench
