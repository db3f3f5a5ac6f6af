// SPDX-License-Identifier: Apache-2.0
#include "stator/frontend/prompt_encoder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "stator/frontend/frontend.h"
#include "stator/frontend/test/frontend_fixture.h"

namespace stator::frontend {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string long_text() {
  std::string text;
  while (text.size() < 100'000) {
    text += "A block holds sixteen tokens.\nThe router knows where it is.\n";
  }
  return text;
}

class PromptEncoderTest : public ::testing::Test {
 protected:
  void expect_right(const PromptEncoder& encoder, const std::string& text, size_t cached_min) {
    const auto prompt =
        encoder.encode_text(text, *model_, {.hash_seed = blocks::hash_seed("", "blue")});
    ASSERT_TRUE(prompt.has_value());
    EXPECT_EQ(prompt->ids, tokens_of(text));
    EXPECT_EQ(prompt->sequences,
              encoder.hash_ids(prompt->ids, *model_, blocks::hash_seed("", "blue")).sequences);
    EXPECT_GE(prompt->cached_ids, cached_min);
  }

  FrontendConfig config_;
  Metrics metrics_;
  SimClock clock_;
  std::shared_ptr<ServedModel> model_ = demo_model();
};

TEST_F(PromptEncoderTest, ASecondTurnCostsItsDeltaAndIsCounted) {
  const PromptEncoder encoder(config_, clock_, metrics_, nullptr);
  expect_right(encoder, long_text(), 0);
  expect_right(encoder, long_text() + "And then?", tokens_of(long_text()).size() / 2);
  const std::string text = metrics_.render();
  EXPECT_THAT(text, HasSubstr("dynamo_frontend_tokenizer_cache_hits_total 1"));
  EXPECT_THAT(text, HasSubstr("dynamo_frontend_tokenizer_cache_misses_total 1"));
  // Each of the two, and each of the two whose ids were given.
  EXPECT_THAT(text, HasSubstr("dynamo_router_overhead_block_hashing_ms_count 4"));
  EXPECT_THAT(text,
              HasSubstr("dynamo_frontend_tokenizer_cache_cached_tokens_total{model=\"demo\"}"));
  EXPECT_THAT(text,
              HasSubstr("dynamo_frontend_tokenizer_cache_uncached_tokens_total{model=\"demo\"}"));
}

TEST_F(PromptEncoderTest, TheCacheCanBeSwitchedOff) {
  config_.tokenizer_cache = false;
  const PromptEncoder encoder(config_, clock_, metrics_, nullptr);
  expect_right(encoder, long_text(), 0);
  const auto again = encoder.encode_text(long_text(), *model_, {});
  ASSERT_TRUE(again.has_value());
  EXPECT_EQ(again->cached_ids, 0U);
  EXPECT_THAT(metrics_.render(), Not(HasSubstr("tokenizer_cache")));
}

TEST_F(PromptEncoderTest, ThePoolHelpsWithLongTexts) {
  net::ComputePool pool({.threads = 2}, clock_, metrics_);
  const PromptEncoder encoder(config_, clock_, metrics_, &pool);
  for (int i = 0; i < 5; ++i) {
    expect_right(encoder, std::to_string(i) + long_text(), 0);
  }
}

TEST(ResolveComputeThreads, AreTheCoresThatTheShardsLeaveAndAtLeastOne) {
  EXPECT_EQ(resolve_compute_threads(3, 8), 3U);
  EXPECT_EQ(resolve_compute_threads(0, 100'000), 1U);
  EXPECT_EQ(resolve_compute_threads(0, 0), net::usable_cores());
}

}  // namespace
}  // namespace stator::frontend
