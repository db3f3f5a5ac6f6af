// SPDX-License-Identifier: Apache-2.0
#include "stator/engine/cpu/matmul.h"

#include <gtest/gtest.h>

#include <cmath>

#include "stator/core/random.h"
#include "stator/engine/cpu/quantized.h"

namespace stator::engine::cpu {
namespace {

struct Matrix {
  std::vector<float> floats;
  std::vector<uint16_t> halves;
  TensorView view;

  Matrix(uint64_t seed, uint64_t outputs, uint64_t inputs, Dtype dtype) {
    Random random(seed);
    for (uint64_t i = 0; i < outputs * inputs; ++i) {
      const auto value = static_cast<float>(random.uniform() - 0.5);
      const auto bf16 = static_cast<uint16_t>(__builtin_bit_cast(uint32_t, value) >> 16U);
      const auto f16 = static_cast<_Float16>(value);
      if (dtype == Dtype::kF32) {
        floats.push_back(value);
      } else if (dtype == Dtype::kBf16) {
        halves.push_back(bf16);
        floats.push_back(__builtin_bit_cast(float, static_cast<uint32_t>(bf16) << 16U));
      } else {
        halves.push_back(__builtin_bit_cast(uint16_t, f16));
        floats.push_back(static_cast<float>(f16));
      }
    }
    view = {.dtype = dtype,
            .shape = {outputs, inputs},
            .bytes = dtype == Dtype::kF32 ? std::as_bytes(std::span(floats))
                                          : std::as_bytes(std::span(halves))};
  }
};

TEST(PackedMatrix, KeepsEveryElementOfEveryDtype) {
  for (const Dtype dtype : {Dtype::kF32, Dtype::kF16, Dtype::kBf16}) {
    const Matrix matrix(1, 21, 19, dtype);

    const auto packed = PackedMatrix::pack({&matrix.view, 1});

    ASSERT_TRUE(packed.has_value());
    EXPECT_EQ(packed->outputs(), 21);
    EXPECT_EQ(packed->padded_outputs(), 32);
    ASSERT_EQ(packed->segments().size(), 1U);
    EXPECT_EQ(packed->segments()[0].dtype, dtype) << "nothing is widened";
    std::vector<float> row(19);
    for (int64_t output = 0; output < 21; ++output) {
      packed->copy_row(output, row.data());
      const auto expected = std::span(matrix.floats).subspan(static_cast<size_t>(output) * 19, 19);
      EXPECT_TRUE(std::ranges::equal(row, expected)) << to_string(dtype) << " row " << output;
    }
    EXPECT_EQ(to_floats(matrix.view), matrix.floats);
  }
}

TEST(PackedMatrix, StackedPartsOfMixedDtypesStayInTheirTypes) {
  const Matrix top(1, 13, 8, Dtype::kBf16);
  const Matrix bottom(2, 5, 8, Dtype::kF32);
  const std::vector<TensorView> parts = {top.view, bottom.view};

  const auto packed = PackedMatrix::pack(parts);

  ASSERT_TRUE(packed.has_value());
  ASSERT_EQ(packed->segments().size(), 2U);
  EXPECT_EQ(packed->segments()[0].dtype, Dtype::kBf16);
  EXPECT_EQ(packed->segments()[1].first_panel, 1);
  EXPECT_EQ(packed->outputs(), 21);
  std::vector<float> row(8);
  packed->copy_row(12, row.data());
  EXPECT_TRUE(std::ranges::equal(row, std::span(top.floats).last(8)));
  packed->copy_row(16, row.data());
  EXPECT_TRUE(std::ranges::equal(row, std::span(bottom.floats).first(8)));
}

/// 70 rows through the whole path: bf16 is widened in registers for few rows and ahead for many,
/// there are more inputs than one depth step, and the last block is ragged.
class MatmulTest : public testing::TestWithParam<Dtype> {
 protected:
  static constexpr int64_t kRows = 70;
  static constexpr int64_t kInputs = 700;
  static constexpr int64_t kOutputs = 300;
  const Matrix activations_{3, kRows, kInputs, Dtype::kF32};
  const Matrix weights_{4, kOutputs, kInputs, GetParam()};
  const PackedMatrix packed_ = *PackedMatrix::pack({&weights_.view, 1});
  const int64_t stride_ = packed_.padded_outputs();

  std::vector<float> run(int64_t first_row, int64_t rows, uint32_t threads = 1) const {
    ThreadTeam team(threads);
    Matmul matmul(kernels_for(detect_isa()), team);
    std::vector<float> out(static_cast<size_t>(rows * stride_));
    matmul.run({.data = activations_.floats.data() + first_row * kInputs,
                .stride = kInputs,
                .count = rows},
               packed_, out.data(), stride_);
    return out;
  }
};

TEST_P(MatmulTest, MatchesTheDefinition) {
  const auto out = run(0, kRows);
  for (int64_t row = 0; row < kRows; ++row) {
    for (int64_t output = 0; output < stride_; ++output) {
      double sum = 0;
      for (int64_t k = 0; output < kOutputs && k < kInputs; ++k) {
        sum += static_cast<double>(activations_.floats[static_cast<size_t>(row * kInputs + k)]) *
               weights_.floats[static_cast<size_t>(output * kInputs + k)];
      }
      ASSERT_NEAR(out[static_cast<size_t>(row * stride_ + output)], sum, 1e-4);
    }
  }
}

TEST_P(MatmulTest, ARowIsBitEqualInEveryBatchAndTeam) {
  const auto whole = run(0, kRows);
  for (const uint32_t threads : {1U, 2U, 3U}) {
    for (int64_t rows = 1; rows <= kRows; rows += rows < 14 ? 1 : 13) {
      const auto part = run(2, std::min(rows, kRows - 2), threads);
      EXPECT_TRUE(std::ranges::equal(
          part, std::span(whole).subspan(static_cast<size_t>(2 * stride_), part.size())))
          << rows << " rows, " << threads << " threads";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Dtypes, MatmulTest,
                         testing::Values(Dtype::kF32, Dtype::kF16, Dtype::kBf16),
                         [](const auto& info) { return std::string(to_string(info.param)); });

/// A matrix of random blocks: whatever the bits, they mean something. Scales are small halves.
struct BlockMatrix {
  std::vector<std::byte> bytes;
  TensorView view;

  BlockMatrix(Dtype dtype, uint64_t outputs, uint64_t inputs) {
    Random random(7);
    bytes.resize(outputs * row_bytes(dtype, inputs));
    for (std::byte& byte : bytes) {
      byte = static_cast<std::byte>(random.below(256));
    }
    const bool small = dtype == Dtype::kQ8_0 || dtype == Dtype::kQ4_0;
    const size_t block = row_bytes(dtype, small ? 32 : 256);
    for (size_t at = 0; at < bytes.size(); at += block) {
      const size_t scale = at + (dtype == Dtype::kQ6K ? block - 2 : 0);
      bytes[scale + 1] = static_cast<std::byte>(random.below(2) * 128 + 0x1C);
      if (dtype == Dtype::kQ4K) {
        bytes[scale + 3] = static_cast<std::byte>(0x1C);
      }
    }
    view = {.dtype = dtype, .shape = {outputs, inputs}, .bytes = bytes};
  }
};

/// What activations are rounded to: a scale per 32 as a half, or per 256.
std::vector<float> rounded_activations(std::span<const float> x, Dtype dtype) {
  const bool is_long = dtype == Dtype::kQ4K || dtype == Dtype::kQ6K;
  const size_t block = is_long ? 256 : 32;
  std::vector<float> out;
  for (size_t first = 0; first < x.size(); first += block) {
    float largest = 0;
    for (size_t i = first; i < first + block; ++i) {
      largest = std::max(largest, std::abs(x[i]));
    }
    const float factor = 127.0F / largest;
    const float scale =
        is_long ? 1.0F / factor : static_cast<float>(static_cast<_Float16>(largest / 127.0F));
    for (size_t i = first; i < first + block; ++i) {
      out.push_back(std::nearbyint(x[i] * factor) * scale);
    }
  }
  return out;
}

class QuantizedMatmul : public testing::TestWithParam<Dtype> {};

TEST_P(QuantizedMatmul, IsTheProductWithRoundedActivationsOnEverySetAndForAnyRows) {
  constexpr int64_t kRows = 29;
  constexpr int64_t kInputs = 768;
  constexpr int64_t kOutputs = 150;
  const Matrix activations(3, kRows, kInputs, Dtype::kF32);
  const BlockMatrix weights(GetParam(), kOutputs, kInputs);
  const PackedMatrix packed = *PackedMatrix::pack({&weights.view, 1});
  const std::vector<float> widened = to_floats(weights.view);
  const std::vector<float> rounded = rounded_activations(activations.floats, GetParam());
  const int64_t stride = packed.padded_outputs();
  std::vector<float> first;
  for (const Isa isa : {Isa::kBaseline, Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Vnni}) {
    if (!supports(isa)) {
      continue;
    }
    for (const int64_t rows : {kRows, int64_t{1}, int64_t{7}}) {
      ThreadTeam team(2);
      Matmul matmul(kernels_for(isa), team);
      std::vector<float> out(static_cast<size_t>(rows * stride));
      matmul.run({.data = activations.floats.data(), .stride = kInputs, .count = rows}, packed,
                 out.data(), stride);
      for (int64_t row = 0; row < rows; ++row) {
        for (int64_t output = 0; output < kOutputs; ++output) {
          double sum = 0;
          double size = 0;
          for (int64_t k = 0; k < kInputs; ++k) {
            const double term =
                static_cast<double>(rounded[static_cast<size_t>(row * kInputs + k)]) *
                widened[static_cast<size_t>(output * kInputs + k)];
            sum += term;
            size += std::abs(term);
          }
          ASSERT_NEAR(out[static_cast<size_t>(row * stride + output)], sum, size * 1e-6)
              << to_string(isa);
        }
      }
      if (isa == Isa::kAvx2 && first.empty()) {
        first = out;
      }
      if (isa != Isa::kBaseline) {
        EXPECT_TRUE(std::ranges::equal(out, std::span(first).first(out.size())))
            << to_string(isa) << ", " << rows << " rows";
      }
    }
  }
  std::vector<float> row(kInputs);
  packed.copy_row(kOutputs - 1, row.data());
  EXPECT_TRUE(std::ranges::equal(row, std::span(widened).last(kInputs)));
}

INSTANTIATE_TEST_SUITE_P(Blocks, QuantizedMatmul,
                         testing::Values(Dtype::kQ8_0, Dtype::kQ4_0, Dtype::kQ4K, Dtype::kQ6K),
                         [](const auto& info) { return std::string(to_string(info.param)); });

TEST(Matmul, NoRowsAreNoWork) {
  const Matrix weights(1, 16, 16, Dtype::kF32);
  const auto packed = PackedMatrix::pack({&weights.view, 1});
  ThreadTeam team(1);
  Matmul matmul(kernels_for(detect_isa()), team);
  matmul.run({}, *packed, nullptr, 16);
}

}  // namespace
}  // namespace stator::engine::cpu
