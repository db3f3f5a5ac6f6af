// SPDX-License-Identifier: Apache-2.0
#include "stator/net/detail/output_buffer.h"

#include <gtest/gtest.h>

#include <string>

#include "stator/core/random.h"

namespace stator::net::detail {
namespace {

TEST(OutputBuffer, JoinsAppendedDataIntoOneChunk) {
  OutputBuffer output;
  output.append_raw("head\r\n");
  output.append_chunk_data("abc");
  output.append_chunk_data("");
  output.append_chunk_data("defghijklmnop");
  output.seal();
  output.seal();

  EXPECT_EQ(output.front(), "head\r\n10\r\nabcdefghijklmnop\r\n");
}

TEST(OutputBuffer, RawBytesAndTheLastChunkSealAnOpenChunk) {
  OutputBuffer output;
  output.append_chunk_data("a");
  output.append_last_chunk();

  EXPECT_EQ(output.front(), "1\r\na\r\n0\r\n\r\n");
}

TEST(OutputBuffer, NothingAppendedIsNoChunk) {
  OutputBuffer output;
  output.append_chunk_data("");
  output.seal();
  EXPECT_TRUE(output.empty());
}

TEST(OutputBuffer, ANewChunkMayOpenWhileAnOldOneIsPartlySent) {
  OutputBuffer output;
  output.append_chunk_data("old");
  output.seal();
  output.consume(4);

  output.append_chunk_data("new");
  EXPECT_EQ(output.size(), 4U + 3U);
  output.seal();

  EXPECT_EQ(output.front(), "ld\r\n3\r\nnew\r\n");
}

TEST(OutputBuffer, AnySequenceOfPartialSendsGivesTheSameBytes) {
  Random random(3);
  OutputBuffer output;
  std::string expected;
  std::string sent;
  for (int i = 0; i < 2000; ++i) {
    const std::string data(random.below(500) + 1, static_cast<char>('a' + i % 26));
    output.append_raw(data);
    expected += data;
    const size_t count = random.below(output.size() + 1);
    sent += output.front().substr(0, count);
    output.consume(count);
  }
  sent += output.front();
  EXPECT_EQ(sent, expected);
}

TEST(OutputBuffer, AWholeBodyIsKeptAsItIsAndLeavesBehindItsHead) {
  OutputBuffer output;
  std::string body(1'000'000, 'b');
  body.reserve(1'100'000);
  const char* const place = body.data();
  output.append_raw("head");
  output.append_body(std::move(body));
  output.append_raw("next");
  EXPECT_EQ(output.size(), 1'000'008U);
  EXPECT_EQ(output.held_bytes(), output.size());

  EXPECT_EQ(output.front(), "head");
  output.consume(4);
  EXPECT_EQ(output.front().data(), place);
  EXPECT_EQ(output.front(), std::string(1'000'000, 'b') + "next");
  output.consume(900'000);
  EXPECT_EQ(output.held_bytes(), 1'000'004U) << "what is sent cannot be given back alone";
  output.consume(100'004);
  EXPECT_TRUE(output.empty());
  EXPECT_LT(output.memory_bytes(), 1000U);
}

TEST(OutputBuffer, ABodyWithoutAHeadAndASmallOneLeaveToo) {
  OutputBuffer output;
  output.append_body(std::string(100'000, 'b'));
  EXPECT_EQ(output.front().size(), 100'000U);
  output.consume(100'000);
  output.append_raw("head ");
  output.append_body("small");
  EXPECT_EQ(output.front(), "head small");
}

TEST(OutputBuffer, KeepsATokensEventOfMemoryWhenDrained) {
  constexpr size_t kKept = 512;
  OutputBuffer output(kKept);
  const auto drain = [&output] {
    output.seal();
    output.consume(output.size());
  };
  output.append_raw(std::string(300, 'h'));
  output.append_chunk_data(std::string(300, 'e'));

  drain();

  EXPECT_LT(output.memory_bytes(), 32U);  // what a string has inside itself
  for (int token = 0; token < 10; ++token) {
    output.append_chunk_data(std::string(230 + static_cast<size_t>(token), 't'));
    drain();
    EXPECT_LE(output.memory_bytes(), kKept);
    EXPECT_GE(output.memory_bytes(), 230U);
  }
}

TEST(OutputBufferDeathTest, RefusesToSendAnOpenChunk) {
  OutputBuffer output;
  output.append_chunk_data("open");
  EXPECT_DEATH(output.consume(1), "O1");
}

}  // namespace
}  // namespace stator::net::detail
