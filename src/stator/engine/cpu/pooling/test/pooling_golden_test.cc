// SPDX-License-Identifier: Apache-2.0
// Pooling models against torch and transformers, on the checkpoints of pooling/testdata/.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "stator/engine/cpu/pooling/cpu_pool_runner.h"
#include "stator/engine/cpu/pooling/encoder_math.h"
#include "stator/engine/cpu/safetensors.h"

namespace stator::engine::cpu {
namespace {

constexpr int kTexts = 4;
constexpr float kTolerance = 2e-5F;

std::string folder_of(const std::string& name) {
  return std::string(STATOR_SOURCE_DIR) + "/src/stator/engine/cpu/pooling/testdata/" + name;
}

class PoolingGolden : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    const std::string path = folder_of(GetParam()) + "/golden.safetensors";
    auto file = io::MappedFile::open(path);
    ASSERT_TRUE(file.has_value());
    file_ = std::move(*file);
    auto infos = parse_safetensors_header(file_.bytes(), path);
    ASSERT_TRUE(infos.has_value());
    infos_ = std::move(*infos);
    auto model = load_pooling_model(folder_of(GetParam()), "auto");
    ASSERT_TRUE(model.has_value()) << model.error().message();
    ASSERT_NE(*model, nullptr);
    model_ = *model;
    for (int i = 0; i < kTexts; ++i) {
      const auto ids = golden<int32_t>(i, "tokens");
      tokens_.emplace_back(ids.begin(), ids.end());
    }
  }

  template <typename T>
  std::vector<T> golden(int text, std::string_view what) const {
    const std::string name = fmt::format("text{}.{}", text, what);
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

  inference::PoolTask task() const {
    return model_->spec.classifies ? inference::PoolTask::kClassify : inference::PoolTask::kEmbed;
  }

  PoolSequence sequence(int text, bool activate = true) const {
    return {.tokens = tokens_[static_cast<size_t>(text)],
            .first_length = static_cast<uint32_t>(golden<int32_t>(text, "first")[0]),
            .task = task(),
            .activate = activate};
  }

  std::vector<std::vector<float>> run(const std::vector<PoolSequence>& sequences,
                                      uint32_t threads = 1) const {
    auto runner = CpuPoolRunner::create(model_, {.threads = threads});
    EXPECT_TRUE(runner.has_value());
    std::vector<std::vector<float>> out(sequences.size());
    (*runner)->run(sequences, out);
    return out;
  }

  static void expect_near(const std::vector<float>& got, const std::vector<float>& wanted) {
    ASSERT_EQ(got.size(), wanted.size());
    for (size_t i = 0; i < got.size(); ++i) {
      EXPECT_NEAR(got[i], wanted[i], kTolerance) << "number " << i;
    }
  }

  io::MappedFile file_;
  std::vector<TensorInfo> infos_;
  std::shared_ptr<const PoolingModel> model_;
  std::vector<std::vector<TokenId>> tokens_;
};

TEST_P(PoolingGolden, NumbersAreTransformers) {
  for (int i = 0; i < kTexts; ++i) {
    SCOPED_TRACE(i);
    expect_near(run({sequence(i)})[0], golden<float>(i, "out"));
  }
}

TEST_P(PoolingGolden, RawNumbersAreTransformers) {
  // Vectors are no smaller than their number of dimensions, so the same tolerance is stricter.
  const auto raw = run({sequence(2, false)})[0];
  const auto wanted = golden<float>(2, "raw");
  ASSERT_EQ(raw.size(), wanted.size());
  for (size_t i = 0; i < raw.size(); ++i) {
    EXPECT_NEAR(raw[i], wanted[i], 1e-4F);
  }
}

TEST_P(PoolingGolden, BitsDoNotDependOnTheOthersNorOnThreads) {
  const std::vector<PoolSequence> all = {sequence(0), sequence(1), sequence(2), sequence(3)};
  const auto together = run(all);
  EXPECT_EQ(run(all, 2), together);
  for (int i = 0; i < kTexts; ++i) {
    EXPECT_EQ(run({sequence(i)})[0], together[static_cast<size_t>(i)]) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, PoolingGolden,
                         testing::Values("bert_mean", "bert_classes", "xlmr_cls", "xlmr_score",
                                         "llama_last", "llama_classes"),
                         [](const auto& instance) { return instance.param; });

TEST(EncoderMath, GeluIsExactToSevenDigits) {
  for (float x = -12; x < 12; x += 0.01F) {
    float value = x;
    const float bias = 0;
    add_bias_and_activate(&value, &bias, 1, EncoderActivation::kGelu);
    const double wanted = 0.5 * x * (1 + std::erf(x / std::sqrt(2.0)));
    EXPECT_NEAR(value, wanted, 3e-7 * std::max(1.0, std::abs(wanted))) << x;
  }
}

}  // namespace
}  // namespace stator::engine::cpu
