// SPDX-License-Identifier: Apache-2.0
#include "stator/kv_events/forward_pass_wire.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>

namespace stator::kv_events {
namespace {

using testing::HasSubstr;

ForwardPassMessage busy() {
  return {.worker = WorkerId(0x1fffffffffffff),
          .incarnation = Incarnation(7),
          .sequence = 3,
          .published_at_ms = 1'700'000'000'000,
          .pass = {.dp_rank = 1,
                   .counter = 42,
                   .wall_seconds = 0.0125,
                   .scheduled = {.prefill_requests = 2,
                                 .prefill_tokens = 512,
                                 .prefill_length_var = 6.25,
                                 .prefill_kv_tokens = 64,
                                 .decode_requests = 3,
                                 .decode_kv_tokens = 900,
                                 .decode_kv_var = 0.5},
                   .queued = {.prefill_requests = 4,
                              .prefill_tokens = 4000,
                              .prefill_length_var = 1.5,
                              .decode_requests = 1,
                              .decode_kv_tokens = 100}}};
}

/// A message in which the only `from` is `to`, of equal length.
std::string altered(const ForwardPassMessage& message, std::string_view from, std::string_view to) {
  std::string bytes = encode(message);
  const size_t at = bytes.find(from);
  EXPECT_NE(at, std::string::npos);
  EXPECT_EQ(from.size(), to.size());
  return bytes.replace(at, from.size(), to);
}

TEST(ForwardPassWire, WhatIsWrittenIsRead) {
  for (const ForwardPassMessage& message :
       {busy(), ForwardPassMessage{.worker = WorkerId(5), .pass = {.counter = 9}}}) {
    const auto read = decode_forward_pass(encode(message));
    ASSERT_TRUE(read.has_value()) << read.error().message();
    EXPECT_EQ(*read, message);
  }
}

TEST(ForwardPassWire, UnknownFieldsAreNoMatter) {
  const auto read =
      decode_forward_pass(altered(busy(), "var_prefill_length", "var_something_else"));
  ASSERT_TRUE(read.has_value()) << read.error().message();
  EXPECT_EQ(read->pass.scheduled.prefill_length_var, 0);
  EXPECT_EQ(read->pass.queued, busy().pass.queued);
}

TEST(ForwardPassWire, AnotherVersionIsNotRead) {
  const auto read = decode_forward_pass(altered(busy(), "version\x01", "version\x02"));
  ASSERT_FALSE(read.has_value());
  EXPECT_EQ(read.error().code(), Code::kUnsupported);
}

TEST(ForwardPassWire, CutBytesAreCorrupt) {
  const std::string bytes = encode(busy());
  for (size_t length = 0; length < bytes.size(); ++length) {
    EXPECT_FALSE(decode_forward_pass(bytes.substr(0, length)).has_value()) << length;
  }
}

TEST(ForwardPassWire, NonsenseIsCorrupt) {
  ForwardPassMessage tokens_of_nobody = busy();
  tokens_of_nobody.pass.queued.decode_requests = 0;
  EXPECT_THAT(decode_forward_pass(encode(tokens_of_nobody)).error().message(),
              HasSubstr("tokens of no request"));
  ForwardPassMessage endless = busy();
  endless.pass.wall_seconds = std::numeric_limits<double>::infinity();
  EXPECT_THAT(decode_forward_pass(encode(endless)).error().message(), HasSubstr("without end"));
  EXPECT_THAT(decode_forward_pass(altered(busy(), "9007199254740991", "9007199254740990"))
                  .error()
                  .message(),
              HasSubstr("another worker"));
  EXPECT_THAT(decode_forward_pass(altered(busy(), "9007199254740991", "worker-number-7x"))
                  .error()
                  .message(),
              HasSubstr("no number"));
}

}  // namespace
}  // namespace stator::kv_events
