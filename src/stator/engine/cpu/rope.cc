// SPDX-License-Identifier: Apache-2.0
#include "stator/engine/cpu/rope.h"

#include <cmath>
#include <numbers>

// As in kernels.cc: rounding must not depend on what the compiler fuses.
#pragma STDC FP_CONTRACT OFF

namespace stator::engine::cpu {
namespace {

/// Llama 3.1's stretching: long wavelengths are divided by the factor, short ones kept, those
/// between blended.
double stretch_llama3(const RopeConfig& rope, double frequency) {
  const double wavelength = 2 * std::numbers::pi / frequency;
  const double original = rope.original_positions;
  if (wavelength < original / rope.high_freq_factor) {
    return frequency;
  }
  if (wavelength > original / rope.low_freq_factor) {
    return frequency / rope.factor;
  }
  const double smooth = (original / wavelength - rope.low_freq_factor) /
                        (rope.high_freq_factor - rope.low_freq_factor);
  return (1 - smooth) * frequency / rope.factor + smooth * frequency;
}

}  // namespace

std::vector<float> rope_frequencies(const RopeConfig& rope, uint32_t head_dim) {
  std::vector<float> frequencies(head_dim / 2);
  for (uint32_t i = 0; i < head_dim / 2; ++i) {
    double frequency = std::pow(rope.theta, -2.0 * i / head_dim);
    if (rope.scaling == RopeScaling::kLinear) {
      frequency /= rope.factor;
    } else if (rope.scaling == RopeScaling::kLlama3) {
      frequency = stretch_llama3(rope, frequency);
    }
    frequencies[i] = static_cast<float>(frequency);
  }
  return frequencies;
}

void rope_angles(std::span<const float> frequencies, uint32_t position, std::span<float> cosines,
                 std::span<float> sines) {
  for (size_t i = 0; i < frequencies.size(); ++i) {
    // The angle is rounded to f32 first, as in the reference implementations.
    const double angle = static_cast<float>(position) * frequencies[i];
    cosines[i] = static_cast<float>(std::cos(angle));
    sines[i] = static_cast<float>(std::sin(angle));
  }
}

void rope_rotate(std::span<const float> cosines, std::span<const float> sines, float* head) {
  const size_t half = cosines.size();
  for (size_t i = 0; i < half; ++i) {
    const float low = head[i];
    const float high = head[i + half];
    head[i] = low * cosines[i] - high * sines[i];
    head[i + half] = high * cosines[i] + low * sines[i];
  }
}

}  // namespace stator::engine::cpu
