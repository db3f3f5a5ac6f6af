// SPDX-License-Identifier: Apache-2.0
// Loading, encoding and decoding. Runs on the tiny llama3 test model, whose 700 tokens make about
// three times as many ids per byte as a published vocabulary; pass a model folder for figures that
// count:
//   stator_tokenizer_bench --model=/models/Qwen3-8B
#include "stator/core/assert.h"
#include "stator/tokenizer/incremental_detokenizer.h"
#include "stator/tokenizer/tokenizer.h"

#include <benchmark/benchmark.h>

#include <filesystem>
#include <fstream>
#include <iterator>

namespace stator::tokenizer {
namespace {

std::string g_json;

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  STATOR_ASSERT(file.is_open(), "the model file exists");
  return std::string(std::istreambuf_iterator<char>(file), {});
}

std::unique_ptr<Tokenizer> load_model() {
  auto tokenizer = Tokenizer::from_json(g_json);
  STATOR_ASSERT(tokenizer.has_value(), "the model loads");
  return *std::move(tokenizer);
}

/// Prose and code in turn: this module's own sources, about 100 kB.
std::string long_prompt() {
  std::string text;
  for (const auto& entry :
       std::filesystem::directory_iterator(STATOR_SOURCE_DIR "/src/stator/tokenizer")) {
    if (entry.path().extension() == ".cc" || entry.path().extension() == ".h" ||
        entry.path().extension() == ".md") {
      text += read_file(entry.path().string());
    }
  }
  return text;
}

const std::string kShortPrompt =
    "Write a short story about a robot who learns to paint, and describe its first exhibition in "
    "the "
    "city of Lisbon in the style of a newspaper.";

void load(benchmark::State& state) {
  for (auto _ : state) {
    benchmark::DoNotOptimize(load_model());
  }
}
BENCHMARK(load)->Unit(benchmark::kMillisecond);

void encode(benchmark::State& state, const std::string& text) {
  const auto tokenizer = load_model();
  std::vector<TokenId> ids;
  for (auto _ : state) {
    ids.clear();
    STATOR_ASSERT(tokenizer->encode(text, {}, ids).has_value(), "the text encodes");
    benchmark::DoNotOptimize(ids.data());
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * text.size()));
  state.counters["tokens"] = static_cast<double>(ids.size());
}
BENCHMARK_CAPTURE(encode, short_prompt, kShortPrompt);
BENCHMARK_CAPTURE(encode, long_prompt, long_prompt());
BENCHMARK_CAPTURE(encode, one_word_of_1_mb, std::string(1 << 20, 'a'))
    ->Unit(benchmark::kMillisecond);

void detokenize(benchmark::State& state) {
  const auto tokenizer = load_model();
  std::vector<TokenId> ids;
  STATOR_ASSERT(tokenizer->encode(long_prompt(), {}, ids).has_value(), "the text encodes");
  std::string text;
  for (auto _ : state) {
    IncrementalDetokenizer detokenizer(*tokenizer, SkipSpecial::kYes);
    text.clear();
    for (const TokenId id : ids) {
      detokenizer.step(id, text);
    }
    benchmark::DoNotOptimize(text.data());
  }
  state.SetItemsProcessed(static_cast<int64_t>(state.iterations() * ids.size()));
}
BENCHMARK(detokenize);

}  // namespace
}  // namespace stator::tokenizer

int main(int argc, char** argv) {
  std::string folder;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument.starts_with("--model=")) {
      folder = argument.substr(8);
    }
  }
  const std::string tiny = STATOR_SOURCE_DIR "/src/stator/tokenizer/testdata/models/llama3.json";
  stator::tokenizer::g_json =
      stator::tokenizer::read_file(folder.empty() ? tiny : folder + "/tokenizer.json");
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
