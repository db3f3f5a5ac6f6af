// SPDX-License-Identifier: Apache-2.0
#include "stator/engine/cpu/rope.h"

#include <algorithm>
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

/// YaRN (Peng et al. 2023): dimensions that turn often within the trained context keep their
/// frequency, those that hardly turn are divided by the factor, those between blended.
class YarnRamp {
 public:
  YarnRamp(const RopeConfig& rope, uint32_t dimensions) : factor_(rope.factor) {
    if (rope.scaling != RopeScaling::kYarn) {
      return;
    }
    const auto dimension_of = [&](double rotations) {
      return dimensions * std::log(rope.original_positions / (rotations * 2 * std::numbers::pi)) /
             (2 * std::log(rope.theta));
    };
    low_ = dimension_of(rope.beta_fast);
    high_ = dimension_of(rope.beta_slow);
    if (rope.truncate) {
      low_ = std::floor(low_);
      high_ = std::ceil(high_);
    }
    low_ = std::max(low_, 0.0);
    high_ = std::min(high_, dimensions - 1.0);
    high_ += low_ == high_ ? 0.001 : 0;
  }
  double blend(double frequency, uint32_t pair) const {
    const double stretched = std::clamp((pair - low_) / (high_ - low_), 0.0, 1.0);
    return frequency / factor_ * stretched + frequency * (1 - stretched);
  }

 private:
  double factor_;
  double low_ = 0;
  double high_ = 1;
};

}  // namespace

std::vector<float> rope_frequencies(const RopeConfig& rope, uint32_t head_dim, uint32_t length) {
  const uint32_t dimensions = rope.dimensions == 0 ? head_dim : rope.dimensions;
  std::vector<float> frequencies(dimensions / 2);
  const YarnRamp ramp(rope, dimensions);
  const bool far = length > rope.original_positions;
  double theta = rope.theta;
  if (rope.scaling == RopeScaling::kDynamic && far && dimensions > 2) {
    // NTK-aware: the longer the text, the slower all turn.
    theta *= std::pow(rope.factor * length / rope.original_positions - (rope.factor - 1),
                      dimensions / (dimensions - 2.0));
  }
  for (uint32_t i = 0; i < dimensions / 2; ++i) {
    double frequency = std::pow(theta, -2.0 * i / dimensions);
    switch (rope.scaling) {
      case RopeScaling::kNone:
      case RopeScaling::kDynamic:
        break;
      case RopeScaling::kLinear:
        frequency /= rope.factor;
        break;
      case RopeScaling::kLlama3:
        frequency = stretch_llama3(rope, frequency);
        break;
      case RopeScaling::kYarn:
        frequency = ramp.blend(frequency, i);
        break;
      case RopeScaling::kLongRope:
      case RopeScaling::kFactors:
        frequency /= static_cast<double>((far ? rope.far_factors : rope.near_factors)[i]);
        break;
    }
    frequencies[i] = static_cast<float>(frequency);
  }
  return frequencies;
}

RopeTable::RopeTable(const RopeConfig& rope, uint32_t head_dim)
    : rope_(rope),
      head_dim_(head_dim),
      near_(rope_frequencies(rope, head_dim)),
      amplitude_(rope.amplitude),
      interleaved_(rope.interleaved) {
  if (rope.scaling == RopeScaling::kLongRope) {
    far_ = rope_frequencies(rope, head_dim, UINT32_MAX);
  }
}

void RopeTable::angles(uint32_t position, uint32_t length, std::span<float> cosines,
                       std::span<float> sines) const {
  const bool far = length > rope_.original_positions;
  if (far && rope_.scaling == RopeScaling::kDynamic) {
    rope_angles(rope_frequencies(rope_, head_dim_, length), position, cosines, sines);
  } else {
    rope_angles(far && !far_.empty() ? far_ : near_, position, cosines, sines);
  }
  if (amplitude_ != 1.0F) {
    for (size_t i = 0; i < cosines.size(); ++i) {
      cosines[i] *= amplitude_;
      sines[i] *= amplitude_;
    }
  }
}

void RopeTable::rotate(std::span<const float> cosines, std::span<const float> sines,
                       float* head) const {
  if (!interleaved_) {
    rope_rotate(cosines, sines, head);
    return;
  }
  for (size_t i = 0; i < cosines.size(); ++i) {
    const float low = head[2 * i];
    const float high = head[2 * i + 1];
    head[2 * i] = low * cosines[i] - high * sines[i];
    head[2 * i + 1] = high * cosines[i] + low * sines[i];
  }
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
