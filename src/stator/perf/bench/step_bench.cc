// SPDX-License-Identifier: Apache-2.0
// How long one step of an engine's model takes to price: planner, simulator and configurator ask
// for millions.
#include <benchmark/benchmark.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "stator/perf/engine_model.h"
#include "stator/perf/operator_database.h"

namespace stator::perf {
namespace {

EngineSpec spec_of(std::string_view model) {
  EngineSpec spec;
  spec.model = *read_model_config(std::string(model));
  spec.system = *find_system("h200_sxm");
  spec.weights = spec.experts = *find_quant("fp8");
  spec.kv = *find_quant("bfloat16");
  spec.parallel.tp = spec.parallel.moe_tp = 8;
  return spec;
}

void run(benchmark::State& state, const EngineModel& engine) {
  double decodes = 1;
  for (auto _ : state) {
    decodes = decodes < 256 ? decodes + 1 : 1;
    benchmark::DoNotOptimize(engine.step_ms({.context_requests = 1,
                                             .context_tokens = 4000 + decodes,
                                             .decode_requests = decodes,
                                             .decode_context = 3000}));
  }
}

/// A pass with a prompt beside decodes, which takes longest to price.
void BM_Step(benchmark::State& state, std::string_view model) {
  run(state, *EngineModel::create(spec_of(model)));
}
BENCHMARK_CAPTURE(BM_Step, dense, "Qwen/Qwen3-32B");
BENCHMARK_CAPTURE(BM_Step, mla, "deepseek-ai/DeepSeek-R1");
BENCHMARK_CAPTURE(BM_Step, hybrid, "Qwen/Qwen3.5-397B-A17B");
BENCHMARK_CAPTURE(BM_Step, windows, "openai/gpt-oss-120b");

/// Tables of measured kernels with a few shapes of each operator, nine to eighty-one sizes each.
std::string file_of_tables() {
  std::vector<double> gemm, context, generation;
  for (double m = 1; m <= 65'536; m *= 4) {
    for (const auto& [n, k] : {std::pair<double, double>{4096, 4096}, {10'240, 8192}}) {
      gemm.insert(gemm.end(), {0, m, n, k, 0.01 + 1e-12 * m * n * k});
    }
    for (double batch = 1; batch <= 65'536; batch *= 4) {
      context.insert(context.end(), {1, 8, 1, 128, 0, m, batch, 0.01 + 1e-9 * m * m * batch});
      generation.insert(generation.end(), {1, 8, 1, 128, 0, m, batch, 0.01 + 1e-6 * m * batch});
    }
  }
  std::string out =
      "STATOR-OPERATORS-1\n{\"system\":\"h200_sxm\",\"backend\":\"vllm\","
      "\"dtypes\":[\"fp8\",\"bfloat16\"],\"notes\":[],\"numbers\":[" +
      std::to_string(gemm.size()) + "," + std::to_string(context.size()) + "," +
      std::to_string(generation.size()) + ",0,0]}\n";
  out.append((8 - out.size() % 8) % 8, '\n');
  for (const auto* numbers : {&gemm, &context, &generation}) {
    out.append(reinterpret_cast<const char*>(numbers->data()), numbers->size() * sizeof(double));
  }
  return out;
}

void BM_MeasuredStep(benchmark::State& state, std::string_view model) {
  auto tables = OperatorTables::parse(file_of_tables());
  if (!tables) {
    state.SkipWithError(tables.error().message().c_str());
    return;
  }
  const auto database = std::make_shared<const OperatorDatabase>(*tables);
  run(state, *EngineModel::create(spec_of(model), database));
}
BENCHMARK_CAPTURE(BM_MeasuredStep, dense, "Qwen/Qwen3-32B");

}  // namespace
}  // namespace stator::perf
