// SPDX-License-Identifier: Apache-2.0
#include "stator/tokenizer/detail/split_expressions.h"
#include "stator/tokenizer/scanner.h"

#include <algorithm>
#include <array>

namespace stator::tokenizer {
namespace {

using Expressions = std::string_view[];

constexpr Expressions kGpt2 = {kGpt2Split};
constexpr Expressions kCl100k = {kCl100kSplit};
constexpr Expressions kQwen2 = {kQwen2Split};
constexpr Expressions kQwen35 = {kQwen35Split};
constexpr Expressions kO200k = {kO200kSplit};
constexpr Expressions kTekken = {kTekkenSplit};
constexpr Expressions kKimiK2 = {kKimiK2Split};
constexpr Expressions kKimiK2WithoutIntersections = {
    R"([\p{Han}]+|[^\r\n\p{L}\p{N}]?(?:(?!\p{Han})[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])*)"
    R"((?:(?!\p{Han})[\p{Ll}\p{Lm}\p{Lo}\p{M}])+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"([^\r\n\p{L}\p{N}]?(?:(?!\p{Han})[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])+)"
    R"((?:(?!\p{Han})[\p{Ll}\p{Lm}\p{Lo}\p{M}])*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"(\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"};
constexpr Expressions kStarcoder = {R"(\p{N})", kGpt2Split};
constexpr Expressions kDeepseek3 = {R"(\p{N}{1,3})", "[一-龥\u3040-ゟ゠-ヿ]+", kDeepseek3Split};
constexpr Expressions kDeepseek3Escaped = {
    R"(\p{N}{1,3})", R"([\x{4E00}-\x{9FA5}\x{3040}-\x{309F}\x{30A0}-\x{30FF}]+)", kDeepseek3Split};
// Files hold the line breaks themselves, GGUF's names stand for escaped ones.
constexpr std::string_view kLineBreak = "[\r\n]";
constexpr std::string_view kLineBreakEscaped = R"([\r\n])";
constexpr std::string_view kEastern = "[一-龥ࠀ-一가-\uD7FF]+";
constexpr std::string_view kEasternEscaped =
    R"([\x{4E00}-\x{9FA5}\x{800}-\x{4E00}\x{AC00}-\x{D7FF}]+)";
constexpr Expressions kDeepseekCoder = {kLineBreak, R"(\s?\p{L}+)", R"(\s?\p{P}+)", kEastern,
                                        R"(\p{N})"};
constexpr Expressions kDeepseekCoderEscaped = {kLineBreakEscaped, R"(\s?\p{L}+)", R"(\s?\p{P}+)",
                                               kEasternEscaped, R"(\p{N})"};
constexpr Expressions kDeepseekLlm = {kLineBreak, kDeepseekLlmWords, kDeepseekLlmSigns,
                                      R"(\s+$)",  kEastern,          R"(\p{N})"};
constexpr Expressions kDeepseekLlmNumbers = {kLineBreakEscaped, kDeepseekLlmWords,
                                             kDeepseekLlmSigns, R"(\s+$)",
                                             kEasternEscaped,   R"(\p{N}+)"};
constexpr Expressions kBailing = {kBailingSplit};
constexpr Expressions kSeedCoder = {kSeedCoderSplit};
constexpr Expressions kFalcon = {R"([\p{P}\$\+<=>\^~\|`]+)", kGpt2Split, "[0-9][0-9][0-9]"};
constexpr Expressions kSigns = {R"([\p{P}\$\+<=>\^~\|]+)", kGpt2Split, R"(\p{N}+)",
                                "[0-9][0-9][0-9]"};
constexpr Expressions kBloom = {kBloomSplit};
// As published: a class in a class, which PCRE2 has no equivalent of.
constexpr Expressions kBloomNested = {" ?[^(\\s|[.,!?…。，、।۔،])]+"};
constexpr Expressions kViking = {kBloom[0], R"(\p{N})"};
constexpr Expressions kVikingNested = {kBloomNested[0], R"(\p{N})"};
constexpr Expressions kExaoneMoe = {kExaoneMoeSplit};

struct Row {
  ScannerFamily family;
  std::span<const std::string_view> expressions;
};

/// Of each family the published spelling first; what has the same matches may stand below it.
constexpr std::array kRows = {
    Row{ScannerFamily::kGpt2, kGpt2},
    Row{ScannerFamily::kCl100k, kCl100k},
    Row{ScannerFamily::kQwen2, kQwen2},
    Row{ScannerFamily::kQwen2, kBailing},
    Row{ScannerFamily::kQwen35, kQwen35},
    Row{ScannerFamily::kO200k, kO200k},
    Row{ScannerFamily::kTekken, kTekken},
    Row{ScannerFamily::kKimiK2, kKimiK2},
    Row{ScannerFamily::kKimiK2, kKimiK2WithoutIntersections},
    Row{ScannerFamily::kStarcoder, kStarcoder},
    Row{ScannerFamily::kDeepseek3, kDeepseek3},
    Row{ScannerFamily::kDeepseek3, kDeepseek3Escaped},
    Row{ScannerFamily::kDeepseekCoder, kDeepseekCoder},
    Row{ScannerFamily::kDeepseekCoder, kDeepseekCoderEscaped},
    Row{ScannerFamily::kSeedCoder, kSeedCoder},
    Row{ScannerFamily::kFalcon, kFalcon},
    Row{ScannerFamily::kSigns, kSigns},
    Row{ScannerFamily::kDeepseekLlm, kDeepseekLlm},
    Row{ScannerFamily::kDeepseekLlmNumbers, kDeepseekLlmNumbers},
    Row{ScannerFamily::kBloom, kBloom},
    Row{ScannerFamily::kBloom, kBloomNested},
    Row{ScannerFamily::kViking, kViking},
    Row{ScannerFamily::kViking, kVikingNested},
    Row{ScannerFamily::kExaoneMoe, kExaoneMoe},
};

constexpr auto kSequences = [] {
  std::array<std::span<const std::string_view>, kRows.size()> sequences;
  std::ranges::transform(kRows, sequences.begin(), &Row::expressions);
  return sequences;
}();

bool starts_with(std::span<const std::string_view> all, std::span<const std::string_view> front) {
  return all.size() >= front.size() && std::ranges::equal(all.first(front.size()), front);
}

}  // namespace

std::optional<KnownSplit> find_scanner(std::span<const std::string_view> expressions) {
  std::optional<KnownSplit> best;
  for (const Row& row : kRows) {
    const size_t length = row.expressions.size();
    if (starts_with(expressions, row.expressions) && (!best || best->expressions < length)) {
      best = {row.family, length};
    }
  }
  return best;
}

std::span<const std::string_view> expressions_of(ScannerFamily family) {
  const auto* row = std::ranges::find(kRows, family, &Row::family);
  return row == kRows.end() ? std::span<const std::string_view>() : row->expressions;
}

std::span<const std::span<const std::string_view>> known_sequences() {
  return kSequences;
}

}  // namespace stator::tokenizer
