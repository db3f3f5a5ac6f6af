// SPDX-License-Identifier: Apache-2.0
#include "stator/frontend/request_defaults.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace stator::frontend {
namespace {

using testing::HasSubstr;

TEST(RequestDefaults, FillWhatTheClientLeftOut) {
  const auto defaults = RequestDefaults::parse(
      R"({"model":"m","temperature":0.5,"max_completion_tokens":100,
          "models":{"m":{"temperature":0.25,"top_k":40}}})");
  ASSERT_TRUE(defaults);
  api::GenerateOptions own;
  api::GenerateOptions other;
  api::GenerateOptions given;
  given.sampling.temperature = 1.0F;
  given.max_tokens = 7;

  (*defaults)->apply("m", own);
  (*defaults)->apply("x", other);
  (*defaults)->apply("m", given);

  EXPECT_EQ(own.sampling.temperature, 0.25F);
  EXPECT_EQ(own.sampling.top_k, 40);
  EXPECT_EQ(own.max_tokens, 100U);
  EXPECT_EQ(other.sampling.temperature, 0.5F);
  EXPECT_EQ(other.sampling.top_k, std::nullopt);
  EXPECT_EQ(given.sampling.temperature, 1.0F);
  EXPECT_EQ(given.max_tokens, 7U);
}

TEST(RequestDefaults, NameWhatIsWrong) {
  for (const auto& [text, said] : std::initializer_list<std::pair<const char*, const char*>>{
           {"[]", "object"},
           {R"({"temperature":3})", "temperature"},
           {R"({"top_k":1.5})", "top_k"},
           {R"({"tempreature":1})", "tempreature"},
           {R"({"models":{"m":{"max_tokens":0}}})", "models.m.max_tokens"},
           {R"({"models":{"m":1}})", "models.m"},
           {"{", "not valid JSON"}}) {
    const auto defaults = RequestDefaults::parse(text);
    ASSERT_FALSE(defaults) << text;
    EXPECT_THAT(std::string(defaults.error().message()), HasSubstr(said));
  }
}

}  // namespace
}  // namespace stator::frontend
