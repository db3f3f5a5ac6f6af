// SPDX-License-Identifier: Apache-2.0
// Our product against oneDNN's, by rows: the figures of docs/adr/0003-cpu-engine-matmul.md.
// oneDNN's thread count is OMP_NUM_THREADS; ours is the last argument of a benchmark.
#include <benchmark/benchmark.h>

#include <memory>
#include <oneapi/dnnl/dnnl.hpp>
#include <vector>

#include "stator/core/random.h"
#include "stator/engine/cpu/matmul.h"

namespace stator::engine::cpu {
namespace {

struct Problem {
  int64_t rows;
  int64_t inputs;
  int64_t outputs;
  std::vector<float> activations;
  std::vector<float> weights;
  std::vector<float> out;

  explicit Problem(const benchmark::State& state)
      : rows(state.range(0)), inputs(state.range(1)), outputs(state.range(2)) {
    Random random(1);
    const auto fill = [&](std::vector<float>& values, int64_t count) {
      values.resize(static_cast<size_t>(count));
      for (float& value : values) {
        value = static_cast<float>(random.uniform()) - 0.5F;
      }
    };
    fill(activations, rows * inputs);
    fill(weights, inputs * outputs);
    out.resize(static_cast<size_t>(rows * outputs));
  }
  void report(benchmark::State& state) const {
    state.counters["GFLOP/s"] =
        benchmark::Counter(2e-9 * static_cast<double>(rows * inputs * outputs),
                           benchmark::Counter::kIsIterationInvariantRate);
  }
};

void multiply_own(benchmark::State& state, Dtype dtype) {
  Problem problem(state);
  std::vector<uint16_t> halves;
  TensorView view{
      .dtype = dtype,
      .shape = {static_cast<uint64_t>(problem.outputs), static_cast<uint64_t>(problem.inputs)},
      .bytes = std::as_bytes(std::span(problem.weights))};
  if (dtype == Dtype::kBf16) {
    for (const float weight : problem.weights) {
      halves.push_back(static_cast<uint16_t>(__builtin_bit_cast(uint32_t, weight) >> 16U));
    }
    view.bytes = std::as_bytes(std::span(halves));
  }
  auto packed = PackedMatrix::pack({&view, 1});
  ThreadTeam team(static_cast<uint32_t>(state.range(3)));
  Matmul matmul(kernels_for(detect_isa()), team);
  for (auto _ : state) {
    matmul.run(
        {.data = problem.activations.data(), .stride = problem.inputs, .count = problem.rows},
        *packed, problem.out.data(), problem.outputs);
    benchmark::ClobberMemory();
  }
  problem.report(state);
}

void own_f32(benchmark::State& state) {
  multiply_own(state, Dtype::kF32);
}
void own_bf16(benchmark::State& state) {
  multiply_own(state, Dtype::kBf16);
}

/// oneDNN at its best: weights reordered once into the layout it asks for.
void onednn_f32(benchmark::State& state) {
  Problem problem(state);
  const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  dnnl::stream stream(engine);
  using Tag = dnnl::memory::format_tag;
  constexpr auto kF32 = dnnl::memory::data_type::f32;
  const dnnl::memory::desc rows({problem.rows, problem.inputs}, kF32, Tag::ab);
  const dnnl::memory::desc any({problem.inputs, problem.outputs}, kF32, Tag::any);
  const dnnl::memory::desc plain({problem.inputs, problem.outputs}, kF32, Tag::ba);
  const dnnl::memory::desc out({problem.rows, problem.outputs}, kF32, Tag::ab);
  const dnnl::matmul::primitive_desc description({rows, any, out}, engine);
  dnnl::memory source(plain, engine, problem.weights.data());
  dnnl::memory weights(description.weights_desc(), engine);
  dnnl::reorder(source, weights).execute(stream, source, weights);
  const dnnl::matmul primitive(description);
  dnnl::memory input(rows, engine, problem.activations.data());
  dnnl::memory result(out, engine, problem.out.data());
  for (auto _ : state) {
    primitive.execute(stream,
                      {{DNNL_ARG_SRC, input}, {DNNL_ARG_WEIGHTS, weights}, {DNNL_ARG_DST, result}});
    stream.wait();
  }
  problem.report(state);
}

void sizes(benchmark::internal::Benchmark* bench) {
  for (const int64_t threads : {1, 2}) {
    for (const int64_t rows : {1, 4, 8, 16, 64, 256}) {
      bench->Args({rows, 1024, 3072, threads});
    }
  }
  bench->ArgNames({"rows", "in", "out", "threads"})->UseRealTime();
}
BENCHMARK(own_f32)->Apply(sizes);
BENCHMARK(own_bf16)->Apply(sizes);
BENCHMARK(onednn_f32)->Apply(sizes);

}  // namespace
}  // namespace stator::engine::cpu
