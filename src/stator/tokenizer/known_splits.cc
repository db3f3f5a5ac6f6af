// SPDX-License-Identifier: Apache-2.0
#include "stator/tokenizer/detail/regex_form.h"
#include "stator/tokenizer/detail/split_expressions.h"
#include "stator/tokenizer/scanner.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <string>
#include <vector>

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
constexpr Expressions kStarcoder = {R"(\p{N})", kGpt2Split};
constexpr Expressions kDeepseek3 = {R"(\p{N}{1,3})", "[一-龥\u3040-ゟ゠-ヿ]+", kDeepseek3Split};
constexpr std::string_view kLineBreak = "[\r\n]";
constexpr std::string_view kEastern = "[一-龥ࠀ-一가-\uD7FF]+";
constexpr Expressions kDeepseekCoder = {kLineBreak, R"(\s?\p{L}+)", R"(\s?\p{P}+)", kEastern,
                                        R"(\p{N})"};
constexpr Expressions kDeepseekLlm = {kLineBreak, kDeepseekLlmWords, kDeepseekLlmSigns,
                                      R"(\s+$)",  kEastern,          R"(\p{N})"};
constexpr Expressions kDeepseekLlmNumbers = {kLineBreak, kDeepseekLlmWords, kDeepseekLlmSigns,
                                             R"(\s+$)",  kEastern,          R"(\p{N}+)"};
constexpr Expressions kBailing = {kBailingSplit};
constexpr Expressions kSeedCoder = {kSeedCoderSplit};
constexpr Expressions kFalcon = {R"([\p{P}\$\+<=>\^~\|`]+)", kGpt2Split, "[0-9][0-9][0-9]"};
constexpr Expressions kSigns = {R"([\p{P}\$\+<=>\^~\|]+)", kGpt2Split, R"(\p{N}+)",
                                "[0-9][0-9][0-9]"};
constexpr Expressions kBloom = {kBloomSplit};
constexpr Expressions kViking = {kBloom[0], R"(\p{N})"};
constexpr Expressions kExaoneMoe = {kExaoneMoeSplit};

struct Row {
  ScannerFamily family;
  std::span<const std::string_view> expressions;
};

/// Of each family the published expressions first; others that cut every text alike may stand below
/// them. Spellings need no rows: see regex_form.h.
constexpr std::array kRows = {
    Row{ScannerFamily::kGpt2, kGpt2},
    Row{ScannerFamily::kCl100k, kCl100k},
    Row{ScannerFamily::kQwen2, kQwen2},
    Row{ScannerFamily::kQwen2, kBailing},
    Row{ScannerFamily::kQwen35, kQwen35},
    Row{ScannerFamily::kO200k, kO200k},
    Row{ScannerFamily::kTekken, kTekken},
    Row{ScannerFamily::kKimiK2, kKimiK2},
    Row{ScannerFamily::kStarcoder, kStarcoder},
    Row{ScannerFamily::kDeepseek3, kDeepseek3},
    Row{ScannerFamily::kDeepseekCoder, kDeepseekCoder},
    Row{ScannerFamily::kSeedCoder, kSeedCoder},
    Row{ScannerFamily::kFalcon, kFalcon},
    Row{ScannerFamily::kSigns, kSigns},
    Row{ScannerFamily::kDeepseekLlm, kDeepseekLlm},
    Row{ScannerFamily::kDeepseekLlmNumbers, kDeepseekLlmNumbers},
    Row{ScannerFamily::kBloom, kBloom},
    Row{ScannerFamily::kViking, kViking},
    Row{ScannerFamily::kExaoneMoe, kExaoneMoe},
};

constexpr auto kSequences = [] {
  std::array<std::span<const std::string_view>, kRows.size()> sequences;
  std::ranges::transform(kRows, sequences.begin(), &Row::expressions);
  return sequences;
}();

constexpr size_t kExpressionsMax = std::ranges::max(kRows, {}, [](const Row& row) {
                                     return row.expressions.size();
                                   }).expressions.size();

using Forms = std::vector<std::string>;

/// An expression without a form is equal to itself alone.
Forms forms_of(std::span<const std::string_view> expressions) {
  Forms forms;
  for (const std::string_view expression : expressions) {
    forms.push_back(regex_form(expression).value_or("spelled " + std::string(expression)));
  }
  return forms;
}

/// Of each row. About 150 KB, computed in a few milliseconds when a vocabulary with expressions
/// that are not spelled as here is loaded.
const std::vector<Forms>& row_forms() {
  static const std::vector<Forms> all = [] {
    std::vector<Forms> forms;
    std::ranges::transform(kRows, std::back_inserter(forms),
                           [](const Row& row) { return forms_of(row.expressions); });
    return forms;
  }();
  return all;
}

template <typename All, typename Front>
bool starts_with(const All& all, const Front& front) {
  return all.size() >= front.size() && std::equal(front.begin(), front.end(), all.begin());
}

}  // namespace

std::optional<KnownSplit> find_scanner(std::span<const std::string_view> expressions) {
  std::optional<KnownSplit> best;
  const auto consider = [&best](const Row& row) {
    if (!best || best->expressions < row.expressions.size()) {
      best = {row.family, row.expressions.size()};
    }
  };
  for (const Row& row : kRows) {
    if (starts_with(expressions, row.expressions)) {
      consider(row);
    }
  }
  if (expressions.empty() || (best && best->expressions == expressions.size())) {
    return best;
  }
  const Forms forms = forms_of(expressions.first(std::min(expressions.size(), kExpressionsMax)));
  for (size_t i = 0; i < kRows.size(); ++i) {
    if (starts_with(forms, row_forms()[i])) {
      consider(kRows[i]);
    }
  }
  return best;
}

bool match_alike(std::string_view one, std::string_view other) {
  if (one == other) {
    return true;
  }
  const auto form = regex_form(one);
  return form && form == regex_form(other);
}

std::span<const std::string_view> expressions_of(ScannerFamily family) {
  const auto* row = std::ranges::find(kRows, family, &Row::family);
  return row == kRows.end() ? std::span<const std::string_view>() : row->expressions;
}

std::span<const std::span<const std::string_view>> known_sequences() {
  return kSequences;
}

}  // namespace stator::tokenizer
