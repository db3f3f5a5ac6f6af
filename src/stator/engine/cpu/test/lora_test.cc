// SPDX-License-Identifier: Apache-2.0
// A LoRA adapter against the same model with the adapter merged into its weights.
#include "stator/engine/cpu/lora.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "stator/engine/cpu/lora_shelf.h"
#include "stator/engine/cpu/test/runner_fixture.h"

namespace stator::engine::cpu {
namespace {

using testing::HasSubstr;
using testing_support::block_range;
using testing_support::make_runner;
using testing_support::random_tokens;
using testing_support::step;
using testing_support::TestSequence;

constexpr uint64_t kRank = 4;
constexpr float kScale = 8.0F / 4;
constexpr std::string_view kConfig =
    R"({"peft_type":"LORA","r":4,"lora_alpha":8,"bias":"none","target_modules":["q_proj"]})";

struct Tensor {
  std::vector<uint64_t> shape;
  std::vector<float> values;
};
using Tensors = std::map<std::string, Tensor>;

TensorMap views(const Tensors& tensors) {
  TensorMap out;
  for (const auto& [name, tensor] : tensors) {
    out.emplace(name, TensorView{.dtype = Dtype::kF32,
                                 .shape = tensor.shape,
                                 .bytes = std::as_bytes(std::span(tensor.values))});
  }
  return out;
}

Tensor random_tensor(Random& random, std::vector<uint64_t> shape, double width) {
  Tensor out{.shape = std::move(shape), .values = {}};
  size_t count = 1;
  for (const uint64_t extent : out.shape) {
    count *= extent;
  }
  for (size_t i = 0; i < count; ++i) {
    out.values.push_back(static_cast<float>((random.uniform() - 0.5) * width));
  }
  return out;
}

struct Base {
  ModelConfig config{.architecture = "LlamaForCausalLM",
                     .vocab_size = 96,
                     .layers = 2,
                     .hidden_size = 32,
                     .intermediate_size = 40,
                     .heads = 4,
                     .kv_heads = 2,
                     .head_dim = 8,
                     .max_positions = 128,
                     .tied_embeddings = true};
  Tensors tensors;

  enum class Kind : uint8_t { kDense, kExperts };
  explicit Base(Kind kind = Kind::kDense) {
    config.sliding_window.assign(config.layers, 0);
    if (kind == Kind::kExperts) {
      config.tied_embeddings = false;
      config.experts = {.count = 4,
                        .per_token = 2,
                        .inner_size = 24,
                        .normalize = true,
                        .dense_layers = {true, false}};
    }
    Random random(1);
    for (const ExpectedTensor& expected : expected_tensors(config)) {
      tensors[expected.name] = random_tensor(random, expected.shape, 1.0);
    }
  }
  std::shared_ptr<const Model> model() const { return *make_model(config, {}, views(tensors)); }
};

/// Random A and B for every projection of every layer.
Tensors random_adapter(const Base& base, uint64_t seed) {
  Random random(seed);
  Tensors out;
  for (const auto& [name, tensor] : base.tensors) {
    if (name.contains("embed_tokens") && !base.config.tied_embeddings) {
      const std::string module = "base_model.model.model.embed_tokens";
      out[module + ".lora_embedding_A"] = random_tensor(random, {kRank, tensor.shape[0]}, 0.5);
      out[module + ".lora_embedding_B"] = random_tensor(random, {tensor.shape[1], kRank}, 0.5);
    }
    if (name.contains("_proj.") || name.contains("mlp.gate.") || name.contains("lm_head")) {
      const std::string module =
          "base_model.model." + name.substr(0, name.size() - std::string_view(".weight").size());
      out[module + ".lora_A.weight"] = random_tensor(random, {kRank, tensor.shape[1]}, 0.5);
      out[module + ".lora_B.weight"] = random_tensor(random, {tensor.shape[0], kRank}, 0.5);
    }
  }
  return out;
}

Base merged(Base base, const Tensors& adapter) {
  if (const auto a = adapter.find("base_model.model.model.embed_tokens.lora_embedding_A");
      a != adapter.end()) {
    const Tensor& b = adapter.at("base_model.model.model.embed_tokens.lora_embedding_B");
    Tensor& table = base.tensors.at("model.embed_tokens.weight");
    for (size_t i = 0; i < table.values.size(); ++i) {
      const size_t token = i / table.shape[1];
      for (size_t r = 0; r < kRank; ++r) {
        table.values[i] += kScale * b.values[i % table.shape[1] * kRank + r] *
                           a->second.values[r * table.shape[0] + token];
      }
    }
  }
  for (auto& [name, tensor] : base.tensors) {
    const std::string module =
        "base_model.model." + name.substr(0, name.size() - std::string_view(".weight").size());
    const auto a = adapter.find(module + ".lora_A.weight");
    if (a == adapter.end()) {
      continue;
    }
    const Tensor& b = adapter.at(module + ".lora_B.weight");
    const size_t inputs = tensor.shape[1];
    for (size_t i = 0; i < tensor.values.size(); ++i) {
      for (size_t r = 0; r < kRank; ++r) {
        tensor.values[i] +=
            kScale * b.values[i / inputs * kRank + r] * a->second.values[r * inputs + i % inputs];
      }
    }
  }
  return base;
}

std::vector<float> logits_of(CpuModelRunner& runner, const std::vector<TokenId>& tokens,
                             const Adapter* adapter, uint32_t first_block) {
  TestSequence sequence(1, tokens, block_range(first_block, 3));
  std::vector<float> out;
  runner.set_logits_observer(
      [&](size_t, std::span<const float> logits) { out.assign(logits.begin(), logits.end()); });
  std::vector<SequenceSlice> slices{sequence.slice(static_cast<uint32_t>(tokens.size()))};
  slices[0].adapter = adapter;
  std::vector<Sampled> sampled(1);
  runner.run(slices, sampled);
  return out;
}

class LoraOf : public testing::TestWithParam<Base::Kind> {};

TEST_P(LoraOf, EqualsTheMergedModelAlsoBesideOthers) {
  const Base base(GetParam());
  const Tensors tensors[] = {random_adapter(base, 2), random_adapter(base, 3)};
  const auto tokens = random_tokens(4, 30, 96);
  const auto runner = make_runner(base.model(), {.kv_blocks = 16, .threads = 2});
  std::shared_ptr<const LoraAdapter> adapters[2];
  std::vector<std::vector<float>> alone;
  for (const size_t i : {size_t{0}, size_t{1}}) {
    auto made = make_lora(kConfig, views(tensors[i]), base.config, 64);
    ASSERT_TRUE(made.has_value()) << made.error().to_string();
    adapters[i] = *made;
    const auto reference = make_runner(merged(base, tensors[i]).model(), {.kv_blocks = 4});
    const auto expected = logits_of(*reference, tokens, nullptr, 0);
    alone.push_back(logits_of(*runner, tokens, adapters[i].get(), 0));
    for (size_t t = 0; t < expected.size(); ++t) {
      ASSERT_NEAR(alone[i][t], expected[t], 1e-4);
    }
  }
  EXPECT_NE(adapters[0]->identity(), adapters[1]->identity());
  alone.push_back(logits_of(*runner, tokens, nullptr, 0));

  // All three in one batch, row by row bit-equal to each alone.
  TestSequence sequences[] = {TestSequence(1, tokens, block_range(0, 3)),
                              TestSequence(2, tokens, block_range(3, 3)),
                              TestSequence(3, tokens, block_range(6, 3))};
  std::vector<SequenceSlice> slices;
  for (size_t i = 0; i < 3; ++i) {
    slices.push_back(sequences[i].slice(30));
    slices.back().adapter = i < 2 ? adapters[i].get() : nullptr;
  }
  std::vector<std::vector<float>> together(3);
  runner->set_logits_observer([&](size_t slice, std::span<const float> logits) {
    together[slice].assign(logits.begin(), logits.end());
  });
  std::vector<Sampled> sampled(3);
  runner->run(slices, sampled);
  EXPECT_EQ(together, alone);
}

INSTANTIATE_TEST_SUITE_P(Models, LoraOf, testing::Values(Base::Kind::kDense, Base::Kind::kExperts));

TEST(Lora, FitsModelsWhoseRowsAreInPairs) {
  const Base base;
  const Tensors adapter = random_adapter(base, 2);
  const auto tokens = random_tokens(4, 30, 96);
  const auto reference = make_runner(merged(base, adapter).model(), {.kv_blocks = 4});
  const auto expected = logits_of(*reference, tokens, nullptr, 0);
  Base paired = base;  // the same model as GGUF has it
  paired.config.rope.interleaved = true;
  paired.config.query_key_paired = true;
  for (auto& [name, tensor] : paired.tensors) {
    if (!name.contains("q_proj") && !name.contains("k_proj")) {
      continue;
    }
    const size_t inputs = tensor.shape[1];
    const std::vector<float> rows = tensor.values;
    for (size_t i = 0; i < tensor.shape[0]; ++i) {
      const size_t from = i / 8 * 8 + i % 2 * 4 + i % 8 / 2;
      std::copy_n(rows.begin() + static_cast<ptrdiff_t>(from * inputs), inputs,
                  tensor.values.begin() + static_cast<ptrdiff_t>(i * inputs));
    }
  }
  auto made = make_lora(kConfig, views(adapter), paired.config, 64);
  ASSERT_TRUE(made.has_value()) << made.error().to_string();
  const auto runner = make_runner(paired.model(), {.kv_blocks = 4});

  const auto logits = logits_of(*runner, tokens, made->get(), 0);

  for (size_t t = 0; t < expected.size(); ++t) {
    ASSERT_NEAR(logits[t], expected[t], 1e-4);
  }
}

TEST(Lora, RefusesExpertsThatAreNotThere) {
  const Base base(Base::Kind::kExperts);
  const auto error = [&](const std::string& module) {
    Tensors tensors = random_adapter(base, 2);
    Random random(1);
    tensors["base_model.model.model." + module + ".lora_A.weight"] =
        random_tensor(random, {kRank, 32}, 1);
    return std::string(make_lora(kConfig, views(tensors), base.config, 64).error().message());
  };
  EXPECT_THAT(error("layers.1.mlp.experts.4.up_proj"), HasSubstr("mlp.experts.4.up_proj'"));
  EXPECT_THAT(error("layers.0.mlp.experts.0.up_proj"), HasSubstr("mlp.experts.0.up_proj'"));
  EXPECT_THAT(error("layers.1.mlp.up_proj"), HasSubstr("layers.1.mlp.up_proj'"));
  EXPECT_THAT(error("layers.1.mlp.experts.base_layer"), HasSubstr("mlp.experts.base_layer'"));
}

TEST(Lora, RefusesWhatItDoesNotComputeByName) {
  const Base base;
  const Tensors good = random_adapter(base, 2);
  const std::string module = "base_model.model.model.layers.1.self_attn.q_proj";
  const auto error = [&](std::string_view config, const Tensors& tensors, uint32_t rank_max = 64) {
    const auto made = make_lora(config, views(tensors), base.config, rank_max);
    return made.has_value() ? std::string("accepted") : std::string(made.error().message());
  };
  Tensors rank = good;
  Random random(1);
  rank[module + ".lora_A.weight"] = random_tensor(random, {5, 32}, 1);
  EXPECT_THAT(error(kConfig, rank), HasSubstr("self_attn.q_proj' has rank 5"));
  Tensors half = good;
  half.erase(module + ".lora_B.weight");
  EXPECT_THAT(error(kConfig, half), HasSubstr("no matrix lora_B"));
  Tensors inputs = good;
  inputs[module + ".lora_A.weight"] = random_tensor(random, {kRank, 31}, 1);
  EXPECT_THAT(error(kConfig, inputs), HasSubstr("maps 31 inputs"));
  Tensors foreign = good;
  foreign["base_model.model.model.layers.7.self_attn.q_proj.lora_A.weight"] =
      random_tensor(random, {kRank, 32}, 1);
  EXPECT_THAT(error(kConfig, foreign), HasSubstr("model.layers.7.self_attn.q_proj"));
  Tensors unknown = good;
  unknown["base_model.model.model.norm.lora_A.weight"] = random_tensor(random, {kRank, 32}, 1);
  EXPECT_THAT(error(kConfig, unknown), HasSubstr("module 'model.norm'"));
  Tensors embedding = good;
  embedding["base_model.model.model.embed_tokens.lora_A.weight"] =
      random_tensor(random, {kRank, 32}, 1);
  EXPECT_THAT(error(kConfig, embedding), HasSubstr("embed_tokens' has no matrix lora_B"));
  EXPECT_THAT(error(kConfig, good, 3), HasSubstr("--max-lora-rank 3"));
  EXPECT_THAT(error(R"({"r":4,"lora_alpha":8,"use_dora":true})", good), HasSubstr("use_dora"));
  EXPECT_THAT(error(R"({"r":4,"lora_alpha":8,"bias":"all"})", good), HasSubstr("bias 'all'"));
  EXPECT_THAT(error(R"({"r":4})", good), HasSubstr("lora_alpha"));
  EXPECT_THAT(error(R"({"r":4,"lora_alpha":8,"modules_to_save":["lm_head"]})", good),
              HasSubstr("modules_to_save is set"));
  EXPECT_THAT(
      error(R"({"r":4,"lora_alpha":8,"trainable_token_indices":{"embed_tokens":[1]}})", good),
      HasSubstr("trainable_token_indices is set"));
  EXPECT_THAT(error(R"({"r":4,"lora_alpha":8,"init_lora_weights":"pissa_niter_4"})", good),
              HasSubstr("init_lora_weights 'pissa_niter_4'"));
  EXPECT_THAT(error(R"({"r":4,"lora_alpha":8,"alpha_pattern":{".*q_proj":4}})", good),
              HasSubstr("alpha_pattern '.*q_proj' is a regular expression"));
  EXPECT_THAT(error("{", good), HasSubstr("adapter_config.json"));
  EXPECT_THAT(error(kConfig, {}), HasSubstr("no matrix"));
}

TEST(Lora, PatternsAndRsloraChangeTheScale) {
  const Base base;
  const Tensors tensors = random_adapter(base, 2);
  const auto made = make_lora(
      R"({"r":4,"lora_alpha":8,"use_rslora":true,"alpha_pattern":{"k_proj":6,
          "layers.0.mlp.up_proj":2,"^model\\.layers\\.1\\.mlp\\.down_proj":4}})",
      views(tensors), base.config, 64);
  ASSERT_TRUE(made.has_value()) << made.error().to_string();
  const auto scale = [&](size_t layer, LoraTarget target) {
    return (*made)->layers[layer][static_cast<size_t>(target)].scale;
  };
  EXPECT_EQ(scale(0, LoraTarget::kQuery), 4.0F);
  EXPECT_EQ(scale(1, LoraTarget::kKey), 3.0F);
  EXPECT_EQ(scale(0, LoraTarget::kUp), 1.0F);
  EXPECT_EQ(scale(1, LoraTarget::kUp), 4.0F);
  EXPECT_EQ(scale(0, LoraTarget::kDown), 4.0F);
  EXPECT_EQ(scale(1, LoraTarget::kDown), 2.0F);
}

TEST(LoraShelf, NamesAreTakenOnceAndRoomIsBounded) {
  const Base base;
  LoraShelf shelf(base.model(), {.adapters = 1, .rank = 64});
  EXPECT_EQ(shelf.unload("a").error().code(), Code::kNotFound);
  EXPECT_EQ(shelf.load("a", "/nowhere").error().code(), Code::kNotFound);
  EXPECT_TRUE(shelf.names().empty());
  EXPECT_EQ(shelf.find("a"), nullptr);
  LoraShelf none(base.model(), {.adapters = 0, .rank = 64});
  EXPECT_THAT(none.load("a", "/nowhere").error().message(), HasSubstr("--max-loras"));
}

}  // namespace
}  // namespace stator::engine::cpu
