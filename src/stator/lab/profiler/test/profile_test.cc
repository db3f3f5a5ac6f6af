// SPDX-License-Identifier: Apache-2.0
#include "stator/lab/profiler/profile.h"

#include <gtest/gtest.h>

#include "stator/json/value.h"

namespace stator::profiler {
namespace {

TEST(Profile, SweepsFollowTheReferencesRanges) {
  const ProfilePlan plan{.max_context = 4096, .max_kv_tokens = 20'000, .concurrency_max = 64};
  const auto lengths = prefill_lengths(plan);
  ASSERT_EQ(lengths.size(), 16U);
  EXPECT_EQ(lengths.front(), 100U);
  EXPECT_EQ(lengths[1] - lengths[0], (4096U - 612) / 16);
  EXPECT_LT(lengths.back(), 4096U - 512);
  for (const auto& [isl, concurrency] : decode_grid(plan)) {
    EXPECT_LE(uint64_t{concurrency} * (isl + plan.decode_tokens), plan.max_kv_tokens);
    EXPECT_LE(concurrency, plan.concurrency_max);
    EXPECT_GE(concurrency, 1U);
  }
}

TEST(Profile, AContextThatIsTooShortLeavesNothing) {
  EXPECT_TRUE(prefill_lengths({.max_context = 512}).empty());
  EXPECT_TRUE(decode_grid({.max_context = 512, .max_kv_tokens = 10'000}).empty());
}

TEST(Profile, FilesAreReadBackAsAStepModel) {
  Profile profile{.plan = {.max_context = 2048, .max_kv_tokens = 10'000, .decode_tokens = 100}};
  for (const uint32_t isl : {100U, 500U, 1000U}) {
    profile.prefill.emplace_back(isl, 5 + 0.02 * isl);
    profile.decode.push_back({isl, 4, 6.0 + isl * 1e-3});
  }
  const auto files = render_files(profile);
  const auto file = [&](std::string_view name) {
    const auto found =
        std::ranges::find(files, name, [](const auto& f) { return std::string_view(f.first); });
    return found == files.end() ? std::string() : found->second;
  };
  const auto data =
      perf::parse_profile(file("prefill_raw_data.json"), file("decode_raw_data.json"));
  ASSERT_TRUE(data) << data.error().message();
  EXPECT_EQ(data->decode_requests, (std::vector<double>{4, 4, 4}));
  EXPECT_EQ(data->prefill_ttft_ms[1], 15);
  EXPECT_TRUE(file("perf_data.npz").starts_with("PK\x03\x04"));
  EXPECT_TRUE(json::parse(file("profile.json")));
}

}  // namespace
}  // namespace stator::profiler
