// SPDX-License-Identifier: Apache-2.0
#include "stator/cli/dynamo_flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

namespace stator::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;

const std::set<std::string, std::less<>> kFlags = {"--host",
                                                   "--port",
                                                   "--router",
                                                   "--router-mode",
                                                   "--router-overlap-credit",
                                                   "--router-prefill-load-scale",
                                                   "--router-use-kv-events",
                                                   "--router-assume-kv-reuse",
                                                   "--router-conditional-disagg-policy",
                                                   "--active-decode-blocks-threshold",
                                                   "--discovery"};
const std::set<std::string, std::less<>> kSwitches = {"--router-use-kv-events",
                                                      "--router-assume-kv-reuse"};

Result<TranslatedFlags> translate(std::vector<const char*> words, bool takes_model = false) {
  return translate_dynamo_flags(
      words, {.has = [](std::string_view flag) { return kFlags.contains(flag); },
              .is_switch = [](std::string_view flag) { return kSwitches.contains(flag); },
              .takes_model = takes_model});
}

TEST(DynamoFlags, BecomeOurs) {
  const auto out = translate({"--http-port", "8000", "--http-host=::", "--router-mode", "kv",
                              "--no-router-kv-events", "--store-kv", "file"});

  ASSERT_TRUE(out);
  EXPECT_THAT(out->words, ElementsAre("--port=8000", "--host=::", "--router-mode", "kv",
                                      "--router-use-kv-events=false", "--discovery=file"));
  EXPECT_THAT(out->ignored, SizeIs(0));
}

TEST(DynamoFlags, WithoutEffectAreTakenOutWithTheirValues) {
  const auto out = translate({"--request-plane", "tcp", "--enable-anthropic-api", "--connector",
                              "a", "b", "--port", "1", "--no-trust-remote-code"});

  ASSERT_TRUE(out);
  EXPECT_THAT(out->words, ElementsAre("--port", "1"));
  EXPECT_THAT(out->ignored, SizeIs(4));
  EXPECT_EQ(out->ignored[0].name, "--request-plane");
}

TEST(DynamoFlags, OfAnotherProcessAreNamedWithOurs) {
  const auto out = translate({"--kv-cache-block-size", "16", "--port", "1"});

  ASSERT_TRUE(out);
  EXPECT_THAT(out->words, ElementsAre("--port", "1"));
  ASSERT_THAT(out->ignored, SizeIs(1));
  EXPECT_THAT(out->ignored[0].advice, HasSubstr("--block-size"));
}

TEST(DynamoFlags, KnowTheModelByItsPlace) {
  EXPECT_THAT(translate({"--model-path", "/m"}, true)->words, ElementsAre("/m"));
  EXPECT_THAT(translate({"--model-path", "/m"})->ignored, SizeIs(1));
}

TEST(DynamoFlags, NoneIsNoThreshold) {
  EXPECT_THAT(translate({"--active-decode-blocks-threshold", "None"})->words,
              ElementsAre("--active-decode-blocks-threshold=-1"));
}

TEST(DynamoFlags, AnOverlapWeightOfZeroIsNoCredit) {
  EXPECT_THAT(translate({"--kv-overlap-score-weight", "0.0"})->words,
              ElementsAre("--router-prefill-load-scale=0.0", "--router-overlap-credit=0"));
}

TEST(DynamoFlags, ReadTheObjectOfConditionalDisaggregation) {
  const auto out = translate({"--router-conditional-disagg", "--router-conditional-disagg-config",
                              R"({"policy":"prefill_load","eff_isl_threshold":512})"});
  ASSERT_TRUE(out);
  EXPECT_THAT(out->words, ElementsAre("--router-conditional-disagg-eff-isl-threshold=512",
                                      "--router-conditional-disagg-policy=prefill_load"));
  EXPECT_FALSE(translate({"--router-conditional-disagg-config", "[1]"}));
}

TEST(DynamoFlags, TheLoadAwarePresetWins) {
  EXPECT_THAT(
      translate({"--router-mode", "random", "--load-aware", "--port", "1", "--no-router-kv-events"})
          ->words,
      ElementsAre("--port", "1", "--router-mode=kv", "--router-overlap-credit=0",
                  "--router-use-kv-events=false", "--router-assume-kv-reuse=false",
                  "--router-track-prefill-tokens=true"));
}

TEST(DynamoFlags, LeaveWhatNobodyKnows) {
  EXPECT_THAT(translate({"--no-such-flag", "x", "word"})->words,
              ElementsAre("--no-such-flag", "x", "word"));
}

}  // namespace
}  // namespace stator::cli
