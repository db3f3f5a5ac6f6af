// SPDX-License-Identifier: Apache-2.0
#include "stator/continuity/stream_journal.h"

#include <gtest/gtest.h>

namespace stator::continuity {
namespace {

inference::StepOutput make_step(uint64_t choice, uint32_t offset) {
  inference::StepOutput step;
  step.tokens = {TokenId(7), TokenId(9)};
  step.logprobs.resize(2);
  step.logprobs[0].sampled = {TokenId(7), -0.5F};
  step.logprobs[1].sampled = {TokenId(9), -1.5F};
  step.deltas.push_back({.key = {RequestId(choice), Attempt()},
                         .offset = offset,
                         .token_count = 2,
                         .cached_tokens = 16,
                         .finish = inference::FinishReason::kStop,
                         .stopped_by_token = true});
  return step;
}

TEST(StreamJournal, WhatWasKeptComesBack) {
  const StreamJournal::Header header{.request_hash = 42,
                                     .request_id = "r",
                                     .created = WallTime(std::chrono::seconds(1'700'000'000))};
  const std::vector<std::string> parts = {encode(header), encode(make_step(0, 0)),
                                          encode(make_step(3, 5))};

  const auto journal = decode_journal(parts);

  ASSERT_TRUE(journal.has_value()) << journal.error().message();
  EXPECT_EQ(journal->header.request_hash, 42U);
  EXPECT_EQ(journal->header.request_id, "r");
  EXPECT_EQ(journal->header.created, header.created);
  ASSERT_EQ(journal->steps.size(), 2U);
  const inference::StepOutput& step = journal->steps[1];
  const inference::Delta& delta = step.deltas.front();
  EXPECT_EQ(delta.key.request, RequestId(3));
  EXPECT_EQ(delta.offset, 5U);
  EXPECT_EQ(delta.cached_tokens, 16U);
  EXPECT_EQ(delta.finish, inference::FinishReason::kStop);
  EXPECT_TRUE(delta.stopped_by_token);
  EXPECT_EQ(step.tokens_of(delta).back(), TokenId(9));
  EXPECT_EQ(step.logprobs_of(delta).back().sampled.logprob, -1.5F);
}

TEST(StreamJournal, NoiseIsRefused) {
  const std::string header = encode(StreamJournal::Header{});
  inference::StepOutput two = make_step(0, 0);
  two.deltas.push_back(two.deltas.front());
  for (const std::vector<std::string>& parts : {std::vector<std::string>{},
                                                {"\xFF\xFF"},
                                                {header, "\xFF\xFF"},
                                                {header, encode(two)},
                                                {header, encode(inference::StepOutput{})}}) {
    const auto journal = decode_journal(parts);
    ASSERT_FALSE(journal.has_value());
    EXPECT_EQ(journal.error().code(), Code::kCorrupt);
  }
}

}  // namespace
}  // namespace stator::continuity
