// SPDX-License-Identifier: Apache-2.0
// Times of token masks, for grammar_race.py:
//   stator_masks TOKENS SCHEMAS draw STEPS ANSWERS    random answers, as tokens
//   stator_masks TOKENS SCHEMAS follow FILE           how long each token of the answers in FILE takes
// TOKENS: a token's bytes per line in hexadecimal; SCHEMAS: a JSON schema per line; FILE: an answer's tokens per line, an empty
// line behind those of a schema. Prints a JSON line per schema.
#include <ctime>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "stator/core/random.h"
#include "stator/guided/grammar.h"
#include "stator/text/hex.h"

namespace {

using namespace stator;

/// CPU time: what else runs on the machine does not count.
double now_us() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) / 1000;
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

void print_list(const char* name, const std::vector<double>& values) {
  std::printf("\"%s\":[", name);
  for (size_t i = 0; i < values.size(); ++i) {
    std::printf(i == 0 ? "%.2f" : ",%.2f", values[i]);
  }
  std::printf("]");
}

/// The tokens of a random answer. From the middle on only what can end within the steps that are
/// left may come.
void print_answer(const std::shared_ptr<guided::Grammar>& grammar, uint32_t steps, Random& random) {
  guided::Guide guide(grammar, {});
  for (uint32_t step = 0; step < steps; ++step) {
    guide.stay_within_limits();
    const guided::TokenSet* mask = guide.mask(step < steps / 2 ? 100'000 : steps - step);
    const TokenId token = draw(random, mask->words());
    if (guide.must_end() || !guide.accept(token)) {
      break;
    }
    std::printf(step == 0 ? "%u" : ",%u", token);
  }
}

/// Times of the tokens in `answer`, with room for little more than its bytes.
void follow(const std::shared_ptr<guided::Grammar>& grammar, const std::vector<TokenId>& answer) {
  uint32_t left = 64;
  for (const TokenId token : answer) {
    left += static_cast<uint32_t>(grammar->vocabulary().bytes(token).size());
  }
  std::vector<double> masks;
  std::vector<double> accepts;
  guided::Guide guide(grammar, {});
  for (size_t i = 0; i < answer.size(); ++i) {
    guide.stay_within_limits();
    const double before = now_us();
    const guided::TokenSet* mask = guide.mask(left);
    const double made = now_us();
    masks.push_back(made - before);
    if (!mask->test(answer[i]) || !guide.accept(answer[i])) {
      break;
    }
    accepts.push_back(now_us() - made);
    left -= static_cast<uint32_t>(grammar->vocabulary().bytes(answer[i]).size());
  }
  std::printf("{");
  print_list("mask_us", masks);
  std::printf(",");
  print_list("accept_us", accepts);
  std::printf("}");
}

/// Lists of numbers between blanks, one a line; an empty line ends the answers to a schema.
std::vector<std::vector<TokenId>> read_answers(std::ifstream& file) {
  std::vector<std::vector<TokenId>> out;
  for (std::string line; std::getline(file, line) && !line.empty();) {
    auto& answer = out.emplace_back();
    for (const char* at = line.c_str(); *at != 0;) {
      char* end = nullptr;
      answer.push_back(static_cast<TokenId>(std::strtoul(at, &end, 10)));
      at = *end == ' ' ? end + 1 : end;
    }
  }
  return out;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string mode = argc > 4 ? argv[3] : "";
  if ((mode != "draw" || argc < 6) && mode != "follow") {
    std::fprintf(stderr, "stator_masks TOKENS SCHEMAS draw STEPS ANSWERS | follow FILE\n");
    return 2;
  }
  const std::vector<std::string> tokens = read_tokens(argv[1]);
  const auto vocabulary = std::make_shared<const guided::Vocabulary>(
      static_cast<uint32_t>(tokens.size()),
      [&tokens](TokenId id) { return guided::Vocabulary::Token{.bytes = tokens[id]}; });
  std::ifstream schemas(argv[2]);
  std::ifstream answers(argv[4]);
  Random random(1);
  for (std::string schema; std::getline(schemas, schema);) {
    const double begin = now_us();
    auto grammar = guided::Grammar::compile(R"({"json":)" + schema + "}", vocabulary);
    const double compiled = now_us() - begin;
    const auto wanted = mode == "follow" ? read_answers(answers)
                                         : std::vector<std::vector<TokenId>>(std::atoi(argv[5]));
    std::printf("{\"compile_us\":%.1f,\"answers\":[", grammar.has_value() ? compiled : 0.0);
    for (size_t i = 0; i < wanted.size() && grammar.has_value(); ++i) {
      std::printf(i == 0 ? "" : ",");
      if (mode == "follow") {
        follow(*grammar, wanted[i]);
      } else {
        std::printf("[");
        print_answer(*grammar, static_cast<uint32_t>(std::atoi(argv[4])), random);
        std::printf("]");
      }
    }
    std::printf("]}\n");
  }
  return 0;
}
