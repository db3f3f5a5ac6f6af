// SPDX-License-Identifier: Apache-2.0
#include "stator/simulator/prompt_blocks.h"

#include <algorithm>

#include "stator/core/assert.h"
#include "stator/core/random.h"

namespace stator::simulator {
namespace {

/// The part [offset, offset + tokens) of a trace block.
uint64_t hash_part(uint64_t id, uint32_t offset, uint32_t tokens) {
  return mix64(mix64(id) ^ (uint64_t{offset} << 32 | tokens));
}

/// A block that covers the tokens from `begin` on.
blocks::LocalHash hash_block(std::span<const uint64_t> hash_ids, const PromptShape& shape,
                             uint64_t begin) {
  uint64_t hash = 0;
  const uint64_t end = begin + shape.block_size;
  while (begin < end) {
    const uint64_t at = begin / shape.trace_block_tokens;
    const auto offset = static_cast<uint32_t>(begin % shape.trace_block_tokens);
    const auto tokens =
        static_cast<uint32_t>(std::min<uint64_t>(end - begin, shape.trace_block_tokens - offset));
    const uint64_t part = hash_part(hash_ids[at], offset, tokens);
    hash = hash == 0 ? part : mix64(hash ^ part);
    begin += tokens;
  }
  return blocks::LocalHash(hash);
}

}  // namespace

void make_prompt_blocks(std::span<const uint64_t> hash_ids, const PromptShape& shape,
                        PromptBlocks& blocks) {
  STATOR_ASSERT(hash_ids.size() * uint64_t{shape.trace_block_tokens} >= shape.input_tokens,
                "the ids cover the prompt");
  const uint32_t count = shape.input_tokens / shape.block_size;
  blocks.sequences.resize(count);
  blocks.locals.resize(count);
  for (uint32_t i = 0; i < count; ++i) {
    blocks.locals[i] = hash_block(hash_ids, shape, uint64_t{i} * shape.block_size);
    blocks.sequences[i] = i == 0 ? blocks::chain(blocks.locals[0])
                                 : blocks::chain(blocks.sequences[i - 1], blocks.locals[i]);
  }
}

void make_unique_ids(uint64_t number, const PromptShape& shape, std::vector<uint64_t>& hash_ids) {
  const uint64_t count =
      (uint64_t{shape.input_tokens} + shape.trace_block_tokens - 1) / shape.trace_block_tokens;
  hash_ids.resize(count);
  for (uint64_t i = 0; i < count; ++i) {
    // The highest bit keeps them apart from the small numbers that traces use.
    hash_ids[i] = 1ULL << 63 | mix64(mix64(number) + i);
  }
}

}  // namespace stator::simulator
