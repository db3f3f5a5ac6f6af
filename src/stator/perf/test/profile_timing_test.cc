// SPDX-License-Identifier: Apache-2.0
#include "stator/perf/profile_timing.h"

#include <gtest/gtest.h>

namespace stator::perf {
namespace {

double truth(double n, double context) {
  return 4 + 0.1 * n + 2e-4 * n * context;
}

ProfileData plane() {
  ProfileData data;
  for (const double isl : {100.0, 500.0, 1000.0, 4000.0}) {
    data.prefill_isl.push_back(isl);
    data.prefill_ttft_ms.push_back(10 + 0.05 * isl);
  }
  for (const double n : {1.0, 8.0, 32.0}) {
    for (const double context : {300.0, 2000.0}) {
      data.decode_requests.push_back(n);
      data.decode_context.push_back(context);
      data.decode_itl_ms.push_back(truth(n, context));
    }
  }
  return data;
}

TEST(ProfileTiming, AFitRecoversThePlaneItsPointsLieOn) {
  const auto fit = fit_profile(plane());
  ASSERT_TRUE(fit) << fit.error().message();
  EXPECT_NEAR(fit->prefill_base_ms, 10, 1e-6);
  EXPECT_NEAR(fit->prefill_token_ms, 0.05, 1e-9);
  EXPECT_NEAR(fit->decode_base_ms, 4, 1e-6);
  EXPECT_NEAR(fit->decode_sequence_ms, 0.1, 1e-7);
  EXPECT_NEAR(fit->decode_context_ms, 2e-4, 1e-9);
  EXPECT_LT(fit->decode_error_percent, 1e-6);
}

TEST(ProfileTiming, IsExactAtPointsAndSaneBetweenAndBeyond) {
  ProfileData data = plane();
  data.prefill_ttft_ms[1] = 40;  // a point off the line
  data.decode_itl_ms[3] = 15;
  const auto timing = *ProfileTiming::create(data);
  PassShape shape;
  shape.add_prompt(0, 500);
  EXPECT_NEAR(timing->prefill_ms(shape), 40, 1e-9);
  PassShape middle, far;
  middle.add_prompt(0, 750);
  EXPECT_NEAR(timing->prefill_ms(middle), (40 + 60) / 2.0, 1e-9);
  far.add_prompt(0, 8000);
  EXPECT_GT(timing->prefill_ms(far), 210);
  shape = {};
  shape.decode_requests = 8;
  shape.context_tokens = 16'000;
  EXPECT_NEAR(timing->decode_ms(shape), 15, 1e-9);
  shape.decode_requests = 64;
  shape.context_tokens = 64 * 4000;
  EXPECT_NEAR(timing->decode_ms(shape) / truth(64, 4000), 1, 0.3);
  EXPECT_EQ(timing->decode_ms({}), 0);
}

TEST(ProfileTiming, ReadsTheReferencesKeysAndNamesWhatIsMissing) {
  const std::string prefill =
      R"({"prefill_isl":[100,500,1000],"prefill_ttft":[15,35,60],"prefill_thpt_per_gpu":[1,2,3]})";
  const std::string decode =
      R"({"x_kv_usage":[0.01,0.1,0.5],"y_context_length":[300,300,2000],"z_itl":[4,6,15],"z_thpt_per_gpu":[1,2,3],"max_kv_tokens":[30000]})";
  const auto data = parse_profile(prefill, decode);
  ASSERT_TRUE(data) << data.error().message();
  EXPECT_EQ(data->decode_requests, (std::vector<double>{1, 10, 8}));
  const auto missing = parse_profile(R"({"prefill_isl":[1]})", decode);
  ASSERT_FALSE(missing);
  EXPECT_NE(missing.error().message().find("prefill_ttft"), std::string::npos);
  EXPECT_FALSE(parse_profile("{", decode));
  EXPECT_FALSE(parse_profile(prefill, R"({"x_kv_usage":["a"]})"));
  EXPECT_FALSE(ProfileTiming::create({.prefill_isl = {1}, .prefill_ttft_ms = {1}}));
}

}  // namespace
}  // namespace stator::perf
