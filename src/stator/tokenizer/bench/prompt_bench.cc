// SPDX-License-Identifier: Apache-2.0
// From a prompt's text to its token ids and block hashes: seen before, 80 % shared with an earlier
// one, and new. On one thread. Give a model folder (or tokenizer file) and a prompt of its kind:
//   stator_prompt_bench --model=/models/Llama-3 --text=chat.txt
#include "stator/core/assert.h"
#include "stator/core/random.h"
#include "stator/tokenizer/encode_prompt.h"
#include "stator/tokenizer/split_text.h"
#include "stator/tokenizer/tokenizer.h"

#include <benchmark/benchmark.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace stator::tokenizer {
namespace {

constexpr size_t kCacheBytes = size_t{64} << 20;
constexpr BlockScheme kBlocks{.block_size = 16, .seed = 1337};

std::string g_model = STATOR_SOURCE_DIR "/models/demo";
std::string g_text_path = STATOR_SOURCE_DIR "/src/stator/tokenizer/unicode_data.inc";

const Tokenizer& model() {
  static const auto tokenizer = [] {
    auto loaded = Tokenizer::load(g_model);
    STATOR_ASSERT(loaded.has_value(), "--model names a model folder or tokenizer file");
    return *std::move(loaded);
  }();
  return *tokenizer;
}

const std::string& text() {
  static const std::string read = [] {
    std::ifstream file(g_text_path, std::ios::binary);
    STATOR_ASSERT(file.is_open(), "--text names a file");
    return std::string(std::istreambuf_iterator<char>(file), {});
  }();
  return read;
}

/// Another text from `begin` on: the same lines in another order, so that words repeat as they do
/// in real prompts while no segment does.
std::string vary(size_t begin, uint64_t number) {
  std::vector<std::string_view> lines;
  const std::string_view rest = std::string_view(text()).substr(begin);
  for (size_t at = 0; at < rest.size();) {
    const size_t end = std::min(rest.find('\n', at), rest.size() - 1) + 1;
    lines.push_back(rest.substr(at, end - at));
    at = end;
  }
  Random random(number);
  std::string varied = text().substr(0, begin);
  while (!lines.empty()) {
    const size_t pick = random.below(lines.size());
    varied += lines[pick];
    lines[pick] = lines.back();
    lines.pop_back();
  }
  return varied;
}

void report(benchmark::State& state, const PromptIds& prompt) {
  state.counters["tokens"] = static_cast<double>(prompt.ids.size());
  state.counters["known"] =
      static_cast<double>(prompt.cached_ids) / static_cast<double>(prompt.ids.size());
  state.SetBytesProcessed(static_cast<int64_t>(text().size() * state.iterations()));
}

PromptIds encode(std::string_view prompt_text, PrefixCache& cache) {
  auto prompt = encode_prompt(model(), prompt_text, {}, kBlocks, {.cache = &cache});
  STATOR_ASSERT(prompt.has_value(), "text encodes");
  return *std::move(prompt);
}

void seen_before(benchmark::State& state) {
  PrefixCache cache(kCacheBytes, {});
  PromptIds prompt = encode(text(), cache);
  for (auto _ : state) {
    prompt = encode(text(), cache);
    benchmark::DoNotOptimize(prompt.ids.data());
  }
  report(state, prompt);
}
BENCHMARK(seen_before)->Unit(benchmark::kMicrosecond)->Iterations(300);

/// `percent` of the text is known, the rest differs every time.
void shared_with_an_earlier_one(benchmark::State& state) {
  PrefixCache cache(kCacheBytes, {});
  PromptIds prompt = encode(text(), cache);
  const size_t shared = text().size() * static_cast<size_t>(state.range(0)) / 100;
  uint64_t number = 0;
  for (auto _ : state) {
    state.PauseTiming();
    const std::string next = vary(shared, ++number);
    state.ResumeTiming();
    prompt = encode(next, cache);
    benchmark::DoNotOptimize(prompt.ids.data());
  }
  report(state, prompt);
}
BENCHMARK(shared_with_an_earlier_one)
    ->Arg(80)
    ->Arg(0)
    ->Unit(benchmark::kMicrosecond)
    ->Iterations(100);

/// The same bytes without prefix cache: what the per-word cache alone does.
void without_prefix_cache(benchmark::State& state) {
  PromptIds prompt;
  for (auto _ : state) {
    prompt = *encode_prompt(model(), text(), {}, kBlocks, {});
    benchmark::DoNotOptimize(prompt.ids.data());
  }
  report(state, prompt);
}
BENCHMARK(without_prefix_cache)->Unit(benchmark::kMicrosecond)->Iterations(100);

void find_cuts(benchmark::State& state) {
  size_t cuts = 0;
  for (auto _ : state) {
    cuts = 0;
    for (size_t at = 0; at < text().size(); ++cuts) {
      at = model().safe_cuts().find(text(), std::min(text().size(), at + kSegmentBytesMin),
                                    SpecialTokens::kParse);
    }
  }
  state.counters["segments"] = static_cast<double>(cuts);
}
BENCHMARK(find_cuts)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace stator::tokenizer

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument.starts_with("--model=")) {
      stator::tokenizer::g_model = argument.substr(8);
    } else if (argument.starts_with("--text=")) {
      stator::tokenizer::g_text_path = argument.substr(7);
    }
  }
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
