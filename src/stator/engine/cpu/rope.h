// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "stator/engine/cpu/model_config.h"

namespace stator::engine::cpu {

/// Radians per position of each of the head_dim / 2 pairs: theta^(−2i / head_dim), then stretched
/// as the scaling says.
std::vector<float> rope_frequencies(const RopeConfig& rope, uint32_t head_dim);

/// Cosine and sine of every pair's angle at one position. Both spans are frequencies.size() long.
void rope_angles(std::span<const float> frequencies, uint32_t position, std::span<float> cosines,
                 std::span<float> sines);

/// Rotates one head in place, "half-split" form: pairs are (i, i + head_dim / 2).
void rope_rotate(std::span<const float> cosines, std::span<const float> sines, float* head);

}  // namespace stator::engine::cpu
