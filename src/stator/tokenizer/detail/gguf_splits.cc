// SPDX-License-Identifier: Apache-2.0
#include "stator/tokenizer/detail/gguf_splits.h"

#include "stator/tokenizer/detail/split_expressions.h"

#include <algorithm>

namespace stator::tokenizer {
namespace {

using Expressions = std::string_view[];

constexpr std::string_view kDeepseekCjk =
    R"([\x{4E00}-\x{9FA5}\x{800}-\x{4E00}\x{AC00}-\x{D7FF}]+)";
constexpr std::string_view kDigit = R"(\p{N})";
constexpr std::string_view kDigits = R"(\p{N}+)";
constexpr std::string_view kThreeDigits = "[0-9][0-9][0-9]";
constexpr std::string_view kNewline = R"([\r\n])";

constexpr Expressions kGpt2 = {kGpt2Split};
constexpr Expressions kCl100k = {kCl100kSplit};
constexpr Expressions kQwen2 = {kQwen2Split};
constexpr Expressions kQwen35 = {kQwen35Split};
constexpr Expressions kO200k = {kO200kSplit};
constexpr Expressions kTekken = {kTekkenSplit};
constexpr Expressions kKimi = {kKimiK2Split};
constexpr Expressions kStarcoder = {kDigit, kGpt2Split};
constexpr Expressions kFalcon = {R"([\p{P}\$\+<=>\^~\|`]+)", kGpt2Split, kThreeDigits};
constexpr Expressions kDefault = {R"([\p{P}\$\+<=>\^~\|]+)", kGpt2Split, kDigits, kThreeDigits};
constexpr Expressions kDeepseekLlm = {kNewline,  kDeepseekLlmWords, kDeepseekLlmSigns,
                                      R"(\s+$)", kDeepseekCjk,      kDigits};
constexpr Expressions kDeepseekCoder = {kNewline, R"(\s?\p{L}+)", R"(\s?\p{P}+)", kDeepseekCjk,
                                        kDigit};
constexpr Expressions kDeepseek3 = {
    R"(\p{N}{1,3})", R"([\x{4E00}-\x{9FA5}\x{3040}-\x{309F}\x{30A0}-\x{30FF}]+)", kDeepseek3Split};
constexpr Expressions kBloom = {kBloomSplit};
constexpr Expressions kViking = {kBloomSplit, kDigit};
constexpr Expressions kBailing = {kBailingSplit};
constexpr Expressions kSeedCoder = {kSeedCoderSplit};
constexpr Expressions kExaoneMoe = {kExaoneMoeSplit};
constexpr Expressions kSuperBpe = {kDigits, R"((?=(\d{3})+(?!\d)))"};

struct Row {
  std::string_view names;  // separated and surrounded by spaces
  GgufSplit split;
};

constexpr Row kRows[] = {
    {" default ", {.expressions = kDefault}},
    {" llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano ",
     {.expressions = kCl100k, .ignore_merges = true, .adds_bos = true}},
    {" dbrx smaug-bpe chatglm-bpe glm4 ", {.expressions = kCl100k}},
    {" qwen2 deepseek-r1-qwen kormo f2llmv2 stablelm2 megrez hunyuan solar-open grok-2 ",
     {.expressions = kQwen2}},
    {" qwen35 ", {.expressions = kQwen35}},
    {" gpt-4o llama4 kanana2 talkie minimax-m2 ", {.expressions = kO200k}},
    {" tekken ", {.expressions = kTekken, .ignore_merges = true, .adds_bos = true}},
    {" kimi-k2 ", {.expressions = kKimi, .ignore_merges = true}},
    {" deepseek-llm ", {.expressions = kDeepseekLlm}},
    {" deepseek-coder ", {.expressions = kDeepseekCoder}},
    {" deepseek-v3 hunyuan-dense joyai-llm hy_v4 ", {.expressions = kDeepseek3}},
    {" falcon ", {.expressions = kFalcon}},
    {" starcoder refact command-r smollm codeshell exaone minerva-7b mellum2 ",
     {.expressions = kStarcoder}},
    {" gpt-2 phi-2 jina-es jina-de gigachat jina-v2-es jina-v2-de a.x-4.0 mellum modern-bert mpt "
     "olmo jais trillion granite-docling exaone4 jina-v1-en jina-v2-code roberta-bpe ",
     {.expressions = kGpt2}},
    {" bloom gpt3-finnish poro-chat ", {.expressions = kBloom}},
    {" viking ", {.expressions = kViking}},
    {" bailingmoe bailingmoe2 llada-moe ", {.expressions = kBailing}},
    {" seed-coder ", {.expressions = kSeedCoder}},
    {" exaone-moe ", {.expressions = kExaoneMoe}},
    {" superbpe ", {.expressions = kSuperBpe}},
};

}  // namespace

const GgufSplit* find_gguf_split(std::string_view name) {
  if (name.empty() || name.find(' ') != name.npos) {
    return nullptr;
  }
  const auto has_name = [name](const Row& row) {
    const size_t at = row.names.find(name);
    // A name may be part of another one that stands before it.
    for (size_t i = at; i != row.names.npos; i = row.names.find(name, i + 1)) {
      if (row.names[i - 1] == ' ' && row.names[i + name.size()] == ' ') {
        return true;
      }
    }
    return false;
  };
  const auto* row = std::ranges::find_if(kRows, has_name);
  return row == std::end(kRows) ? nullptr : &row->split;
}

}  // namespace stator::tokenizer
