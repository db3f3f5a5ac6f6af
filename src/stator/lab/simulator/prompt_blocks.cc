// SPDX-License-Identifier: Apache-2.0
#include "stator/lab/simulator/prompt_blocks.h"

#include <algorithm>

#include "stator/core/assert.h"
#include "stator/core/random.h"

namespace stator::simulator {
namespace {

/// Identity of the part [offset, offset + tokens) of the trace block with this id, mixed.
uint64_t part_of(uint64_t id, uint32_t offset, uint32_t tokens) {
  return mix64(id ^ (uint64_t{offset} << 32 | tokens));
}

/// Reads the tokens of a prompt block by block. There are millions of blocks in a trace.
class BlockReader {
 public:
  BlockReader(std::span<const uint64_t> hash_ids, const PromptShape& shape)
      : next_(hash_ids.begin()), end_(hash_ids.end()), shape_(shape) {
    enter();
  }

  blocks::LocalHash next() {
    uint32_t tokens = std::min(shape_.block_size, shape_.trace_block_tokens - offset_);
    uint64_t hash = take(tokens);
    for (uint32_t left = shape_.block_size - tokens; left > 0; left -= tokens) {
      tokens = std::min(left, shape_.trace_block_tokens);
      hash = mix64(hash ^ take(tokens));
    }
    return blocks::LocalHash(hash);
  }

 private:
  /// The part [offset, offset + tokens) of a trace block.
  uint64_t take(uint32_t tokens) {
    const uint64_t part = part_of(id_, offset_, tokens);
    offset_ += tokens;
    if (offset_ == shape_.trace_block_tokens) {
      enter();
    }
    return part;
  }
  void enter() {
    offset_ = 0;
    id_ = next_ == end_ ? 0 : mix64(*next_++);
  }

  std::span<const uint64_t>::iterator next_;
  std::span<const uint64_t>::iterator end_;
  PromptShape shape_;
  uint64_t id_ = 0;      // of the trace block, mixed
  uint32_t offset_ = 0;  // in it
};

/// The same where every block lies in one trace block.
void read_parts(std::span<const uint64_t> hash_ids, const PromptShape& shape,
                std::span<blocks::LocalHash> locals) {
  const size_t per_id = shape.trace_block_tokens / shape.block_size;
  for (const uint64_t hash_id : hash_ids) {
    const uint64_t id = mix64(hash_id);
    const size_t parts = std::min(per_id, locals.size());
    uint32_t offset = 0;
    for (blocks::LocalHash& local : locals.first(parts)) {
      local = blocks::LocalHash(part_of(id, offset, shape.block_size));
      offset += shape.block_size;
    }
    locals = locals.subspan(parts);
  }
}

}  // namespace

void make_prompt_blocks(std::span<const uint64_t> hash_ids, const PromptShape& shape,
                        PromptBlocks& blocks) {
  STATOR_ASSERT(hash_ids.size() * uint64_t{shape.trace_block_tokens} >= shape.input_tokens,
                "the ids cover the prompt");
  const uint32_t count = shape.input_tokens / shape.block_size;
  blocks.sequences.resize(count);
  blocks.locals.resize(count);
  if (shape.trace_block_tokens % shape.block_size == 0) {
    read_parts(hash_ids, shape, blocks.locals);
  } else {
    BlockReader reader(hash_ids, shape);
    for (blocks::LocalHash& local : blocks.locals) {
      local = reader.next();
    }
  }
  for (uint32_t i = 0; i < count; ++i) {
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
