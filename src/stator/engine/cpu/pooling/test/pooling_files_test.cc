// SPDX-License-Identifier: Apache-2.0
#include "stator/engine/cpu/pooling/pooling_files.h"

#include <gtest/gtest.h>

#include <fmt/format.h>

#include "stator/engine/cpu/pooling/encoder_config.h"

namespace stator::engine::cpu {
namespace {

std::string config_of(std::string_view architecture, std::string_view more = "") {
  return fmt::format(R"({{"architectures":["{}"]{}}})", architecture, more);
}

std::optional<PoolingSpec> parsed(const PoolingFiles& files, std::string_view wanted = "auto") {
  auto spec = parse_pooling_spec(files, wanted);
  EXPECT_TRUE(spec.has_value()) << spec.error().message();
  return spec ? std::move(*spec) : std::nullopt;
}

TEST(PoolingFiles, AGeneratingModelIsNoneUnlessItIsToEmbed) {
  const PoolingFiles files{.config = config_of("Qwen3ForCausalLM")};
  EXPECT_FALSE(parsed(files));
  EXPECT_FALSE(parsed(files, "generate"));
  EXPECT_EQ(parsed(files, "embed")->pooling, Pooling::kLast);
}

TEST(PoolingFiles, SentenceTransformersFilesDecide) {
  const PoolingFiles files{
      .config = config_of("BertModel"),
      .modules = R"([{"type":"x.Transformer","path":""},{"type":"x.Pooling","path":"1_Pooling"}])",
      .pooling = R"({"pooling_mode_cls_token":false,"pooling_mode_mean_tokens":true})",
      .sentence_bert = R"({"max_seq_length":256})"};
  const auto spec = parsed(files);
  EXPECT_EQ(spec->pooling, Pooling::kMean);
  EXPECT_FALSE(spec->normalize);
  EXPECT_EQ(spec->tokens_max, 256U);
}

TEST(PoolingFiles, WithoutThemEncodersGiveTheirFirstToken) {
  const auto spec = parsed({.config = config_of("XLMRobertaModel")});
  EXPECT_EQ(spec->pooling, Pooling::kCls);
  EXPECT_TRUE(spec->normalize);
}

TEST(PoolingFiles, LabelsAndActivationOfClassifiers) {
  const auto three =
      parsed({.config = config_of("BertForSequenceClassification",
                                  R"(,"id2label":{"0":"bad","1":"so so","2":"good"})")});
  EXPECT_EQ(three->labels, (std::vector<std::string>{"bad", "so so", "good"}));
  EXPECT_EQ(three->activation, HeadActivation::kSoftmax);
  const auto score =
      parsed({.config = config_of("XLMRobertaForSequenceClassification", R"(,"num_labels":1)")});
  EXPECT_EQ(score->activation, HeadActivation::kSigmoid);
  const auto raw = parsed(
      {.config = config_of(
           "BertForSequenceClassification",
           R"(,"num_labels":1,"sbert_ce_default_activation_function":"torch.nn.modules.linear.Identity")")});
  EXPECT_EQ(raw->activation, HeadActivation::kNone);
}

TEST(PoolingFiles, WhatCannotBeComputedIsNamed) {
  const auto message = [](const PoolingFiles& files) {
    auto spec = parse_pooling_spec(files, "auto");
    return spec ? "accepted" : spec.error().message();
  };
  EXPECT_TRUE(message({.config = "{"}).contains("config.json"));
  EXPECT_TRUE(message({.config = config_of("BertModel"),
                       .pooling = R"({"pooling_mode_weightedmean_tokens":true})"})
                  .contains("pooling mode"));
  EXPECT_TRUE(message({.config = config_of("BertModel"),
                       .modules = R"([{"type":"x.Pooling","path":"1_Pooling"}])"})
                  .contains("1_Pooling/config.json"));
  EXPECT_TRUE(message({.config = config_of("BertModel"),
                       .modules = R"([{"type":"x.Dense","path":"2_Dense"}])"})
                  .contains("Dense"));
}

TEST(EncoderConfig, NamesTheFieldThatIsWrong) {
  const auto message = [](std::string_view change) {
    std::string config =
        R"({"vocab_size":10,"num_hidden_layers":1,"hidden_size":32,"intermediate_size":16,)"
        R"("num_attention_heads":2,"max_position_embeddings":8,"type_vocab_size":2)";
    config += std::string(change) + "}";
    auto parsed = parse_encoder_config(config, {});
    return parsed ? "accepted" : parsed.error().message();
  };
  EXPECT_EQ(message(""), "accepted");
  EXPECT_TRUE(message(R"(,"hidden_size":-1)").contains("hidden_size"));
  EXPECT_TRUE(message(R"(,"hidden_size":40)").contains("hidden_size"));
  EXPECT_TRUE(message(R"(,"num_attention_heads":3)").contains("num_attention_heads"));
  EXPECT_TRUE(message(R"(,"hidden_act":"swish")").contains("hidden_act"));
  EXPECT_TRUE(message(R"(,"position_embedding_type":"rotary")").contains("rotary"));
}

}  // namespace
}  // namespace stator::engine::cpu
