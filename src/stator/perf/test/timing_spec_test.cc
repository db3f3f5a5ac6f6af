// SPDX-License-Identifier: Apache-2.0
#include "stator/perf/timing_spec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "stator/perf/polynomial_timing.h"

namespace stator::perf {
namespace {

TEST(TimingSpec, NamesAModelWithItsDefaults) {
  PassShape shape{.decode_requests = 1, .kv_tokens = 50, .kv_tokens_max = 100};
  EXPECT_DOUBLE_EQ((*make_timing("polynomial"))->decode_ms(shape),
                   PolynomialTiming().decode_ms(shape));
  EXPECT_DOUBLE_EQ((*make_timing("linear"))->decode_ms(shape), LinearTiming().decode_ms(shape));
}

TEST(TimingSpec, ParametersReplaceDefaults) {
  const PassShape shape{.decode_requests = 1, .kv_tokens = 50, .kv_tokens_max = 100};
  EXPECT_DOUBLE_EQ((*make_timing("polynomial:d0=7,d1=2,d2=0"))->decode_ms(shape), 8);
  EXPECT_DOUBLE_EQ(
      (*make_timing("linear:decode_sequence_us=1000", {.step_us = 2000}))->decode_ms(shape), 3);
}

TEST(TimingSpec, RooflinesAndTablesKnowTheModel) {
  const std::string model = STATOR_SOURCE_DIR "/models/demo";
  EXPECT_GT((*make_timing("roofline:gpu=l4,model=" + model))->decode_ms({.decode_requests = 1}), 0);
  // The demo's heads are in no table.
  EXPECT_THAT(make_timing("table:gpu=h200,data=" STATOR_SOURCE_DIR
                          "/src/stator/perf/testdata/h200_sxm,model=" +
                          model)
                  .error()
                  .message(),
              testing::HasSubstr("4/2 heads of 64"));
}

TEST(TimingSpec, MessagesNameWhatIsWrong) {
  const auto message = [](std::string_view spec) {
    return std::string(make_timing(spec).error().message());
  };
  EXPECT_THAT(message("cubic"), testing::HasSubstr("'cubic'"));
  EXPECT_THAT(message("linear:speed=1"), testing::HasSubstr("'speed'; known: step_us"));
  EXPECT_THAT(message("linear:step_us=fast"), testing::HasSubstr("step_us must be a number"));
  EXPECT_THAT(message("polynomial:p0"), testing::HasSubstr("p0 must be a number"));
  EXPECT_THAT(message("linear:step_us=-1"), testing::HasSubstr("-1"));
  EXPECT_THAT(message("roofline:gpu=h100"), testing::HasSubstr("needs model="));
  EXPECT_THAT(message("roofline:gpus=h100"), testing::HasSubstr("one of gpu, kv, model"));
  EXPECT_THAT(message("roofline:gpu=tpu,model=" STATOR_SOURCE_DIR "/models/demo"),
              testing::HasSubstr("'tpu' is not known; known: a100"));
  EXPECT_THAT(message("table:gpu=h100,model=x"), testing::HasSubstr("needs data="));
}

}  // namespace
}  // namespace stator::perf
