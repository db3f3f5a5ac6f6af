// SPDX-License-Identifier: Apache-2.0
// I1 of CpuModelRunner: nothing but a sequence's own tokens can change a bit of its results.
#include <gtest/gtest.h>

#include "stator/engine/cpu/test/runner_fixture.h"

namespace stator::engine::cpu {
namespace {

using testing_support::block_range;
using testing_support::generate;
using testing_support::golden_model;
using testing_support::make_runner;
using testing_support::random_tokens;
using testing_support::step;
using testing_support::TestSequence;

constexpr uint32_t kBlocks = 64;
constexpr uint32_t kPromptTokens = 75;  // four blocks and a part
constexpr uint32_t kSequenceBlocks = 8;
constexpr size_t kOutputs = 12;

/// Everything a computation left behind.
struct Outcome {
  std::vector<TokenId> tokens;
  std::vector<float> logits;
  std::vector<uint64_t>
      blocks;  ///< checksums; blocks with uncomputed positions hold only zeros there
  friend bool operator==(const Outcome&, const Outcome&) = default;
};

Outcome outcome_of(CpuModelRunner& runner, const TestSequence& sequence) {
  Outcome outcome{.tokens = sequence.tokens, .logits = sequence.logits};
  for (const BlockId block : sequence.blocks) {
    outcome.blocks.push_back(runner.kv().checksum(block));
  }
  return outcome;
}

class Determinism : public testing::TestWithParam<std::string> {
 protected:
  std::shared_ptr<const Model> model_ = golden_model(GetParam());

  std::unique_ptr<CpuModelRunner> runner(CpuRunnerConfig config = {}) const {
    config.kv_blocks = kBlocks;
    return make_runner(model_, config);
  }
  TestSequence sequence(uint64_t seed, uint32_t first_block) const {
    return TestSequence(seed, random_tokens(seed, kPromptTokens, model_->config.vocab_size),
                        block_range(first_block, kSequenceBlocks));
  }
  Outcome reference() const {
    const auto alone = runner();
    TestSequence subject = sequence(7, 0);
    generate(*alone, subject, 1000, kOutputs);
    return outcome_of(*alone, subject);
  }
};

TEST_P(Determinism, ChunksDoNotMatter) {
  const Outcome expected = reference();
  for (const uint32_t chunk : {1U, 7U, 64U}) {
    const auto chunked = runner();
    TestSequence subject = sequence(7, 0);

    generate(*chunked, subject, chunk, kOutputs);

    EXPECT_EQ(outcome_of(*chunked, subject), expected) << "chunk " << chunk;
  }
}

TEST_P(Determinism, NeighboursDoNotMatter) {
  const Outcome expected = reference();
  const auto shared = runner();
  TestSequence subject = sequence(7, 40);
  std::vector<TestSequence> others;
  for (uint32_t i = 0; i < 5; ++i) {
    others.push_back(sequence(100 + i, i * kSequenceBlocks));
  }

  // The others are at different points of their prompts and outputs, and the subject moves through
  // the batch.
  for (size_t round = 0; subject.tokens.size() < kPromptTokens + kOutputs; ++round) {
    std::vector<TestSequence*> batch;
    for (size_t i = 0; i < others.size(); ++i) {
      if (i == round % others.size()) {
        batch.push_back(&subject);
      }
      if ((round + i) % 3 != 0 && others[i].tokens.size() < kPromptTokens + kOutputs) {
        batch.push_back(&others[i]);
      }
    }
    step(*shared, batch, round % 2 == 0 ? 9 : 30);
  }

  EXPECT_EQ(outcome_of(*shared, subject), expected);
}

TEST_P(Determinism, MoreRowsThanOneRunHoldsDoNotMatter) {
  const Outcome expected = reference();
  const auto shared = runner();
  TestSequence subject = sequence(7, 40);
  std::vector<TestSequence> others;
  std::vector<TestSequence*> batch;
  for (uint32_t i = 0; i < 5; ++i) {
    others.push_back(sequence(100 + i, i * kSequenceBlocks));
  }
  for (TestSequence& other : others) {
    batch.push_back(&other);
  }
  batch.insert(batch.begin() + 3, &subject);  // its rows straddle the limit of 256

  step(*shared, batch, 1000);
  generate(*shared, subject, 1000, kOutputs);

  EXPECT_EQ(outcome_of(*shared, subject), expected);
}

TEST_P(Determinism, ReusedPrefixBlocksDoNotMatter) {
  const Outcome expected = reference();
  const auto cached = runner();
  TestSequence first = sequence(7, 0);
  generate(*cached, first, 1000, 1);
  // Four full blocks are shared, the rest is computed into other blocks.
  TestSequence second = sequence(7, 20);
  std::copy_n(first.blocks.begin(), 4, second.blocks.begin());
  second.computed = 64;

  generate(*cached, second, 1000, kOutputs);

  EXPECT_EQ(outcome_of(*cached, second), expected);
}

TEST_P(Determinism, MovedBlocksDoNotMatter) {
  const Outcome expected = reference();
  const auto source = runner();
  const auto target = runner();
  TestSequence subject = sequence(7, 0);
  generate(*source, subject, 1000, 5);
  // Migration: the bytes of the blocks go to other blocks of another runner.
  TestSequence moved = subject;
  for (size_t i = 0; i < moved.blocks.size(); ++i) {
    moved.blocks[i] = BlockId(static_cast<uint32_t>(30 + i));
    std::ranges::copy(source->kv().block_view(subject.blocks[i]),
                      target->kv().block_view(moved.blocks[i]).begin());
  }

  generate(*target, moved, 1000, kOutputs);

  EXPECT_EQ(outcome_of(*target, moved), expected);
}

TEST_P(Determinism, ThreadsDoNotMatter) {
  const Outcome expected = reference();
  for (const uint32_t threads : {2U, 3U}) {
    const auto team = runner({.threads = threads});
    TestSequence subject = sequence(7, 0);

    generate(*team, subject, 50, kOutputs);

    EXPECT_EQ(outcome_of(*team, subject), expected) << threads << " threads";
  }
}

TEST_P(Determinism, WideInstructionSetsAgree) {
  if (!supports(Isa::kAvx512)) {
    GTEST_SKIP() << "this machine cannot run avx512 code; the other widths are compared";
  }
  std::vector<Outcome> outcomes;
  for (const Isa isa : {Isa::kAvx2, Isa::kAvx512}) {
    const auto runner_of_isa = runner({.isa = isa});
    TestSequence subject = sequence(7, 0);
    generate(*runner_of_isa, subject, 1000, kOutputs);
    outcomes.push_back(outcome_of(*runner_of_isa, subject));
  }
  EXPECT_EQ(outcomes[0], outcomes[1]);
}

TEST_P(Determinism, PreemptionDoesNotChangeSampledTokens) {
  const auto runner_of_both = runner({.seed = 3});
  inference::SamplingParams sampling{.temperature = 1.0F, .top_p = 0.95F, .seed = 11};
  TestSequence whole = sequence(7, 0);
  whole.sampling = sampling;
  generate(*runner_of_both, whole, 1000, kOutputs);
  // Preempted after 5 tokens and computed again from nothing, under another sequence id.
  TestSequence resumed = sequence(7, 20);
  resumed.sampling = sampling;
  generate(*runner_of_both, resumed, 1000, 5);
  resumed.computed = 0;
  resumed.id = 99;

  generate(*runner_of_both, resumed, 20, kOutputs);

  EXPECT_EQ(resumed.tokens, whole.tokens);
}

INSTANTIATE_TEST_SUITE_P(Models, Determinism, testing::ValuesIn(testing_support::golden_names()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace stator::engine::cpu
