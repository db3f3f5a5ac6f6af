// SPDX-License-Identifier: Apache-2.0
// One measurement of the CPU engine without the rest of Stator, for race.py:
//   stator_infer MODEL THREADS prefill TOKENS | decode SEQUENCES [KV_TYPE] | ids PROMPTS
// (a number: made ones; else a file of token ids, a prompt a line)
// prints the greedy tokens of some prompts, or tokens per second of one repetition (after a warm-up) and the resident memory in MiB.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "stator/engine/cpu/cpu_model_runner.h"

namespace {

using namespace stator;
using namespace stator::engine;

constexpr uint32_t kContext = 128;
constexpr uint32_t kDecoded = 32;

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

struct Run {
  cpu::CpuModelRunner& runner;
  std::vector<std::vector<TokenId>> tokens;
  std::vector<std::vector<BlockId>> blocks;
  inference::SamplingParams sampling{.temperature = 0.0F};
  inference::StopConditions stop;

  Run(cpu::CpuModelRunner& runner_in, uint32_t sequences, uint32_t length, uint32_t room)
      : runner(runner_in) {
    uint32_t next = 0;
    for (uint32_t s = 0; s < sequences; ++s) {
      auto& own = tokens.emplace_back();
      for (uint32_t i = 0; i < length; ++i) {
        own.push_back((s * 131 + i * 17) % 16000);
      }
      auto& table = blocks.emplace_back();
      for (uint32_t i = 0; i < (length + room + 15) / 16; ++i) {
        table.emplace_back(next++);
      }
    }
  }
  TokenId step(uint32_t start, uint32_t count) {
    std::vector<SequenceSlice> slices;
    for (size_t s = 0; s < tokens.size(); ++s) {
      slices.push_back({.sequence = s,
                        .tokens = tokens[s],
                        .prompt_tokens = static_cast<uint32_t>(tokens[s].size()),
                        .start = start,
                        .count = count,
                        .blocks = blocks[s],
                        .sample = start + count == tokens[s].size(),
                        .sampling = &sampling,
                        .stop = &stop});
    }
    std::vector<Sampled> sampled(slices.size());
    runner.run(slices, sampled);
    return sampled[0].token;
  }
};

double prefill(cpu::CpuModelRunner& runner, uint32_t length) {
  Run run(runner, 1, length, 1);
  const double begin = now();
  for (uint32_t at = 0; at < length; at += 512) {
    run.step(at, std::min(512U, length - at));
  }
  return length / (now() - begin);
}

double decode(cpu::CpuModelRunner& runner, uint32_t sequences) {
  Run run(runner, sequences, kContext, kDecoded + 1);
  run.step(0, kContext);
  const double begin = now();
  for (uint32_t i = 0; i < kDecoded; ++i) {
    for (size_t s = 0; s < sequences; ++s) {
      run.tokens[s].push_back(static_cast<TokenId>((s * 131 + (kContext + i) * 17) % 16000));
    }
    run.step(kContext + i, 1);
  }
  return sequences * kDecoded / (now() - begin);
}

/// A prompt a line, as token ids; or so many made ones.
std::vector<std::vector<TokenId>> read_prompts(const std::string& source) {
  std::vector<std::vector<TokenId>> out;
  if (const auto made = static_cast<uint32_t>(std::atoi(source.c_str())); made > 0) {
    for (uint32_t prompt = 0; prompt < made; ++prompt) {
      for (uint32_t i = 0; i < 24; ++i) {
        out.resize(prompt + 1);
        out[prompt].push_back((prompt * 1009 + i * i * 37 + i * 17) % 16000);
      }
    }
    return out;
  }
  std::ifstream file(source);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    auto& prompt = out.emplace_back();
    for (TokenId token = 0; words >> token;) {
      prompt.push_back(token);
    }
  }
  return out;
}

/// Eight greedy tokens behind each prompt.
void print_ids(cpu::CpuModelRunner& runner, const std::string& source) {
  for (const std::vector<TokenId>& prompt : read_prompts(source)) {
    const auto length = static_cast<uint32_t>(prompt.size());
    Run run(runner, 1, length, 9);
    run.tokens[0] = prompt;
    for (uint32_t done = 0; run.tokens[0].size() < length + 8;) {
      const auto count = static_cast<uint32_t>(run.tokens[0].size());
      const TokenId next = run.step(done, count - done);
      done = count;
      std::printf(count == length ? "%u" : " %u", next);
      run.tokens[0].push_back(next);
    }
    std::printf("\n");
  }
}

long resident_mib() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmRSS:")) {
      return std::atol(line.c_str() + 6) / 1024;
    }
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 5) {
    std::fprintf(stderr, "stator_infer MODEL THREADS prefill|decode N [KV_TYPE]\n");
    return 2;
  }
  const double begin = now();
  auto model = cpu::load_model(argv[1]);
  if (!model.has_value()) {
    std::fprintf(stderr, "%s\n", model.error().to_string().c_str());
    return 1;
  }
  const double loaded = now() - begin;
  const long weights = resident_mib();
  const std::string kind = argv[3];
  const auto n = static_cast<uint32_t>(std::atoi(argv[4]));
  cpu::KvType type = cpu::KvType::kF32;
  for (const auto candidate : {cpu::KvType::kF16, cpu::KvType::kBf16, cpu::KvType::kInt8}) {
    if (argc > 5 && argv[5] == to_string(candidate)) {
      type = candidate;
    }
  }
  auto runner = cpu::CpuModelRunner::create(
      *model,
      {.kv_blocks = 2048, .threads = static_cast<uint32_t>(std::atoi(argv[2])), .kv_type = type});
  if (!runner.has_value()) {
    std::fprintf(stderr, "%s\n", runner.error().to_string().c_str());
    return 1;
  }
  if (kind == "ids") {
    print_ids(**runner, argv[4]);
    return 0;
  }
  if (kind == "prefill") {
    (void)prefill(**runner, std::min(n, 64U));
    std::printf("%.2f", prefill(**runner, n));
  } else {
    (void)decode(**runner, 1);
    std::printf("%.2f", decode(**runner, n));
  }
  std::printf(" tok/s, loaded in %.2f s, RSS %ld MiB (%ld after loading)\n", loaded, resident_mib(),
              weights);
  return 0;
}
