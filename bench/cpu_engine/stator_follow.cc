// SPDX-License-Identifier: Apache-2.0
// Constraints against texts, for other people's schemas, expressions and grammars (schemas of a
// suite, examples of a parser):
//   stator_follow [STEPS] < LINES
// A line is {"constraint": {"json": …} or {"regex": …} …, "texts": ["…", …], "draws": 3}. For each
// it prints {"error": …} or {"compile_us": …, "follows": [true, …], "answers": ["…", …]}: whether
// the whole text is allowed, and answers drawn at random, of at most STEPS bytes. Tokens are bytes.
#include <cstdlib>
#include <ctime>
#include <iostream>
#include <string>

#include "stator/core/random.h"
#include "stator/guided/grammar.h"
#include "stator/json/value.h"

namespace {

using namespace stator;

double now_us() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) / 1000;
}

bool follows(const std::shared_ptr<guided::Grammar>& grammar, std::string_view text) {
  guided::Guide guide(grammar, {});
  for (const char byte : text) {
    guide.stay_within_limits();
    if (!guide.accept(static_cast<uint8_t>(byte))) {
      return false;
    }
  }
  return guide.may_end();
}

/// Ends as soon as it may in one step of four.
std::string draw(const std::shared_ptr<guided::Grammar>& grammar, uint32_t steps, Random& random) {
  guided::Guide guide(grammar, {});
  std::string text;
  for (uint32_t step = 0; step < steps; ++step) {
    guide.stay_within_limits();
    const guided::TokenSet* mask = guide.mask(steps - step);
    if (guide.must_end() || (guide.may_end() && random.below(4) == 0)) {
      break;
    }
    std::vector<TokenId> allowed;
    for (TokenId byte = 0; byte < 256; ++byte) {
      if (mask == nullptr || mask->test(byte)) {
        allowed.push_back(byte);
      }
    }
    if (allowed.empty()) {
      break;
    }
    const TokenId byte = allowed[random.below(allowed.size())];
    if (!guide.accept(byte)) {
      return text + "<refused what it allowed>";
    }
    text += static_cast<char>(byte);
  }
  return text;
}

}  // namespace

int main(int argc, char** argv) {
  const auto steps = static_cast<uint32_t>(argc > 1 ? std::atoi(argv[1]) : 600);
  std::string bytes(256, 0);
  for (size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<char>(i);
  }
  const auto vocabulary = std::make_shared<const guided::Vocabulary>(256, [&bytes](TokenId id) {
    return guided::Vocabulary::Token{.bytes = std::string_view(bytes).substr(id, 1)};
  });
  Random random(1);
  for (std::string line; std::getline(std::cin, line);) {
    auto parsed = json::parse(line);
    if (!parsed || parsed->find("constraint") == nullptr) {
      std::fprintf(stderr, "a line is no object with 'constraint'\n");
      return 2;
    }
    const double begin = now_us();
    auto grammar = guided::Grammar::compile(json::to_text((*parsed)["constraint"]), vocabulary);
    const double compiled = now_us() - begin;
    json::Value out;
    if (!grammar) {
      out["error"] = std::string(grammar.error().message());
    } else {
      out["compile_us"] = compiled;
      json::Value::Array verdicts;
      if (const json::Value* texts = parsed->find("texts"); texts != nullptr) {
        for (const json::Value& text : texts->elements()) {
          verdicts.emplace_back(follows(*grammar, text.as_string().value_or("")));
        }
      }
      out["follows"] = json::Value::array(std::move(verdicts));
      json::Value::Array answers;
      const json::Value* draws = parsed->find("draws");
      for (int64_t i = 0; draws != nullptr && i < draws->as_int64().value_or(0); ++i) {
        answers.emplace_back(draw(*grammar, steps, random));
      }
      out["answers"] = json::Value::array(std::move(answers));
    }
    std::printf("%s\n", json::to_text(out).c_str());
    std::fflush(stdout);
  }
  return 0;
}
