// SPDX-License-Identifier: Apache-2.0
#include "stator/engine/cpu/model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "stator/engine/cpu/test/runner_fixture.h"

namespace stator::engine::cpu {
namespace {

using testing::HasSubstr;

/// A copy of a golden checkpoint that a test may damage.
class LoadModel : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = testing::TempDir() + "load_model_" +
              testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(folder_);
    std::filesystem::copy(testing_support::testdata("qwen2_bf16_bias"), folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string config() const {
    std::ifstream file(folder_ + "/config.json");
    return {std::istreambuf_iterator<char>(file), {}};
  }
  void replace_in_config(std::string_view from, std::string_view to) const {
    std::string text = config();
    const size_t at = text.find(from);
    ASSERT_NE(at, std::string::npos);
    text.replace(at, from.size(), to);
    std::ofstream(folder_ + "/config.json") << text;
  }
  void expect_error(Code code, std::string_view message) const {
    const auto model = load_model(folder_);
    ASSERT_FALSE(model.has_value());
    EXPECT_EQ(model.error().code(), code) << model.error().to_string();
    EXPECT_THAT(model.error().message(), HasSubstr(message));
    EXPECT_THAT(model.error().message(), HasSubstr("loading model " + folder_));
  }
  std::string folder_;
};

TEST_F(LoadModel, ReadsConfigWeightsAndDefaults) {
  const auto model = load_model(folder_);

  ASSERT_TRUE(model.has_value()) << model.error().to_string();
  EXPECT_EQ((*model)->config.architecture, "Qwen2ForCausalLM");
  EXPECT_THAT((*model)->defaults.eos_token_ids, testing::ElementsAre(2));
  EXPECT_EQ((*model)->weights.layers.size(), 2U);
  EXPECT_EQ((*model)->weights.head().outputs(), 300);
}

TEST_F(LoadModel, WorksWithoutGenerationConfig) {
  std::filesystem::remove(folder_ + "/generation_config.json");
  const auto model = load_model(folder_);
  ASSERT_TRUE(model.has_value());
  EXPECT_THAT((*model)->defaults.eos_token_ids, testing::ElementsAre(2));
}

TEST_F(LoadModel, NeedsNoFileOnceLoaded) {
  const auto model = load_model(folder_);
  ASSERT_TRUE(model.has_value());
  std::filesystem::resize_file(folder_ + "/model.safetensors", 0);

  std::vector<float> row(32);
  (*model)->weights.embedding.copy_row(299, row.data());

  EXPECT_THAT(row, testing::Contains(testing::Ne(0.0F)));
}

TEST_F(LoadModel, NamesMissingFiles) {
  std::filesystem::remove(folder_ + "/model.safetensors");
  expect_error(Code::kNotFound, "neither model.safetensors nor");
  std::filesystem::remove(folder_ + "/config.json");
  expect_error(Code::kNotFound, "config.json");
}

TEST_F(LoadModel, NamesMissingTensors) {
  replace_in_config(R"("num_hidden_layers": 2)", R"("num_hidden_layers": 3)");
  replace_in_config(R"("full_attention",)", R"("full_attention", "full_attention",)");
  expect_error(Code::kCorrupt, "model.layers.2.input_layernorm.weight");
  expect_error(Code::kCorrupt, "lacks 12 tensor(s)");
}

TEST_F(LoadModel, NamesTensorsOfWrongShape) {
  replace_in_config(R"("vocab_size": 300)", R"("vocab_size": 301)");
  expect_error(
      Code::kCorrupt,
      "tensor 'model.embed_tokens.weight' has shape [300, 32], config.json says [301, 32]");
}

TEST_F(LoadModel, SaysThatAFileIsTruncated) {
  std::filesystem::resize_file(folder_ + "/model.safetensors", 30000);
  expect_error(Code::kCorrupt, "model.safetensors: the file is truncated");
}

TEST(MakeModel, RefusesDtypesItDoesNotComputeWith) {
  auto config = testing_support::golden_model("qwen2_bf16_bias")->config;
  TensorMap tensors;
  for (const ExpectedTensor& expected : expected_tensors(config)) {
    tensors[expected.name] = {.dtype = Dtype::kI8, .shape = expected.shape};
  }

  const auto model = make_model(config, {}, tensors);

  ASSERT_FALSE(model.has_value());
  EXPECT_EQ(model.error().code(), Code::kUnsupported);
  EXPECT_THAT(model.error().message(), HasSubstr("I8"));
}

}  // namespace
}  // namespace stator::engine::cpu
