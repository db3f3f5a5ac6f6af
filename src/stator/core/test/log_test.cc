// SPDX-License-Identifier: Apache-2.0
#include "stator/core/log.h"

#include <gtest/gtest.h>

namespace stator::log {
namespace {

constexpr int64_t kTime = 1'700'000'000'123'456;

TEST(Log, JsonLinesCarryTypedFields) {
  EXPECT_EQ(format_line(Format::kJson, LogLevel::kWarn, "router", "worker \"a\" left\n",
                        {{"worker", 7}, {"reason", "timed out"}, {"ok", false}}, kTime),
            "{\"time\":\"2023-11-14T22:13:20.123456Z\",\"level\":\"WARN\",\"target\":\"router\","
            "\"message\":\"worker \\\"a\\\" left\\u000a\",\"worker\":7,\"reason\":\"timed out\","
            "\"ok\":false}\n");
}

TEST(Log, HumanLinesQuoteOnlyWhereNeeded) {
  EXPECT_EQ(format_line(Format::kHuman, LogLevel::kInfo, "net", "listening",
                        {{"address", "127.0.0.1:8000"}, {"why", "two words"}}, kTime),
            "2023-11-14T22:13:20.123456Z INFO  net: listening address=127.0.0.1:8000 "
            "why=\"two words\"\n");
}

TEST(Log, ALineIsCutAtItsBound) {
  const std::string line =
      format_line(Format::kJson, LogLevel::kInfo, "x", std::string(100'000, 'a'), {}, kTime);
  EXPECT_LE(line.size(), 16U * 1024 + 8);
  EXPECT_TRUE(line.ends_with("\"truncated\":true}\n"));
}

TEST(Log, TheLongestTargetPrefixDecides) {
  ASSERT_TRUE(configure(Format::kHuman, "warn,router=debug,router.queue=error"));
  EXPECT_FALSE(enabled(LogLevel::kInfo, "net"));
  EXPECT_TRUE(enabled(LogLevel::kDebug, "router"));
  EXPECT_TRUE(enabled(LogLevel::kDebug, "router.cost"));
  EXPECT_FALSE(enabled(LogLevel::kWarn, "router.queue"));
  EXPECT_FALSE(enabled(LogLevel::kDebug, "routers"));
  ASSERT_TRUE(configure(Format::kHuman, "info"));
}

TEST(Log, AFilterThatDoesNotParseIsRefused) {
  EXPECT_FALSE(configure(Format::kHuman, "loud"));
  EXPECT_FALSE(configure(Format::kHuman, "info,router=loud"));
}

}  // namespace
}  // namespace stator::log
