// SPDX-License-Identifier: Apache-2.0
#include "stator/tokenizer/detail/gguf_splits.h"

#include "stator/tokenizer/detail/split_expressions.h"

#include <algorithm>

namespace stator::tokenizer {
namespace {

using Expressions = std::string_view[];

/// DeepSeek-LLM's own list of letters with case.
constexpr std::string_view kDeepseekLetters =
    R"(\s?[)"
    R"(\x{41}-\x{5A}\x{61}-\x{7A}\x{B5}\x{C0}-\x{D6}\x{D8}-\x{F6}\x{F8}-\x{1BA})"
    R"(\x{1BC}-\x{1BF}\x{1C4}-\x{293}\x{295}-\x{2AF}\x{370}-\x{373}\x{376}-\x{377})"
    R"(\x{37B}-\x{37D}\x{37F}\x{386}\x{388}-\x{38A}\x{38C}\x{38E}-\x{3A1})"
    R"(\x{3A3}-\x{3F5}\x{3F7}-\x{481}\x{48A}-\x{52F}\x{531}-\x{556}\x{10A0}-\x{10C5})"
    R"(\x{13A0}-\x{13F5}\x{13F8}-\x{13FD}\x{1C90}-\x{1CBA}\x{1CBD}-\x{1CBF})"
    R"(\x{1D00}-\x{1D2B}\x{1D6B}-\x{1D77}\x{1D79}-\x{1D9A}\x{1E00}-\x{1F15})"
    R"(\x{1F18}-\x{1F1D}\x{1F20}-\x{1F45}\x{1F48}-\x{1F4D}\x{1F50}-\x{1F57}\x{1F59})"
    R"(\x{1F5B}\x{1F5D}\x{1F5F}-\x{1F7D}\x{1F80}-\x{1FB4}\x{1FB6}-\x{1FBC}\x{1FBE})"
    R"(\x{1FC2}-\x{1FC4}\x{1FC6}-\x{1FCC}\x{1FD0}-\x{1FD3}\x{1FD6}-\x{1FDB})"
    R"(\x{1FE0}-\x{1FEC}\x{1FF2}-\x{1FF4}\x{1FF6}-\x{1FFC}\x{2102}\x{2107})"
    R"(\x{210A}-\x{2113}\x{2115}\x{2119}-\x{211D}\x{2124}\x{2126}\x{2128})"
    R"(\x{212A}-\x{212D}\x{212F}-\x{2134}\x{2139}\x{213C}-\x{213F}\x{2145}-\x{2149})"
    R"(\x{214E}\x{2183}-\x{2184}\x{2C00}-\x{2C7B}\x{2C7E}-\x{2CE4}\x{2CEB}-\x{2CEE})"
    R"(\x{2CF2}-\x{2CF3}\x{A640}-\x{A66D}\x{A680}-\x{A69B}\x{A722}-\x{A76F})"
    R"(\x{A771}-\x{A787}\x{A78B}-\x{A78E}\x{AB70}-\x{ABBF}\x{FB00}-\x{FB06})"
    R"(\x{FB13}-\x{FB17}\x{FF21}-\x{FF3A}\x{FF41}-\x{FF5A}\x{10400}-\x{1044F})"
    R"(\x{104B0}-\x{104D3}\x{104D8}-\x{104FB}\x{10C80}-\x{10CB2}\x{10CC0}-\x{10CF2})"
    R"(\x{118A0}-\x{118DF}\x{1E900}-\x{1E943})"
    R"(]+)";
constexpr std::string_view kDeepseekCjk =
    R"([\x{4E00}-\x{9FA5}\x{800}-\x{4E00}\x{AC00}-\x{D7FF}]+)";
constexpr std::string_view kDeepseekPunctuation =
    R"(\s?[!-/:-~\x{FF01}-\x{FF0F}\x{FF1A}-\x{FF5E}\x{2018}-\x{201F}\x{3000}-\x{3002}]+)";
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
constexpr Expressions kDeepseekLlm = {kNewline,  kDeepseekLetters, kDeepseekPunctuation,
                                      R"(\s+$)", kDeepseekCjk,     kDigits};
constexpr Expressions kDeepseekCoder = {kNewline, R"(\s?\p{L}+)", R"(\s?\p{P}+)", kDeepseekCjk,
                                        kDigit};
constexpr Expressions kDeepseek3 = {
    R"(\p{N}{1,3})", R"([\x{4E00}-\x{9FA5}\x{3040}-\x{309F}\x{30A0}-\x{30FF}]+)", kDeepseek3Split};
constexpr Expressions kBloom = {
    R"( ?[^(\s|.,!?\x{2026}\x{3002}\x{FF0C}\x{3001}\x{964}\x{6D4}\x{60C})]+)"};
constexpr Expressions kViking = {kBloom[0], kDigit};
constexpr Expressions kBailing = {kBailingSplit};
constexpr Expressions kSeedCoder = {kSeedCoderSplit};
constexpr Expressions kExaoneMoe = {
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+)"};
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
