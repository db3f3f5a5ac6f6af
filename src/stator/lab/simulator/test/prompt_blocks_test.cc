// SPDX-License-Identifier: Apache-2.0
#include "stator/lab/simulator/prompt_blocks.h"

#include <gtest/gtest.h>

#include <set>

namespace stator::simulator {
namespace {

PromptBlocks make(const std::vector<uint64_t>& ids, const PromptShape& shape) {
  PromptBlocks blocks;
  make_prompt_blocks(ids, shape, blocks);
  return blocks;
}

size_t shared_prefix(const PromptBlocks& a, const PromptBlocks& b) {
  size_t shared = 0;
  while (shared < std::min(a.sequences.size(), b.sequences.size()) &&
         a.sequences[shared] == b.sequences[shared]) {
    ++shared;
  }
  return shared;
}

TEST(PromptBlocks, HasTheFullBlocksOnly) {
  EXPECT_EQ(make({1, 2}, {.trace_block_tokens = 512, .block_size = 64, .input_tokens = 1000})
                .sequences.size(),
            15);
  EXPECT_TRUE(make({1}, {.trace_block_tokens = 512, .block_size = 64, .input_tokens = 63})
                  .sequences.empty());
}

TEST(PromptBlocks, ChainsAsAnEngineWould) {
  const PromptBlocks blocks =
      make({1, 2}, {.trace_block_tokens = 512, .block_size = 256, .input_tokens = 1024});

  ASSERT_EQ(blocks.sequences.size(), 4);
  EXPECT_EQ(blocks.sequences[0], blocks::chain(blocks.locals[0]));
  EXPECT_EQ(blocks.sequences[3], blocks::chain(blocks.sequences[2], blocks.locals[3]));
  EXPECT_EQ(std::set(blocks.locals.begin(), blocks.locals.end()).size(), 4);
}

TEST(PromptBlocks, EqualLeadingIdsAreASharedPrefix) {
  for (const uint32_t size : {16U, 48U, 512U, 700U, 1024U}) {
    const PromptShape shape{.trace_block_tokens = 512, .block_size = size, .input_tokens = 4096};
    const PromptBlocks a = make({1, 2, 3, 4, 5, 6, 7, 8}, shape);
    const PromptBlocks b = make({1, 2, 3, 4, 9, 6, 7, 8}, shape);

    EXPECT_EQ(shared_prefix(a, b), 2048 / size) << size;
  }
}

TEST(PromptBlocks, APartOfATraceBlockIsAPartOfTheWholeOne) {
  const PromptBlocks part =
      make({1, 2}, {.trace_block_tokens = 512, .block_size = 64, .input_tokens = 700});
  const PromptBlocks whole =
      make({1, 2}, {.trace_block_tokens = 512, .block_size = 64, .input_tokens = 1024});

  EXPECT_EQ(shared_prefix(part, whole), 10);
}

TEST(PromptBlocks, UniqueIdsShareNothing) {
  const PromptShape shape{.trace_block_tokens = 512, .block_size = 64, .input_tokens = 2000};
  std::vector<uint64_t> first;
  std::vector<uint64_t> second;
  make_unique_ids(1, shape, first);
  make_unique_ids(2, shape, second);

  EXPECT_EQ(first.size(), 4);
  EXPECT_EQ(shared_prefix(make(first, shape), make(second, shape)), 0);
}

}  // namespace
}  // namespace stator::simulator
