// SPDX-License-Identifier: Apache-2.0
#include "stator/epp/usage_reader.h"

#include <gtest/gtest.h>

#include "stator/epp/test/read_usage.h"

namespace stator::epp {
namespace {

constexpr std::string_view kStream =
    "data: {\"choices\":[{\"delta\":{\"content\":\"say \\\"usage\\\": {\"}}],\"usage\":null}\n\n"
    "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":3,"
    "\"prompt_tokens_details\":{\"cached_tokens\":4}}}\r\n\r\n"
    "data: [DONE]\n\n";

TEST(UsageReader, ReadsStreamsHoweverTheyAreSplit) {
  for (size_t piece = 1; piece <= kStream.size(); ++piece) {
    const TokenUsage usage = read_usage("text/event-stream; charset=utf-8", kStream, piece);
    EXPECT_EQ(usage.prompt, 7U) << piece;
    EXPECT_EQ(usage.output, 3U);
    EXPECT_EQ(usage.cached, 4U);
  }
}

TEST(UsageReader, ReadsABodysEnd) {
  const std::string body = "{\"choices\":[{\"text\":\"" + std::string(300'000, 'x') +
                           "\"}], \"usage\" : {\"prompt_tokens\": 1, \"completion_tokens\": 2}}";
  for (const size_t piece : {size_t{1000}, size_t{65'536}, size_t{70'001}, body.size()}) {
    const TokenUsage usage = read_usage("application/json", body, piece);
    EXPECT_EQ(usage.prompt, 1U);
    EXPECT_EQ(usage.output, 2U);
    EXPECT_FALSE(usage.cached);
  }
}

TEST(UsageReader, ReadsBothPartsOfAMessagesStream) {
  const TokenUsage usage = read_usage(
      "text/event-stream",
      "event: message_start\ndata: {\"message\":{\"usage\":{\"input_tokens\":9,\"output_tokens\":1,"
      "\"cache_read_input_tokens\":5}}}\n\nevent: message_delta\ndata: "
      "{\"delta\":{},\"usage\":{\"output_tokens\":12}}\n\n",
      11);
  EXPECT_EQ(usage.prompt, 9U);
  EXPECT_EQ(usage.output, 12U);
  EXPECT_EQ(usage.cached, 5U);
}

TEST(UsageReader, LeavesWhatItCannotRead) {
  for (const std::string_view text :
       {"", "{\"usage\":", "{\"usage\":{\"prompt_tokens\":", "{\"usage\":[]}", "\"usage\":{}",
        "{\"usage\":{\"prompt_tokens\":-1,\"completion_tokens\":\"two\"}}", "data: {\"usage\":"}) {
    for (const std::string_view type : {"application/json", "text/event-stream"}) {
      const TokenUsage usage = read_usage(type, text, 3);
      EXPECT_FALSE(usage.prompt || usage.output || usage.cached) << text;
    }
  }
  const std::string long_line = "data: " + std::string(100'000, ' ') +
                                "{\"usage\":{\"prompt_tokens\":1}}\n" +
                                "data: {\"usage\":{\"prompt_tokens\":2}}\n";
  EXPECT_EQ(read_usage("text/event-stream", long_line, 999).prompt, 2U);
}

}  // namespace
}  // namespace stator::epp
