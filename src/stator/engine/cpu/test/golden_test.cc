// SPDX-License-Identifier: Apache-2.0
// The whole engine against torch and transformers, on the checkpoints of testdata/.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "stator/engine/cpu/test/runner_fixture.h"

namespace stator::engine::cpu {
namespace {

using testing_support::block_range;
using testing_support::generate;
using testing_support::golden_model;
using testing_support::make_runner;
using testing_support::testdata;
using testing_support::TestSequence;

constexpr uint32_t kBlocks = 8;
constexpr int kPrompts = 3;

class Golden : public testing::TestWithParam<std::tuple<std::string, Isa>> {
 protected:
  void SetUp() override {
    const auto& [name, isa] = GetParam();
    if (!supports(isa)) {
      GTEST_SKIP() << "this machine cannot run " << to_string(isa)
                   << " code; the others are tested";
    }
    const std::string path = testdata(name + "/golden.safetensors");
    auto file = io::MappedFile::open(path);
    ASSERT_TRUE(file.has_value());
    file_ = std::move(*file);
    auto infos = parse_safetensors_header(file_.bytes(), path);
    ASSERT_TRUE(infos.has_value());
    infos_ = std::move(*infos);
    model_ = golden_model(name);
    runner_ = make_runner(model_, {.kv_blocks = kBlocks, .isa = isa});
  }

  template <typename T>
  std::vector<T> golden(const std::string& name) const {
    for (const TensorInfo& info : infos_) {
      if (info.name == name) {
        std::vector<T> values((info.end - info.begin) / sizeof(T));
        std::memcpy(values.data(), file_.bytes().data() + info.begin, info.end - info.begin);
        return values;
      }
    }
    ADD_FAILURE() << "no golden named " << name;
    return {};
  }

  TestSequence prompt(int index) const {
    const auto ids = golden<int32_t>(fmt::format("prompt{}.tokens", index));
    return TestSequence(1, {ids.begin(), ids.end()}, block_range(0, kBlocks));
  }

  io::MappedFile file_;
  std::vector<TensorInfo> infos_;
  std::shared_ptr<const Model> model_;
  std::unique_ptr<CpuModelRunner> runner_;
};

float largest_difference(std::span<const float> a, std::span<const float> b) {
  float largest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    largest = std::max(largest, std::abs(a[i] - b[i]));
  }
  return largest;
}

TEST_P(Golden, LogitsOfEveryPositionMatch) {
  const auto expected = golden<float>("prompt0.logits");
  const TestSequence whole = prompt(0);
  const size_t vocab = model_->config.vocab_size;
  ASSERT_EQ(expected.size(), whole.tokens.size() * vocab);

  // Every prefix of the prompt in turn is the sequence: each position is sampled once.
  TestSequence growing = whole;
  float largest = 0;
  for (size_t length = 1; length <= whole.tokens.size(); ++length) {
    growing.tokens.assign(whole.tokens.begin(), whole.tokens.begin() + length);
    testing_support::step(*runner_, {&growing}, 1);
    const auto row = std::span(expected).subspan((length - 1) * vocab, vocab);
    largest = std::max(largest, largest_difference(growing.logits, row));
    ASSERT_LE(largest, 1e-4F) << "at position " << length - 1;
  }
  RecordProperty("largest_logit_difference",
                 fmt::format("{:.3g}", largest));  // for bench/goldens.py
}

TEST_P(Golden, LastLogitsAndGreedyContinuationMatch) {
  for (int index = 0; index < kPrompts; ++index) {
    TestSequence sequence = prompt(index);
    const auto logits = golden<float>(fmt::format("prompt{}.logits", index));
    const auto greedy = golden<int32_t>(fmt::format("prompt{}.greedy", index));

    testing_support::step(*runner_, {&sequence}, 1000);
    const auto last = std::span(logits).last(model_->config.vocab_size);
    EXPECT_LE(largest_difference(sequence.logits, last), 1e-4F);
    generate(*runner_, sequence, 1000, greedy.size());

    const std::vector<int32_t> output(sequence.tokens.begin() + sequence.prompt_tokens,
                                      sequence.tokens.end());
    EXPECT_EQ(output, greedy) << "prompt " << index;
  }
}

INSTANTIATE_TEST_SUITE_P(Models, Golden,
                         testing::Combine(testing::ValuesIn(testing_support::golden_names()),
                                          testing::Values(Isa::kBaseline, Isa::kAvx2,
                                                          Isa::kAvx512)),
                         [](const auto& info) {
                           return std::get<0>(info.param) + "_" +
                                  std::string(to_string(std::get<1>(info.param)));
                         });

}  // namespace
}  // namespace stator::engine::cpu
