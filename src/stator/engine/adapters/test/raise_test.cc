// SPDX-License-Identifier: Apache-2.0
#include "stator/engine/adapters/raise.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "stator/engine/adapters/test/recorded.h"

namespace stator::engine::adapters {
namespace {

std::vector<std::string> split(std::string_view bytes, size_t piece) {
  SseReader reader;
  std::vector<std::string> out;
  for (size_t at = 0; at < bytes.size(); at += piece) {
    EXPECT_TRUE(reader.feed(bytes.substr(at, piece)));
    std::string_view payload;
    while (reader.next(payload)) {
      out.emplace_back(payload);
    }
  }
  return out;
}

TEST(SseReader, AnySplitOfTheBytesGivesTheSamePayloads) {
  const std::string stream =
      ": hello\n\ndata: {\"a\":1}\n\nevent: x\r\ndata:{\"b\":2}\r\n\r\ndata: one\ndata: two\n\n"
      "error: {\"code\":500}\n\ndata: [DONE]\n\n";
  const std::vector<std::string> expected = {R"({"a":1})", R"({"b":2})", "one\ntwo",
                                             R"({"error":{"code":500}})", "[DONE]"};
  for (size_t piece = 1; piece <= stream.size(); ++piece) {
    EXPECT_EQ(split(stream, piece), expected) << "pieces of " << piece;
  }
}

TEST(SseReader, AnUnfinishedEventIsNone) {
  EXPECT_TRUE(split("data: {\"a\":1}\n", 4).empty());
}

TEST(SseReader, AnEventWithoutEndIsTooLarge) {
  SseReader reader;
  const std::string piece(1 << 20, 'x');
  Status fed;
  for (size_t i = 0; i <= kEventBytesMax / piece.size() && fed; ++i) {
    fed = reader.feed(piece);
    std::string_view payload;
    EXPECT_FALSE(reader.next(payload));
  }
  ASSERT_FALSE(fed.has_value());
  EXPECT_EQ(fed.error().code(), Code::kTooLarge);
}

TEST(EngineErrors, AreWhatTheClientCanDoAboutThem) {
  const struct {
    int status;
    std::string_view body;
    Code code;
  } cases[] = {
      {400, R"({"error":{"message":"bad"}})", Code::kInvalidArgument},
      {422, R"({"object":"error","message":"bad"})", Code::kInvalidArgument},
      {404, R"({"detail":"Not Found"})", Code::kNotFound},
      {401, R"({"error":"Unauthorized"})", Code::kUnavailable},
      {413, "", Code::kTooLarge},
      {429, "slow down", Code::kOverloaded},
      {500, R"({"error":{"message":"division by zero"}})", Code::kInternal},
      {500, R"({"error":{"message":"EngineCore encountered an issue."}})", Code::kDisconnected},
      {501, R"({"error":{"message":"not here"}})", Code::kUnsupported},
      {503, R"({"error":{"code":503,"message":"Loading model"}})", Code::kOverloaded},
  };
  for (const auto& [status, body, code] : cases) {
    EXPECT_EQ(to_error("vllm", status, body).code(), code) << status << body;
  }
  EXPECT_EQ(to_error("vllm", 400, R"({"error":{"message":"bad"}})").message(),
            "vllm answered 400: bad");
  EXPECT_EQ(error_text(R"({"detail":"Not Found"})"), "Not Found");
  EXPECT_EQ(error_text("<html>"), "<html>");
  EXPECT_LE(error_text(std::string(10'000, 'x')).size(), 600U);
}

TEST(EngineErrors, RecordedOnesKeepTheEnginesWords) {
  EXPECT_EQ(
      to_error("vllm", 400, load_recorded("vllm-0.32/error-token-out-of-range").body).message(),
      "vllm answered 400: Token id 70000 is out of vocabulary");
  EXPECT_EQ(to_error("vllm", 404, load_recorded("vllm-0.32/error-404").body).message(),
            "vllm answered 404: Not Found");
  const Error disabled = to_error("vllm", 403, load_recorded("vllm-0.32/scale-out-disabled").body);
  EXPECT_EQ(disabled.code(), Code::kUnavailable);
}

}  // namespace
}  // namespace stator::engine::adapters
