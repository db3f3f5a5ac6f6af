// SPDX-License-Identifier: Apache-2.0
// Prefill and decode of whole models with random weights, in tokens per second.
#include <benchmark/benchmark.h>

#include <map>
#include <memory>
#include <vector>

#include "stator/core/random.h"
#include "stator/engine/cpu/cpu_model_runner.h"

namespace stator::engine::cpu {
namespace {

/// 5.2 M (the size of the demo model) and 164.9 M parameters.
ModelConfig shape(int64_t million_parameters) {
  const bool small = million_parameters < 100;
  ModelConfig config{.architecture = "Qwen3ForCausalLM",
                     .vocab_size = small ? 4096U : 32000U,
                     .layers = small ? 6U : 12U,
                     .hidden_size = small ? 256U : 1024U,
                     .intermediate_size = small ? 640U : 2560U,
                     .heads = small ? 4U : 16U,
                     .kv_heads = small ? 2U : 8U,
                     .head_dim = 64,
                     .max_positions = 4096,
                     .tied_embeddings = true,
                     .query_key_norm = true};
  config.sliding_window.assign(config.layers, 0);
  return config;
}

std::shared_ptr<const Model> random_model(int64_t million_parameters, bool bf16) {
  static std::map<std::pair<int64_t, bool>, std::shared_ptr<const Model>> models;
  auto& model = models[{million_parameters, bf16}];
  if (model != nullptr) {
    return model;
  }
  const ModelConfig config = shape(million_parameters);
  Random random(1);
  TensorMap tensors;
  std::vector<std::vector<std::byte>> storage;
  for (const ExpectedTensor& expected : expected_tensors(config)) {
    uint64_t elements = 1;
    for (const uint64_t extent : expected.shape) {
      elements *= extent;
    }
    const Dtype dtype = bf16 ? Dtype::kBf16 : Dtype::kF32;
    std::vector<std::byte> bytes(elements * dtype_bytes(dtype));
    for (uint64_t i = 0; i < elements; ++i) {
      const float value = (static_cast<float>(random.uniform()) - 0.5F) * 0.05F;
      const auto bits = __builtin_bit_cast(uint32_t, value);
      const uint32_t stored = bf16 ? bits >> 16U : bits;
      __builtin_memcpy(bytes.data() + i * dtype_bytes(dtype), &stored, dtype_bytes(dtype));
    }
    storage.push_back(std::move(bytes));
    tensors[expected.name] = {.dtype = dtype, .shape = expected.shape, .bytes = storage.back()};
  }
  model = *make_model(config, {}, tensors);
  return model;
}

struct Batch {
  std::vector<std::vector<TokenId>> tokens;
  std::vector<std::vector<BlockId>> blocks;
  inference::SamplingParams sampling{.temperature = 0.0F};
  std::vector<SequenceSlice> slices;
  std::vector<Sampled> sampled;

  Batch(size_t sequences, uint32_t prompt, uint32_t capacity, uint32_t vocab)
      : tokens(sequences), blocks(sequences), slices(sequences), sampled(sequences) {
    Random random(2);
    uint32_t next_block = 0;
    for (size_t i = 0; i < sequences; ++i) {
      tokens[i].reserve(capacity);
      for (uint32_t t = 0; t < prompt; ++t) {
        tokens[i].push_back(static_cast<TokenId>(random.below(vocab)));
      }
      for (uint32_t b = 0; b < (capacity + 15) / 16; ++b) {
        blocks[i].emplace_back(next_block++);
      }
      slices[i] = {.sequence = i,
                   .prompt_tokens = prompt,
                   .blocks = blocks[i],
                   .sample = true,
                   .sampling = &sampling};
    }
  }
  /// Computes everything from `start` on and appends one token to each sequence.
  void step(CpuModelRunner& runner, uint32_t start) {
    for (size_t i = 0; i < slices.size(); ++i) {
      slices[i].tokens = tokens[i];
      slices[i].start = start;
      slices[i].count = static_cast<uint32_t>(tokens[i].size()) - start;
    }
    runner.run(slices, sampled);
    for (size_t i = 0; i < slices.size(); ++i) {
      tokens[i].push_back(sampled[i].token);
    }
  }
};

std::unique_ptr<CpuModelRunner> make_runner(const benchmark::State& state) {
  auto model = random_model(state.range(0), state.range(1) == 16);
  return *CpuModelRunner::create(
      model, {.kv_blocks = 1024, .threads = static_cast<uint32_t>(state.range(2))});
}

void prefill(benchmark::State& state) {
  const auto runner = make_runner(state);
  constexpr uint32_t kPrompt = 512;
  for (auto _ : state) {
    Batch batch(1, kPrompt, kPrompt + 1, runner->vocab_size());
    batch.step(*runner, 0);
  }
  state.SetItemsProcessed(state.iterations() * kPrompt);
}

void decode(benchmark::State& state) {
  const auto runner = make_runner(state);
  constexpr uint32_t kPrompt = 64;
  constexpr uint32_t kOutputs = 64;
  const auto sequences = static_cast<size_t>(state.range(3));
  for (auto _ : state) {
    state.PauseTiming();
    Batch batch(sequences, kPrompt, kPrompt + kOutputs + 2, runner->vocab_size());
    batch.step(*runner, 0);
    state.ResumeTiming();
    for (uint32_t i = 0; i < kOutputs; ++i) {
      batch.step(*runner, kPrompt + i);
    }
  }
  state.SetItemsProcessed(state.iterations() * kOutputs * static_cast<int64_t>(sequences));
}

void shapes(benchmark::internal::Benchmark* bench, const std::vector<int64_t>& batches) {
  for (const int64_t parameters : {5, 165}) {
    for (const int64_t bits : {32, 16}) {
      for (const int64_t threads : {1, 2}) {
        for (const int64_t batch : batches) {
          bench->Args({parameters, bits, threads, batch});
        }
      }
    }
  }
  bench->ArgNames({"Mparams", "bits", "threads", "batch"})
      ->UseRealTime()
      ->Unit(benchmark::kMillisecond);
}
BENCHMARK(prefill)->Apply([](auto* bench) { shapes(bench, {1}); });
BENCHMARK(decode)->Apply([](auto* bench) { shapes(bench, {1, 4, 8}); });

}  // namespace
}  // namespace stator::engine::cpu
