// SPDX-License-Identifier: Apache-2.0
#include "stator/request/prompt_view.h"

#include <gtest/gtest.h>

#include <numeric>

namespace stator::request {
namespace {

std::vector<TokenId> tokens(size_t count, TokenId first = 1) {
  std::vector<TokenId> list(count);
  std::iota(list.begin(), list.end(), first);
  return list;
}

std::vector<blocks::SequenceHash> hash(std::span<const TokenId> list, uint32_t block_size,
                                       uint64_t seed) {
  std::vector<blocks::SequenceHash> sequences;
  blocks::extend_sequences(list, block_size, seed, sequences);
  return sequences;
}

TEST(PromptView, APromptAloneIsWhatWasHashedBefore) {
  const auto prompt = tokens(10);
  const auto sequences = hash(prompt, 4, 7);
  const PromptView view({.prompt = prompt, .sequences = sequences, .block_size = 4, .seed = 7});

  EXPECT_EQ(view.tokens(), 10U);
  EXPECT_EQ(view.sequences().data(), sequences.data());
  EXPECT_EQ(view.sequences().size(), 2U);
}

TEST(PromptView, WithOutputItIsHashedAsOnePrompt) {
  for (size_t prompt_tokens = 1; prompt_tokens < 10; ++prompt_tokens) {
    for (size_t output_tokens = 0; output_tokens < 10; ++output_tokens) {
      auto whole = tokens(prompt_tokens + output_tokens);
      const std::span<const TokenId> prompt = std::span(whole).first(prompt_tokens);
      const auto sequences = hash(prompt, 4, 7);
      const PromptView view({.prompt = prompt,
                             .sequences = sequences,
                             .output = std::span(whole).subspan(prompt_tokens),
                             .block_size = 4,
                             .seed = 7});

      const auto expected = hash(whole, 4, 7);
      EXPECT_EQ(view.tokens(), whole.size());
      EXPECT_EQ(std::vector(view.sequences().begin(), view.sequences().end()), expected);
    }
  }
}

TEST(PromptView, TheBlockOfTheLastTokenIsComputedAnyway) {
  for (const auto& [count, useful] : {std::pair{1, 0}, {4, 0}, {5, 1}, {8, 1}, {9, 2}}) {
    const auto prompt = tokens(static_cast<size_t>(count));
    const auto sequences = hash(prompt, 4, 7);
    const PromptView view({.prompt = prompt, .sequences = sequences, .block_size = 4, .seed = 7});
    EXPECT_EQ(view.useful().size(), static_cast<size_t>(useful)) << count;
  }
}

}  // namespace
}  // namespace stator::request
