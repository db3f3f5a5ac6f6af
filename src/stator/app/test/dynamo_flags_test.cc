// SPDX-License-Identifier: Apache-2.0
#include "stator/app/dynamo_flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <set>

namespace stator::app {
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

/// A variable of the environment while the object lives.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) { setenv(name, value, 1); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;
  ~Variable() { unsetenv(name_); }

 private:
  const char* name_;
};

TEST(DynamoVariables, TheLoadAwarePresetWins) {
  const Variable mode("DYN_ROUTER_MODE", "random");
  EXPECT_EQ(read_dynamo_env("DYN_ROUTER_MODE"), "random");

  const Variable preset("DYN_ROUTER_LOAD_AWARE", "true");
  EXPECT_EQ(read_dynamo_env("DYN_ROUTER_MODE"), "kv");
  EXPECT_EQ(read_dynamo_env("DYN_ROUTER_USE_KV_EVENTS"), "false");
  EXPECT_EQ(read_dynamo_env("DYN_ROUTER_KV_OVERLAP_SCORE_CREDIT"), "0");
}

TEST(DynamoVariables, TheObjectOfConditionalDisaggregationGivesItsMembers) {
  const Variable object("DYN_ROUTER_CONDITIONAL_DISAGG_CONFIG",
                        R"({"eff_isl_threshold":512,"decode_busy_threshold":null})");
  EXPECT_EQ(read_dynamo_env("DYN_ROUTER_CONDITIONAL_DISAGG_POLICY"), "isl_bounding");
  EXPECT_EQ(read_dynamo_env("DYN_ROUTER_CONDITIONAL_DISAGG_EFF_ISL_THRESHOLD"), "512");
  EXPECT_EQ(read_dynamo_env("DYN_ROUTER_CONDITIONAL_DISAGG_DECODE_BUSY_THRESHOLD"), std::nullopt);
}

TEST(DynamoVariables, ConditionalDisaggregationAloneBoundsPrompts) {
  const Variable asked("DYN_ROUTER_CONDITIONAL_DISAGG", "1");
  EXPECT_EQ(read_dynamo_env("DYN_ROUTER_CONDITIONAL_DISAGG_POLICY"), "isl_bounding");
}

TEST(DynamoVariables, AnOlderWeightOfZeroIsNoCredit) {
  const Variable weight("DYN_OVERLAP_SCORE_WEIGHT", "0.0");
  EXPECT_EQ(read_dynamo_env("DYN_ROUTER_PREFILL_LOAD_SCALE"), "0.0");
  EXPECT_EQ(read_dynamo_env("DYN_ROUTER_KV_OVERLAP_SCORE_CREDIT"), "0");
}

TEST(DynamoFlags, LeaveWhatNobodyKnows) {
  EXPECT_THAT(translate({"--no-such-flag", "x", "word"})->words,
              ElementsAre("--no-such-flag", "x", "word"));
}

}  // namespace
}  // namespace stator::app
