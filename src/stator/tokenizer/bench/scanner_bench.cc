// SPDX-License-Identifier: Apache-2.0
// Cutting text into pieces: with the scanner of each family, many pieces at a time, and with the
// regular expressions that the scanner stands for. On texts of this repository, or on a file:
//   stator_scanner_bench --text=/data/russian.txt
#include "stator/core/assert.h"
#include "stator/tokenizer/piece_scanner.h"
#include "stator/tokenizer/pre_tokenizer.h"
#include "stator/tokenizer/unicode.h"

#include <benchmark/benchmark.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <iterator>

namespace stator::tokenizer {
namespace {

std::string g_text;

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  STATOR_ASSERT(file.is_open(), "the text file exists");
  return std::string(std::istreambuf_iterator<char>(file), {});
}

/// This module's sources.
std::string repository_text() {
  std::string text;
  for (const auto& entry :
       std::filesystem::directory_iterator(STATOR_SOURCE_DIR "/src/stator/tokenizer")) {
    if (entry.path().extension() == ".cc" || entry.path().extension() == ".h") {
      text += read_file(entry.path().string());
    }
  }
  return text;
}

void scan(benchmark::State& state, ScannerFamily family) {
  const PieceScanner scanner(family);
  std::array<uint32_t, 256> ends;
  size_t pieces = 0;
  for (auto _ : state) {
    pieces = 0;
    for (size_t at = 0; at < g_text.size();) {
      pieces += scanner.scan(g_text, at, ends);
      benchmark::DoNotOptimize(ends.data());
    }
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * g_text.size()));
  state.counters["pieces"] = static_cast<double>(pieces);
}

PreTokenizer::Split split_by(std::string_view expression) {
  auto regex = Regex::compile(expression);
  STATOR_ASSERT(regex.has_value(), "the published expression compiles");
  return {*std::move(regex)};
}

void split(benchmark::State& state, const PreTokenizer& pre_tokenizer) {
  Pieces pieces;
  for (auto _ : state) {
    STATOR_ASSERT(pre_tokenize(pre_tokenizer, g_text, TextStart::kYes, pieces).has_value(),
                  "the text can be cut");
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * g_text.size()));
  state.counters["pieces"] = static_cast<double>(pieces.ranges.size());
}

void split_by_expressions(benchmark::State& state, ScannerFamily family) {
  PreTokenizer pre_tokenizer;
  for (const std::string_view expression : expressions_of(family)) {
    pre_tokenizer.steps.emplace_back(split_by(expression));
  }
  split(state, pre_tokenizer);
}

void split_by_falcon_steps(benchmark::State& state) {
  using Split = PreTokenizer::Split;
  constexpr auto kContiguous = PreTokenizer::Behavior::kContiguous;
  split(state,
        {{Split{PreTokenizer::SplitClass{kPunctuationSplit}, kContiguous},
          PreTokenizer::Scan{ScannerFamily::kGpt2}, PreTokenizer::MapBytes{},
          Split{PreTokenizer::SplitClass{kDigit}, kContiguous}, split_by("[0-9][0-9][0-9]")}});
}

BENCHMARK_CAPTURE(scan, gpt2, ScannerFamily::kGpt2);
BENCHMARK_CAPTURE(scan, cl100k, ScannerFamily::kCl100k);
BENCHMARK_CAPTURE(scan, qwen35, ScannerFamily::kQwen35);
BENCHMARK_CAPTURE(scan, o200k, ScannerFamily::kO200k);
BENCHMARK_CAPTURE(scan, starcoder, ScannerFamily::kStarcoder);
BENCHMARK_CAPTURE(scan, deepseek3, ScannerFamily::kDeepseek3);
BENCHMARK_CAPTURE(scan, deepseek_coder, ScannerFamily::kDeepseekCoder);
BENCHMARK_CAPTURE(scan, seed_coder, ScannerFamily::kSeedCoder);
BENCHMARK_CAPTURE(scan, falcon, ScannerFamily::kFalcon);
BENCHMARK_CAPTURE(scan, signs, ScannerFamily::kSigns);
BENCHMARK_CAPTURE(scan, falcon_bytes, ScannerFamily::kFalconBytes);
BENCHMARK_CAPTURE(scan, deepseek_llm, ScannerFamily::kDeepseekLlm);
BENCHMARK_CAPTURE(scan, bloom, ScannerFamily::kBloom);
BENCHMARK_CAPTURE(scan, viking, ScannerFamily::kViking);
BENCHMARK_CAPTURE(scan, exaone_moe, ScannerFamily::kExaoneMoe);
BENCHMARK_CAPTURE(split_by_expressions, cl100k, ScannerFamily::kCl100k);
BENCHMARK_CAPTURE(split_by_expressions, starcoder, ScannerFamily::kStarcoder);
BENCHMARK_CAPTURE(split_by_expressions, deepseek3, ScannerFamily::kDeepseek3);
BENCHMARK_CAPTURE(split_by_expressions, deepseek_coder, ScannerFamily::kDeepseekCoder);
BENCHMARK_CAPTURE(split_by_expressions, seed_coder, ScannerFamily::kSeedCoder);
BENCHMARK_CAPTURE(split_by_expressions, falcon, ScannerFamily::kFalcon);
BENCHMARK_CAPTURE(split_by_expressions, signs, ScannerFamily::kSigns);
BENCHMARK(split_by_falcon_steps);
BENCHMARK_CAPTURE(split_by_expressions, deepseek_llm, ScannerFamily::kDeepseekLlm);
BENCHMARK_CAPTURE(split_by_expressions, bloom, ScannerFamily::kBloom);
BENCHMARK_CAPTURE(split_by_expressions, viking, ScannerFamily::kViking);
BENCHMARK_CAPTURE(split_by_expressions, exaone_moe, ScannerFamily::kExaoneMoe);

}  // namespace
}  // namespace stator::tokenizer

int main(int argc, char** argv) {
  std::string path;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument.starts_with("--text=")) {
      path = argument.substr(7);
    }
  }
  stator::tokenizer::g_text =
      path.empty() ? stator::tokenizer::repository_text() : stator::tokenizer::read_file(path);
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
