// SPDX-License-Identifier: Apache-2.0
// Times of token masks, for grammar_race.py:
//   stator_masks TOKENS SCHEMAS STEPS
// TOKENS: a token's bytes per line in hexadecimal; SCHEMAS: a JSON schema per line. Prints a JSON line per schema.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "stator/core/random.h"
#include "stator/guided/grammar.h"
#include "stator/text/hex.h"

namespace {

using namespace stator;

double now_us() {
  return std::chrono::duration<double, std::micro>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

std::vector<std::string> read_tokens(const char* path) {
  std::vector<std::string> out;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    auto& token = out.emplace_back();
    for (size_t i = 0; i + 1 < line.size(); i += 2) {
      token += static_cast<char>(text::hex_value(line[i]) * 16 + text::hex_value(line[i + 1]));
    }
  }
  return out;
}

TokenId draw(Random& random, std::span<const uint64_t> words) {
  std::vector<TokenId> allowed;
  for (size_t word = 0; word < words.size(); ++word) {
    for (uint64_t bits = words[word]; bits != 0; bits &= bits - 1) {
      allowed.push_back(
          static_cast<TokenId>(word * 64 + static_cast<size_t>(__builtin_ctzll(bits))));
    }
  }
  return allowed.empty() ? 0 : allowed[random.below(allowed.size())];
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) {
    std::fprintf(stderr, "stator_masks TOKENS SCHEMAS STEPS\n");
    return 2;
  }
  const std::vector<std::string> tokens = read_tokens(argv[1]);
  const auto vocabulary = std::make_shared<const guided::Vocabulary>(
      static_cast<uint32_t>(tokens.size()),
      [&tokens](TokenId id) { return guided::Vocabulary::Token{.bytes = tokens[id]}; });
  std::ifstream schemas(argv[2]);
  Random random(1);
  for (std::string schema; std::getline(schemas, schema);) {
    const double begin = now_us();
    auto grammar = guided::Grammar::compile(R"({"json":)" + schema + "}", vocabulary);
    const double compiled = now_us() - begin;
    if (!grammar.has_value()) {
      std::printf("{\"error\":1}\n");
      continue;
    }
    std::printf("{\"compile_us\":%.1f,\"mask_us\":[", compiled);
    guided::Guide guide(*grammar, {});
    for (int step = 0; step < std::atoi(argv[3]); ++step) {
      guide.stay_within_limits();
      const double before = now_us();
      const guided::TokenSet* mask = guide.mask(100'000);
      const double took = now_us() - before;
      if (mask == nullptr || guide.must_end()) {
        break;
      }
      std::printf(step == 0 ? "%.2f" : ",%.2f", took);
      if (!guide.accept(draw(random, mask->words()))) {
        break;
      }
    }
    std::printf("]}\n");
  }
  return 0;
}
