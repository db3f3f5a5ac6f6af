// SPDX-License-Identifier: Apache-2.0
#include "stator/tokenizer/general_category.h"

#include <algorithm>
#include <string>
#include <vector>

namespace stator::tokenizer {
namespace {

constexpr std::string_view kNames[kGeneralCategories] = {
    "Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl", "No", "Pc", "Pd", "Ps", "Pe",
    "Pi", "Pf", "Po", "Sm", "Sc", "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Cs", "Co", "Cn"};

struct LongName {
  std::string_view name;  // lower case
  std::string_view category;
};
constexpr LongName kLongNames[] = {{"letter", "L"},
                                   {"mark", "M"},
                                   {"number", "N"},
                                   {"punctuation", "P"},
                                   {"punct", "P"},
                                   {"symbol", "S"},
                                   {"separator", "Z"},
                                   {"other", "C"},
                                   {"uppercaseletter", "Lu"},
                                   {"lowercaseletter", "Ll"},
                                   {"titlecaseletter", "Lt"},
                                   {"modifierletter", "Lm"},
                                   {"otherletter", "Lo"},
                                   {"nonspacingmark", "Mn"},
                                   {"spacingmark", "Mc"},
                                   {"enclosingmark", "Me"},
                                   {"decimalnumber", "Nd"},
                                   {"letternumber", "Nl"},
                                   {"othernumber", "No"},
                                   {"unassigned", "Cn"}};

struct TableRow {
  char32_t first;
  uint8_t category;
};
constexpr TableRow kTable[] = {
#include "stator/tokenizer/category_data.inc"  // NOLINT(bugprone-suspicious-include): generated
};

char lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c;
}

/// Names are compared without case, blanks and connectors.
std::string simplify(std::string_view name) {
  std::string simple;
  for (const char c : name) {
    if (c != ' ' && c != '_' && c != '-') {
      simple.push_back(lower(c));
    }
  }
  return simple;
}

}  // namespace

std::string_view name_of(GeneralCategory category) {
  return kNames[static_cast<size_t>(category)];
}

std::optional<CategorySet> find_categories(std::string_view name) {
  std::string simple = simplify(name);
  for (const LongName& known : kLongNames) {
    if (simple == known.name) {
      simple = simplify(known.category);
    }
  }
  if (simple == "lc") {
    return as_set(GeneralCategory::kLu) | as_set(GeneralCategory::kLl) |
           as_set(GeneralCategory::kLt);
  }
  CategorySet set = 0;
  for (uint32_t i = 0; i < kGeneralCategories && !simple.empty(); ++i) {
    const bool whole_group = simple.size() == 1 && lower(kNames[i][0]) == simple[0];
    if (whole_group || simplify(kNames[i]) == simple) {
      set |= CategorySet{1} << i;
    }
  }
  return set == 0 ? std::nullopt : std::optional(set);
}

std::span<const CategoryRun> category_runs() {
  static const std::vector<CategoryRun> runs = [] {
    std::vector<CategoryRun> all;
    all.reserve(std::size(kTable));
    for (const TableRow& row : kTable) {
      all.push_back({row.first, static_cast<GeneralCategory>(row.category)});
    }
    return all;
  }();
  return runs;
}

}  // namespace stator::tokenizer
