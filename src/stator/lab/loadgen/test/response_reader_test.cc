// SPDX-License-Identifier: Apache-2.0
#include "stator/lab/loadgen/response_reader.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "stator/core/random.h"

namespace stator::loadgen {
namespace {

using State = ResponseReader::State;

std::string chunk(std::string_view text) {
  return fmt::format("{:x}\r\n{}\r\n", text.size(), text);
}

std::string event(std::string_view json) {
  return fmt::format("data: {}\n\n", json);
}

std::string delta(std::string_view fields) {
  return event(fmt::format(
      R"({{"id":"c-1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{{"index":0,"delta":{{{}}},"finish_reason":null}}]}})",
      fields));
}

constexpr std::string_view kStreamHead =
    "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n"
    "Transfer-Encoding: chunked\r\n\r\n";
constexpr std::string_view kUsage =
    R"({"id":"c-1","choices":[],"usage":{"prompt_tokens":31,"completion_tokens":7,"total_tokens":38}})";

std::string chat_stream() {
  std::string out(kStreamHead);
  out += chunk(delta(R"("role":"assistant","content":"")"));
  out += chunk(delta(R"("content":"Hel")") + delta(R"("content":"lo \"you\"")"));
  out += chunk(delta(R"("content":"!")"));
  out += chunk(event(R"({"id":"c-1","choices":[{"delta":{},"finish_reason":"stop"}]})"));
  out += chunk(event(kUsage)) + chunk(event("[DONE]")) + "0\r\n\r\n";
  return out;
}

TEST(ResponseReader, CountsTheChunksWithTextAndTheUsage) {
  ResponseReader reader;
  reader.reset();

  EXPECT_EQ(reader.feed(chat_stream()), State::kDone);

  EXPECT_EQ(reader.status(), 200);
  EXPECT_TRUE(reader.is_stream());
  EXPECT_EQ(reader.counts().chunks, 3U);
  EXPECT_TRUE(reader.counts().done);
  EXPECT_TRUE(reader.counts().has_usage);
  EXPECT_EQ(reader.counts().prompt_tokens, 31U);
  EXPECT_EQ(reader.counts().completion_tokens, 7U);
}

TEST(ResponseReader, AnyCuttingGivesTheSame) {
  const std::string stream = chat_stream();
  Random random(11);
  for (int round = 0; round < 300; ++round) {
    ResponseReader reader;
    reader.reset();
    std::string text;
    reader.capture(&text, 1000);
    State state = State::kMore;
    const size_t piece_max = 1 + random.below(round < 100 ? 3 : 200);
    for (size_t at = 0; at < stream.size();) {
      ASSERT_EQ(state, State::kMore);
      const size_t count = std::min(stream.size() - at, 1 + random.below(piece_max));
      state = reader.feed(std::string_view(stream).substr(at, count));
      at += count;
    }
    ASSERT_EQ(state, State::kDone);
    ASSERT_EQ(reader.counts().chunks, 3U);
    ASSERT_EQ(reader.counts().completion_tokens, 7U);
    ASSERT_EQ(text, R"(Hello \"you\"!)");
  }
}

TEST(ResponseReader, CountsReasoningToolCallsAndCompletions) {
  for (
      const std::string_view json :
      {R"({"choices":[{"delta":{"reasoning_content":"hm"}}]})",
       R"({"choices":[{"delta":{"reasoning":"hm"}}]})",
       R"({"choices": [{"delta": {"role": "assistant", "content": "x"}}]})",
       R"({"choices":[{"text":"x","index":0}]})",
       R"({"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\"a\""}}]}}]})",
       R"({"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"name":"f","arguments":""}}]}}]})"}) {
    SseScanner scanner;
    scanner.feed(event(json));
    EXPECT_EQ(scanner.counts().chunks, 1U) << json;
  }
}

TEST(ResponseReader, DoesNotCountEventsWithoutText) {
  for (const std::string_view json :
       {R"({"choices":[{"delta":{"role":"assistant","content":""}}]})",
        R"({"choices":[{"delta":{"content":null}}]})", R"({"choices":[{"text":""}]})",
        R"({"choices":[{"delta":{},"finish_reason":"stop"}]})"}) {
    SseScanner scanner;
    scanner.feed(delta(R"("content":"learn where text stands")"));
    scanner.feed(event(json));
    EXPECT_EQ(scanner.counts().chunks, 1U) << json;
    EXPECT_FALSE(scanner.counts().failed) << json;
  }
}

TEST(ResponseReader, TextThatLooksLikeAFieldIsNoField) {
  SseScanner scanner;
  scanner.feed(delta(R"("content":"\"usage\":{\"completion_tokens\":99} \"error\":{")"));

  EXPECT_EQ(scanner.counts().chunks, 1U);
  EXPECT_FALSE(scanner.counts().has_usage);
  EXPECT_FALSE(scanner.counts().failed);
}

TEST(ResponseReader, ReadsUsageInTheLastEventWithText) {
  SseScanner scanner;
  scanner.feed(delta(R"("content":"a")"));
  scanner.feed(delta(R"("content":"b")"));
  std::string last = delta(R"("content":"c")");
  last.replace(last.rfind("]}"), 2, R"(],"usage":{"prompt_tokens":5,"completion_tokens":3}})");
  scanner.feed(last);

  EXPECT_EQ(scanner.counts().chunks, 3U);
  EXPECT_EQ(scanner.counts().completion_tokens, 3U);
}

TEST(ResponseReader, SeesErrorsInsideAStream) {
  for (const std::string_view bytes :
       {"data: {\"error\":{\"message\":\"out of memory\",\"code\":500}}\n\n",
        "event: error\ndata: out of memory, really\n\n"}) {
    SseScanner scanner;
    scanner.feed(bytes);
    EXPECT_TRUE(scanner.counts().failed) << bytes;
    EXPECT_THAT(scanner.error(), testing::HasSubstr("out of memory"));
  }
}

TEST(ResponseReader, BoundsALineWithoutEnd) {
  SseScanner scanner;
  const std::string endless(100'000, 'x');
  for (int i = 0; i < 12; ++i) {
    scanner.feed(endless);
  }

  EXPECT_TRUE(scanner.counts().failed);
}

TEST(ResponseReader, ReadsAnAnswerThatIsNoStream) {
  const std::string body =
      R"({"id":"x","choices":[{"message":{"role":"assistant","content":"Hi\n"}}],"usage":{"prompt_tokens":4,"completion_tokens":2}})";
  ResponseReader reader;
  reader.reset();
  std::string text;
  reader.capture(&text, 100);

  const State state = reader.feed(fmt::format(
      "HTTP/1.1 200 OK\r\ncontent-length: {}\r\ncontent-type: application/json\r\n\r\n{}",
      body.size(), body));

  EXPECT_EQ(state, State::kDone);
  EXPECT_FALSE(reader.is_stream());
  EXPECT_EQ(reader.counts().completion_tokens, 2U);
  EXPECT_EQ(reader.counts().chunks, 1U);
  EXPECT_EQ(text, "Hi\\n");
}

TEST(ResponseReader, KeepsWhatAFailureSaid) {
  ResponseReader reader;
  reader.reset();

  EXPECT_EQ(reader.feed("HTTP/1.1 429 Too Many Requests\r\nContent-Length: 9\r\n"
                        "Connection: close\r\n\r\nslow down"),
            State::kDone);
  EXPECT_EQ(reader.status(), 429);
  EXPECT_TRUE(reader.must_close());
  EXPECT_EQ(reader.error_text(), "slow down");
}

TEST(ResponseReader, AnAnswerHasTextOrTokenCountsOrChoices) {
  const auto fails = [](std::string_view type, std::string_view body) {
    ResponseReader reader;
    reader.reset();
    EXPECT_EQ(reader.feed(
                  fmt::format("HTTP/1.1 200 OK\r\nContent-Type: {}\r\nContent-Length: {}\r\n\r\n{}",
                              type, body.size(), body)),
              State::kDone);
    EXPECT_EQ(reader.error_text().empty(), !reader.counts().failed && reader.is_stream());
    return reader.counts().failed;
  };

  EXPECT_TRUE(fails("text/html", "<html>log in</html>"));
  EXPECT_TRUE(fails("application/json", R"({"error":{"message":"no"}})"));
  EXPECT_TRUE(fails("text/event-stream", event("[DONE]")));
  EXPECT_TRUE(fails("text/event-stream", ": nothing\n\n"));
  EXPECT_FALSE(fails("application/json", "{\n  \"choices\" :\n []}"));
  EXPECT_FALSE(fails("application/json", R"({"data":[],"usage":{"prompt_tokens":3}})"));
  EXPECT_FALSE(fails("text/event-stream", event(R"({"usage":{"completion_tokens":0}})")));
}

TEST(ResponseReader, NamesWhereARedirectLeads) {
  ResponseReader reader;
  reader.reset();

  EXPECT_EQ(reader.feed("HTTP/1.1 307 X\r\nLocation: http://b/v1\r\nContent-Length: 0\r\n\r\n"),
            State::kDone);
  EXPECT_THAT(reader.error_text(), testing::HasSubstr("redirects to http://b/v1"));
}

TEST(ResponseReader, AStreamThatEndsWithTheConnectionMustHaveSaidSo) {
  const std::string head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n";
  ResponseReader reader;
  reader.reset();
  ASSERT_EQ(reader.feed(head + delta(R"("content":"a")")), State::kMore);
  EXPECT_EQ(reader.on_close(), State::kBroken);

  reader.reset();
  ASSERT_EQ(reader.feed(head + delta(R"("content":"a")") + event("[DONE]")), State::kMore);
  EXPECT_EQ(reader.on_close(), State::kDone);
}

TEST(ResponseReader, IsBrokenByWhatIsNotHttp) {
  for (const std::string_view bytes :
       {"SSH-2.0-OpenSSH\r\n\r\n", "HTTP/1.1 abc\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nabc\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nab"}) {
    ResponseReader reader;
    reader.reset();
    EXPECT_EQ(reader.feed(bytes), State::kBroken) << bytes;
    EXPECT_FALSE(reader.broken_text().empty()) << bytes;
  }
  ResponseReader reader;
  reader.reset();
  EXPECT_EQ(reader.feed(std::string(ResponseReader::kHeadBytesMax + 1, 'x')), State::kBroken);
}

TEST(ResponseReader, PassesOverInterimAnswers) {
  ResponseReader reader;
  reader.reset();

  EXPECT_EQ(reader.feed("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n"),
            State::kDone);
  EXPECT_EQ(reader.status(), 204);
}

TEST(ResponseReader, IsReusedForTheNextAnswer) {
  ResponseReader reader;
  for (int i = 0; i < 3; ++i) {
    reader.reset();
    EXPECT_TRUE(reader.untouched());
    ASSERT_EQ(reader.feed(chat_stream()), State::kDone);
    EXPECT_EQ(reader.counts().chunks, 3U);
  }
}

}  // namespace
}  // namespace stator::loadgen
