// SPDX-License-Identifier: Apache-2.0
#include "stator/engine/cpu/kernels.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "stator/core/random.h"

namespace stator::engine::cpu {
namespace {

std::vector<float> random_floats(uint64_t seed, int64_t count) {
  Random random(seed);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) {
    value = static_cast<float>(random.uniform() * 2 - 1);
  }
  return values;
}

/// Every table against sums in double precision: the reference knows nothing of lanes.
class KernelTable : public testing::TestWithParam<Isa> {
 protected:
  void SetUp() override {
    if (!supports(GetParam())) {
      GTEST_SKIP() << "this machine cannot run " << to_string(GetParam())
                   << " code; the others are tested";
    }
    kernels_ = &kernels_for(GetParam());
  }
  const Kernels* kernels_ = nullptr;
};

struct Product {
  int64_t rows;
  int64_t panels;
  int64_t depth;
  std::vector<float> activations;
  std::vector<float> weights;

  Product(int64_t rows_in, int64_t panels_in, int64_t depth_in)
      : rows(rows_in),
        panels(panels_in),
        depth(depth_in),
        activations(random_floats(1, rows_in * depth_in)),
        weights(random_floats(2, panels_in * depth_in * kLanes)) {}

  MultiplyTile tile(std::vector<float>& out) const {
    return {.rows = activations.data(),
            .row_count = rows,
            .row_stride = rows,
            .weights = weights.data(),
            .panel_stride = depth * kLanes,
            .panel_count = panels,
            .depth = depth,
            .out = out.data(),
            .out_stride = panels * kLanes};
  }
  double expected(int64_t row, int64_t output) const {
    double sum = 0;
    for (int64_t k = 0; k < depth; ++k) {
      const int64_t panel = output / kLanes;
      sum += static_cast<double>(activations[static_cast<size_t>(k * rows + row)]) *
             weights[static_cast<size_t>((panel * depth + k) * kLanes + output % kLanes)];
    }
    return sum;
  }
};

TEST_P(KernelTable, MultiplyMatchesTheDefinitionForEveryTileShape) {
  for (int64_t rows = 1; rows <= kTileRows; ++rows) {
    for (int64_t panels = 1; panels <= kBlockPanels; ++panels) {
      const Product product(rows, panels, 37);
      std::vector<float> out(static_cast<size_t>(rows * panels * kLanes), 99.0F);

      kernels_->multiply_f32(product.tile(out));

      for (int64_t row = 0; row < rows; ++row) {
        for (int64_t output = 0; output < panels * kLanes; ++output) {
          ASSERT_NEAR(out[static_cast<size_t>(row * panels * kLanes + output)],
                      product.expected(row, output), 1e-5)
              << rows << " rows, " << panels << " panels, output " << row << ", " << output;
        }
      }
    }
  }
}

TEST_P(KernelTable, StoppingAndContinuingTheSumChangesNoBit) {
  const Product product(5, 8, 64);
  std::vector<float> whole(static_cast<size_t>(5 * 8 * kLanes));
  std::vector<float> parts(whole.size());
  kernels_->multiply_f32(product.tile(whole));

  MultiplyTile tile = product.tile(parts);
  tile.depth = 27;
  kernels_->multiply_f32(tile);
  tile.rows += 27 * tile.row_stride;
  tile.weights = static_cast<const float*>(tile.weights) + 27 * kLanes;
  tile.depth = 64 - 27;
  tile.accumulate = true;
  kernels_->multiply_f32(tile);

  EXPECT_EQ(parts, whole);
}

TEST_P(KernelTable, Bf16WeightsEqualTheirWidenedForm) {
  Product product(7, 3, 29);
  std::vector<uint16_t> halves;
  for (float& weight : product.weights) {
    halves.push_back(static_cast<uint16_t>(__builtin_bit_cast(uint32_t, weight) >> 16U));
  }
  kernels_->widen_bf16(halves.data(), static_cast<int64_t>(halves.size()), product.weights.data());
  std::vector<float> from_f32(static_cast<size_t>(7 * 3 * kLanes));
  std::vector<float> from_bf16(from_f32.size());

  kernels_->multiply_f32(product.tile(from_f32));
  MultiplyTile tile = product.tile(from_bf16);
  tile.weights = halves.data();
  kernels_->multiply_bf16(tile);

  EXPECT_EQ(from_bf16, from_f32);
  EXPECT_EQ(product.weights[5], __builtin_bit_cast(float, static_cast<uint32_t>(halves[5]) << 16U));
}

TEST_P(KernelTable, RmsNormMatchesTheDefinition) {
  const auto x = random_floats(3, 96);
  const auto weight = random_floats(4, 96);
  std::vector<float> out = x;
  double squares = 0;
  for (const float value : x) {
    squares += static_cast<double>(value) * value;
  }

  kernels_->rms_norm(out.data(), weight.data(), 96, 1e-3F, out.data());

  for (size_t i = 0; i < x.size(); ++i) {
    EXPECT_NEAR(out[i], x[i] / std::sqrt(squares / 96 + 1e-3) * weight[i], 1e-5);
  }
}

TEST_P(KernelTable, AddAndScaleAreElementwise) {
  auto x = random_floats(5, 32);
  const auto before = x;
  const auto y = random_floats(6, 32);

  kernels_->add(x.data(), y.data(), 32);
  kernels_->scale(x.data(), 2.0F, 32);

  for (size_t i = 0; i < x.size(); ++i) {
    EXPECT_EQ(x[i], (before[i] + y[i]) * 2.0F);
  }
}

TEST_P(KernelTable, SiluMatchesTheDefinitionOverTheWholeRange) {
  std::vector<float> gate;
  for (float value = -120.0F; value < 120.0F; value += 0.9375F) {
    gate.push_back(value);
  }
  ASSERT_EQ(gate.size() % kLanes, 0U);
  const auto before = gate;
  const std::vector<float> up(gate.size(), 3.0F);

  kernels_->silu_multiply(gate.data(), up.data(), static_cast<int64_t>(gate.size()));

  for (size_t i = 0; i < gate.size(); ++i) {
    const double expected = 3.0 * before[i] / (1.0 + std::exp(-static_cast<double>(before[i])));
    EXPECT_NEAR(gate[i], expected, 1e-30 + 2e-6 * std::abs(expected)) << before[i];
  }
}

TEST_P(KernelTable, ExpScoresIsSoftmaxBeforeDivision) {
  for (const int64_t count : {1, 5, 16, 33}) {
    auto scores = random_floats(7, round_up_lanes(count));
    for (float& score : scores) {
      score *= 20;
    }
    const auto before = scores;
    double maximum = before[0];
    for (int64_t i = 0; i < count; ++i) {
      maximum = std::max<double>(maximum, before[static_cast<size_t>(i)]);
    }

    const float sum = kernels_->exp_scores(scores.data(), count);

    double expected_sum = 0;
    for (int64_t i = 0; i < round_up_lanes(count); ++i) {
      const auto at = static_cast<size_t>(i);
      const double expected = i < count ? std::exp(before[at] - maximum) : 0.0;
      EXPECT_NEAR(scores[at], expected, 1e-37 + 2e-6 * expected);
      expected_sum += expected;
    }
    EXPECT_NEAR(sum, expected_sum, 1e-5 * expected_sum);
  }
}

TEST_P(KernelTable, AttentionSumsMatchTheDefinition) {
  constexpr int64_t kStride = 200;
  for (const int64_t dim : {16, 48, 128, 144}) {
    for (const int64_t count : {1, 3, 4, 9}) {
      const auto query = random_floats(8, dim);
      const auto data = random_floats(9, kStride * count);
      const auto weights = random_floats(10, count);
      const HeadRows rows{.data = data.data(), .stride = kStride, .count = count, .dim = dim};
      std::vector<float> scores(static_cast<size_t>(count));
      std::vector<float> out(static_cast<size_t>(dim), 1.0F);

      kernels_->dot_keys(query.data(), rows, 0.5F, scores.data());
      kernels_->add_values(weights.data(), rows, out.data());

      for (int64_t t = 0; t < count; ++t) {
        double dot = 0;
        for (int64_t i = 0; i < dim; ++i) {
          dot += static_cast<double>(query[static_cast<size_t>(i)]) *
                 data[static_cast<size_t>(t * kStride + i)];
        }
        EXPECT_NEAR(scores[static_cast<size_t>(t)], dot / 2, 1e-5);
      }
      for (int64_t i = 0; i < dim; ++i) {
        double sum = 1;
        for (int64_t t = 0; t < count; ++t) {
          sum += static_cast<double>(weights[static_cast<size_t>(t)]) *
                 data[static_cast<size_t>(t * kStride + i)];
        }
        EXPECT_NEAR(out[static_cast<size_t>(i)], sum, 1e-5);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, KernelTable,
                         testing::Values(Isa::kBaseline, Isa::kAvx2, Isa::kAvx512,
                                         Isa::kAvx512Vnni),
                         [](const auto& info) { return std::string(to_string(info.param)); });

TEST(Kernels, TheBestSetIsSupported) {
  EXPECT_TRUE(supports(detect_isa()));
  EXPECT_TRUE(supports(Isa::kBaseline));
  EXPECT_EQ(kernels_for(detect_isa()).isa, detect_isa());
}

}  // namespace
}  // namespace stator::engine::cpu
