// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "stator/engine/cpu/kernels.h"

namespace stator::engine::cpu {

/// Tokens of 16 blocks: block 16 s + j are the tokens 256 s + j, 256 s + j + 16, …, 16 of them, so
/// that their maxima are vectors.
inline constexpr int64_t kSuperBlock = kLanes * kLanes;

/// Blocks of 16 tokens that race for being drawn (sampler.h).
struct RaceBlocks {
  const float* maxima = nullptr;  ///< of block_maxima()
  int64_t count = 0;              ///< blocks
  float temperature = 1;
  uint64_t key = 0;  ///< of the step
  float least = 0;   ///< blocks whose maximum is lower do not take part
};

/// The same, token by token.
struct Race {
  const float* logits = nullptr;
  const float* maxima = nullptr;
  int64_t count = 0;  ///< tokens
  float temperature = 1;
  uint64_t key = 0;
  // Who takes part: as in MassQuery.
  float least = 0;
  float above = 0;
  uint32_t before = 0;
};
struct RaceWinner {
  float score;  ///< −∞ or no number if none takes part
  uint32_t token;
};
/// Of up to 16 blocks those that arrive first and second.
struct RaceHeat {
  RaceWinner winner;
  /// A bit per block where one that comes later may score `bounds` of the block.
  uint32_t open;
  float bounds[kLanes];
};

/// The softmax mass of some tokens, in units of 2^-30 of the likeliest token's: whole numbers, so
/// that sums do not depend on their order.
struct MassQuery {
  const float* logits = nullptr;
  int64_t count = 0;
  const float* maxima = nullptr;  ///< of block_maxima()
  float highest = 0;
  float temperature = 1;
  float least = 0;     ///< counted are logits from here on, if they are
  float above = 0;     ///< higher than this, or equal to it and
  int64_t before = 0;  ///< of a token below this
};

/// What sampling asks of rows of logits. Any count; nothing is read behind it.
struct SamplingKernels {
  /// maxima[b] = the highest logit of block b, for whole super blocks; −∞ where a block has none.
  /// Returns the highest of all, NaN if one is infinite or no number.
  float (*block_maxima)(const float* logits, int64_t count, float* maxima) = nullptr;
  /// The first index from `from` on whose value is above `than`; `count` if there is none.
  int64_t (*find_above)(const float* values, int64_t from, int64_t count, float than) = nullptr;
  /// All of them, into `out`, which has room for all; returns how many.
  int64_t (*collect_above)(const float* values, int64_t count, float than, uint32_t* out) = nullptr;
  int64_t (*count_above)(const float* values, int64_t count, float than) = nullptr;
  /// bounds[b] ≥ what a token of block b can score in the race; returns the highest of them.
  float (*race_bounds)(const RaceBlocks& blocks, float* bounds) = nullptr;
  /// Bounds of blocks whose maximum is below `least` become −∞; returns the highest that is left.
  float (*cut_bounds)(const float* maxima, int64_t count, float least, float* bounds) = nullptr;
  /// The best score of a block's tokens, the lowest token that has it.
  RaceWinner (*race_block)(const Race& race, uint32_t block) = nullptr;
  /// `blocks` has room for 16; `best`: a score that somebody has already.
  RaceHeat (*race_heat)(const Race& race, const uint32_t* blocks, int32_t count,
                        float best) = nullptr;
  /// When the 16 tokens of a block arrive; `token` is its first.
  void (*block_arrivals)(uint64_t key, uint32_t block, uint32_t token, float* out) = nullptr;
  uint64_t (*mass)(const MassQuery& query) = nullptr;
  /// Σ e^(logit − highest).
  double (*exp_sum)(const float* logits, int64_t count, float highest) = nullptr;
  /// Logits whose bit is not set become −∞; bits that are missing count as not set.
  void (*keep_allowed)(const uint64_t* allowed, int64_t words, float* logits,
                       int64_t count) = nullptr;
};

/// The table for a set that supports() allows. Static storage. All sets give the same bits.
const SamplingKernels& sampling_kernels_for(Isa isa);

}  // namespace stator::engine::cpu
