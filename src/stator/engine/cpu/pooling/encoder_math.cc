// SPDX-License-Identifier: Apache-2.0
#include "stator/engine/cpu/pooling/encoder_math.h"

#include <bit>
#include <cmath>

namespace stator::engine::cpu {
namespace {

/// e^x for x in [−87, 0]: 2^n · 2^f with f in [−1/2, 1/2], whose power is its Taylor series to the
/// seventh term, 2e-8 off at most. Without branches, so that compilers use vectors.
inline float exp_below_zero(float x) {
  x = x < -87.0F ? -87.0F : x;
  const float scaled = x * 1.44269504088896341F;  // log2(e)
  const float whole = std::floor(scaled + 0.5F);
  const float t = (scaled - whole) * 0.69314718055994531F;  // ln(2)
  float power = 1.0F / 5040;
  power = power * t + 1.0F / 720;
  power = power * t + 1.0F / 120;
  power = power * t + 1.0F / 24;
  power = power * t + 1.0F / 6;
  power = power * t + 0.5F;
  power = power * t + 1.0F;
  power = power * t + 1.0F;
  const auto bits = static_cast<uint32_t>(static_cast<int32_t>(whole) + 127) << 23;
  return power * std::bit_cast<float>(bits);
}

/// Abramowitz and Stegun, Handbook of Mathematical Functions, 7.1.26.
inline float erf_of(float x) {
  const float size = std::fabs(x);
  const float t = 1.0F / (1.0F + 0.3275911F * size);
  const float sum =
      t * (0.254829592F +
           t * (-0.284496736F + t * (1.421413741F + t * (-1.453152027F + t * 1.061405429F))));
  const float value = 1.0F - sum * exp_below_zero(-x * x);
  return x < 0 ? -value : value;
}

}  // namespace

void layer_norm(const float* x, const float* weight, const float* bias, int64_t count,
                float epsilon, float* out) {
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) {
    sum += x[i];
  }
  const auto mean = static_cast<float>(sum / static_cast<double>(count));
  double squares = 0;
  for (int64_t i = 0; i < count; ++i) {
    const float away = x[i] - mean;
    squares += static_cast<double>(away) * away;
  }
  const auto factor = static_cast<float>(
      1 / std::sqrt(squares / static_cast<double>(count) + static_cast<double>(epsilon)));
  for (int64_t i = 0; i < count; ++i) {
    out[i] = (x[i] - mean) * factor * weight[i] + bias[i];
  }
}

void add_bias_and_activate(float* x, const float* bias, int64_t count,
                           EncoderActivation activation) {
  switch (activation) {
    case EncoderActivation::kGelu:
      for (int64_t i = 0; i < count; ++i) {
        const float value = x[i] + bias[i];
        x[i] = 0.5F * value * (1.0F + erf_of(value * 0.70710678118654752F));
      }
      return;
    case EncoderActivation::kGeluTanh:
      for (int64_t i = 0; i < count; ++i) {
        const float value = x[i] + bias[i];
        const float inner = 0.79788456080286536F * (value + 0.044715F * value * value * value);
        x[i] = 0.5F * value * (1.0F + std::tanh(inner));
      }
      return;
    case EncoderActivation::kRelu:
      for (int64_t i = 0; i < count; ++i) {
        const float value = x[i] + bias[i];
        x[i] = value > 0 ? value : 0.0F;
      }
      return;
  }
}

}  // namespace stator::engine::cpu
