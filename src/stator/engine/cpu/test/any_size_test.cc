// SPDX-License-Identifier: Apache-2.0
// A model none of whose sizes is a multiple of 16, against the same arithmetic in double precision.
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "stator/engine/cpu/test/runner_fixture.h"

namespace stator::engine::cpu {
namespace {

using testing_support::block_range;
using testing_support::make_runner;
using testing_support::random_tokens;
using testing_support::step;
using testing_support::TestSequence;

using Vector = std::vector<double>;

ModelConfig odd_config() {
  ModelConfig config{.architecture = "Qwen3ForCausalLM",
                     .vocab_size = 77,
                     .layers = 2,
                     .hidden_size = 36,
                     .intermediate_size = 50,
                     .heads = 6,
                     .kv_heads = 2,
                     .head_dim = 10,
                     .max_positions = 256,
                     .tied_embeddings = true,
                     .query_key_norm = true};
  config.sliding_window.assign(config.layers, 0);
  return config;
}

struct OddModel {
  ModelConfig config = odd_config();
  std::map<std::string, std::vector<float>> values;
  std::shared_ptr<const Model> model;

  OddModel() {
    Random random(5);
    TensorMap tensors;
    for (const ExpectedTensor& expected : expected_tensors(config)) {
      size_t count = 1;
      for (const uint64_t extent : expected.shape) {
        count *= extent;
      }
      auto& own = values[expected.name];
      for (size_t i = 0; i < count; ++i) {
        const double draw = random.uniform() - 0.5;
        own.push_back(static_cast<float>(expected.shape.size() == 1 ? 1 + 0.2 * draw : 0.6 * draw));
      }
      tensors.emplace(expected.name, TensorView{.dtype = Dtype::kF32,
                                                .shape = expected.shape,
                                                .bytes = std::as_bytes(std::span(own))});
    }
    model = *make_model(config, {}, tensors);
  }

  Vector multiply(const std::string& name, const Vector& x) const {
    const auto& w = values.at(name);
    Vector out(w.size() / x.size());
    for (size_t o = 0; o < out.size(); ++o) {
      for (size_t i = 0; i < x.size(); ++i) {
        out[o] += static_cast<double>(w[o * x.size() + i]) * x[i];
      }
    }
    return out;
  }
  void norm(const std::string& name, double* x, size_t count) const {
    double squares = 0;
    for (size_t i = 0; i < count; ++i) {
      squares += x[i] * x[i];
    }
    const double factor =
        1 / std::sqrt(squares / static_cast<double>(count) + config.rms_norm_epsilon);
    for (size_t i = 0; i < count; ++i) {
      x[i] *= factor * values.at(name)[i];
    }
  }
  void rotate(double* head, size_t position) const {
    const size_t half = config.head_dim / 2;
    for (size_t i = 0; i < half; ++i) {
      const double angle = static_cast<double>(position) *
                           std::pow(1e4, -2.0 * static_cast<double>(i) / config.head_dim);
      const double low = head[i];
      const double high = head[i + half];
      head[i] = low * std::cos(angle) - high * std::sin(angle);
      head[i + half] = high * std::cos(angle) + low * std::sin(angle);
    }
  }

  /// Logits behind the last token.
  Vector logits(const std::vector<TokenId>& tokens) const {
    const size_t hidden = config.hidden_size;
    const size_t dim = config.head_dim;
    std::vector<Vector> stream;
    for (const TokenId token : tokens) {
      const auto* row = values.at("model.embed_tokens.weight").data() + token * hidden;
      stream.emplace_back(row, row + hidden);
    }
    for (uint32_t layer = 0; layer < config.layers; ++layer) {
      const std::string at = "model.layers." + std::to_string(layer) + ".";
      std::vector<Vector> keys;
      std::vector<Vector> all_values;
      for (size_t position = 0; position < tokens.size(); ++position) {
        Vector x = stream[position];
        norm(at + "input_layernorm.weight", x.data(), hidden);
        Vector query = multiply(at + "self_attn.q_proj.weight", x);
        keys.push_back(multiply(at + "self_attn.k_proj.weight", x));
        all_values.push_back(multiply(at + "self_attn.v_proj.weight", x));
        for (size_t head = 0; head < config.heads; ++head) {
          norm(at + "self_attn.q_norm.weight", query.data() + head * dim, dim);
          rotate(query.data() + head * dim, position);
        }
        for (size_t head = 0; head < config.kv_heads; ++head) {
          norm(at + "self_attn.k_norm.weight", keys.back().data() + head * dim, dim);
          rotate(keys.back().data() + head * dim, position);
        }
        Vector attended(query.size());
        for (size_t head = 0; head < config.heads; ++head) {
          const size_t kv = head / (config.heads / config.kv_heads) * dim;
          Vector weights;
          double sum = 0;
          for (size_t t = 0; t <= position; ++t) {
            double dot = 0;
            for (size_t i = 0; i < dim; ++i) {
              dot += query[head * dim + i] * keys[t][kv + i];
            }
            weights.push_back(std::exp(dot / std::sqrt(static_cast<double>(dim))));
            sum += weights.back();
          }
          for (size_t t = 0; t <= position; ++t) {
            for (size_t i = 0; i < dim; ++i) {
              attended[head * dim + i] += weights[t] / sum * all_values[t][kv + i];
            }
          }
        }
        add(stream[position], multiply(at + "self_attn.o_proj.weight", attended));
        x = stream[position];
        norm(at + "post_attention_layernorm.weight", x.data(), hidden);
        Vector gate = multiply(at + "mlp.gate_proj.weight", x);
        const Vector up = multiply(at + "mlp.up_proj.weight", x);
        for (size_t i = 0; i < gate.size(); ++i) {
          gate[i] = gate[i] / (1 + std::exp(-gate[i])) * up[i];
        }
        add(stream[position], multiply(at + "mlp.down_proj.weight", gate));
      }
    }
    norm("model.norm.weight", stream.back().data(), hidden);
    return multiply("model.embed_tokens.weight", stream.back());
  }
  static void add(Vector& to, const Vector& more) {
    for (size_t i = 0; i < to.size(); ++i) {
      to[i] += more[i];
    }
  }
};

TEST(AnySize, LogitsMatchTheDefinitionForEveryBlockSize) {
  const OddModel odd;
  const auto tokens = random_tokens(3, 90, 77);
  const Vector expected = odd.logits(tokens);
  std::vector<float> first;
  for (const uint32_t block_size : {16U, 1U, 7U, 32U, 100U}) {
    const auto runner =
        make_runner(odd.model, {.block_size = block_size, .kv_blocks = 100, .threads = 2});
    TestSequence sequence(1, tokens, block_range(0, 91 / block_size + 1));
    while (sequence.left() > 0 && sequence.computed < tokens.size()) {
      step(*runner, {&sequence}, 13);
    }
    ASSERT_EQ(sequence.logits.size(), 77U);
    for (size_t i = 0; i < expected.size(); ++i) {
      ASSERT_NEAR(sequence.logits[i], expected[i], 1e-4) << "blocks of " << block_size;
    }
    if (first.empty()) {
      first = sequence.logits;
    }
    EXPECT_EQ(sequence.logits, first) << "blocks of " << block_size;
  }
}

class KvTypes : public testing::TestWithParam<KvType> {};

/// Every type: within its own rounding of f32, and bit-equal however the tokens are cut, in any
/// company, on every instruction set.
TEST_P(KvTypes, AreDeterministicAndCloseToF32) {
  const OddModel odd;
  const auto tokens = random_tokens(3, 90, 77);
  const Vector expected = odd.logits(tokens);
  const double tolerance = GetParam() == KvType::kF32   ? 1e-4
                           : GetParam() == KvType::kF16 ? 1e-2
                                                        : 0.15;
  std::vector<float> first;
  for (const Isa isa : {Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Vnni}) {
    for (const uint32_t chunk : {1U, 7U, 64U}) {
      if (!supports(isa)) {
        continue;
      }
      const auto runner = make_runner(
          odd.model,
          {.kv_blocks = 20, .threads = chunk % 2 + 1, .kv_type = GetParam(), .isa = isa});
      TestSequence sequence(1, tokens, block_range(0, 7));
      TestSequence other(2, random_tokens(9, 80, 77), block_range(7, 7));
      while (sequence.computed < tokens.size()) {
        std::vector<TestSequence*> batch{&sequence};
        if (chunk == 7 && other.computed < 80) {
          batch.insert(batch.begin(), &other);
        }
        step(*runner, batch, chunk);
      }
      for (size_t i = 0; i < expected.size(); ++i) {
        ASSERT_NEAR(sequence.logits[i], expected[i], tolerance);
      }
      if (first.empty()) {
        first = sequence.logits;
      }
      EXPECT_EQ(sequence.logits, first) << to_string(isa) << ", chunks of " << chunk;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, KvTypes,
                         testing::Values(KvType::kF32, KvType::kF16, KvType::kBf16, KvType::kInt8),
                         [](const auto& info) { return std::string(to_string(info.param)); });

}  // namespace
}  // namespace stator::engine::cpu
