// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "stator/blocks/block_hash.h"

namespace stator::simulator {

/// The hashes of a prompt's full blocks, as an engine would have computed them from its tokens.
struct PromptBlocks {
  std::vector<blocks::SequenceHash> sequences;
  std::vector<blocks::LocalHash> locals;
};

/// What makes a prompt's blocks out of the blocks of a trace.
struct PromptShape {
  uint32_t trace_block_tokens = 512;
  uint32_t block_size = 64;  ///< of the engine; need not divide the trace's
  uint32_t input_tokens = 0;
};

/// Maps trace block ids straight to block hashes; no token is ever made. Two blocks are equal
/// exactly if they cover the same parts of the same trace blocks (up to hash collisions).
/// `hash_ids` cover the input. `blocks` is overwritten, its memory reused.
void make_prompt_blocks(std::span<const uint64_t> hash_ids, const PromptShape& shape,
                        PromptBlocks& blocks);

/// Ids for a prompt that shares nothing with any other of the same trace, which has another number.
void make_unique_ids(uint64_t number, const PromptShape& shape, std::vector<uint64_t>& hash_ids);

}  // namespace stator::simulator
