// SPDX-License-Identifier: Apache-2.0
#include "stator/perf/measured_costs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace stator::perf {
namespace {

using testing::HasSubstr;

const std::string kDatabase = STATOR_SOURCE_DIR "/src/stator/perf/testdata/h200_sxm";

MeasuredSource source() {
  return {.folder = kDatabase, .attention = {.heads = 16, .kv_heads = 8, .head_dim = 128}};
}

SpeedOfLight light(Precision weights = Precision::kBfloat16) {
  return {*find_accelerator("h200"), weights, Precision::kBfloat16};
}

TEST(UtilisationGrid, IsExactAtSamplesBoundedBetweenAndConstantBeyond) {
  UtilisationGrid grid;
  grid.add(1, 1, 0.2);
  grid.add(1, 4, 0.4);
  grid.add(16, 1, 0.6);  // ragged: one sample on this row
  EXPECT_DOUBLE_EQ(grid.at(1, 1), 0.2);
  EXPECT_NEAR(grid.at(1, 2), std::sqrt(0.2 * 0.4), 1e-12);
  EXPECT_NEAR(grid.at(4, 1), std::sqrt(0.2 * 0.6), 1e-12);
  EXPECT_DOUBLE_EQ(grid.at(16, 4), 0.6);
  EXPECT_DOUBLE_EQ(grid.at(1000, 1000), 0.6);
  EXPECT_DOUBLE_EQ(grid.at(0.1, 0.1), 0.2);
}

TEST(MeasuredCosts, GivesWhatWasMeasured) {
  const auto costs = *MeasuredCosts::read(source(), light());
  EXPECT_NEAR(costs->gemm_ms(16, 4096, 4096), light().gemm_ms(16, 4096, 4096) / 0.5, 1e-12);
  EXPECT_NEAR(costs->gemm_ms(1024, 4096, 1024), light().gemm_ms(1024, 4096, 1024) / 0.8, 1e-12);
  const AttentionShape shape = source().attention;
  EXPECT_NEAR(costs->context_attention_ms(shape, 4, 2048, 0),
              light().context_attention_ms(shape, 4, 2048, 0) / 0.8, 1e-12);
  EXPECT_NEAR(costs->generation_attention_ms(shape, 16, 2048),
              light().generation_attention_ms(shape, 16, 2048) / 0.5, 1e-12);
}

TEST(MeasuredCosts, BetweenSamplesTimeLiesBetweenTheirs) {
  const auto costs = *MeasuredCosts::read(source(), light());
  for (const double m : {17.0, 20.0, 31.0}) {
    EXPECT_GT(costs->gemm_ms(m, 4096, 4096), light().gemm_ms(m, 4096, 4096) / 0.8);
    EXPECT_LT(costs->gemm_ms(m, 4096, 4096), light().gemm_ms(m, 4096, 4096) / 0.5);
  }
  // A shape of weights that nobody measured takes what its neighbours reach.
  EXPECT_NEAR(costs->gemm_ms(1024, 3000, 2000), light().gemm_ms(1024, 3000, 2000) / 0.8, 1e-9);
  // Beyond the largest sample time goes on with the work.
  EXPECT_NEAR(costs->gemm_ms(65'536, 4096, 4096), light().gemm_ms(65'536, 4096, 4096) / 0.8, 1e-9);
}

TEST(MeasuredCosts, PrecisionsAreTablesOfTheirOwn) {
  MeasuredSource fp8 = source();
  fp8.weights = Precision::kFp8;
  const auto costs = *MeasuredCosts::read(fp8, light(Precision::kFp8));
  EXPECT_NEAR(costs->gemm_ms(1024, 4096, 4096),
              light(Precision::kFp8).gemm_ms(1024, 4096, 4096) / 0.8, 1e-12);
}

TEST(MeasuredCosts, SaysWhatWasNotMeasuredAndWhatWas) {
  MeasuredSource heads = source();
  heads.attention.kv_heads = 4;
  EXPECT_THAT(MeasuredCosts::read(heads, light()).error().message(),
              HasSubstr("16/4 heads of 128 with bfloat16 KV; it was for: 16/8 heads of 128"));
  MeasuredSource fp4 = source();
  fp4.weights = Precision::kFp4;
  EXPECT_THAT(MeasuredCosts::read(fp4, light()).error().message(), HasSubstr("gemm_dtype fp4"));
  MeasuredSource backend = source();
  backend.backend = "vllm/0.1.0";
  EXPECT_THAT(MeasuredCosts::read(backend, light()).error().message(),
              HasSubstr("vllm/0.1.0/gemm_perf.parquet"));
  backend.backend = "sglang";
  EXPECT_THAT(MeasuredCosts::read(backend, light()).error().message(), HasSubstr("has 0 versions"));
}

}  // namespace
}  // namespace stator::perf
