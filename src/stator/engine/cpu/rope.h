// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "stator/engine/cpu/model_config.h"

namespace stator::engine::cpu {

/// Radians per position of each of the rotated pairs: theta^(−2i / dimensions), then stretched as
/// the scaling says. `length`: of the text, where that matters (dynamic, longrope): 0 for one
/// within original_positions.
std::vector<float> rope_frequencies(const RopeConfig& rope, uint32_t head_dim, uint32_t length = 0);

/// Angles of one kind of layer.
class RopeTable {
 public:
  RopeTable(const RopeConfig& rope, uint32_t head_dim);

  /// Rotated pairs.
  size_t pairs() const { return near_.size(); }
  /// Cosine and sine of every pair's angle at one position; both spans have pairs() floats.
  /// `length`: of the text when the position was computed first, that is the prompt's or, behind
  /// it, position + 1, as `transformers` counts with a KV cache.
  void angles(uint32_t position, uint32_t length, std::span<float> cosines,
              std::span<float> sines) const;
  /// Rotates one head in place.
  void rotate(std::span<const float> cosines, std::span<const float> sines, float* head) const;

 private:
  RopeConfig rope_;
  uint32_t head_dim_;
  std::vector<float> near_;
  std::vector<float> far_;  // longrope: of texts beyond original_positions
  float amplitude_;
  bool interleaved_;
};

/// The same by frequencies alone: half-split, amplitude 1.
void rope_angles(std::span<const float> frequencies, uint32_t position, std::span<float> cosines,
                 std::span<float> sines);
void rope_rotate(std::span<const float> cosines, std::span<const float> sines, float* head);

}  // namespace stator::engine::cpu
