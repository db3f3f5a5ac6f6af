// SPDX-License-Identifier: Apache-2.0
#include "stator/tokenizer/detail/regex_classes.h"

#include "stator/core/assert.h"
#include "stator/tokenizer/unicode.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <fmt/format.h>
#include <pcre2.h>

#include <algorithm>
#include <memory>
#include <vector>

namespace stator::tokenizer {
namespace {

constexpr char32_t kCodePoints = 0x110000;

bool is_surrogate(char32_t c) {
  return c >= 0xD800 && c < 0xE000;
}

/// What PCRE2 takes for the categories: all code points go through one expression with a mark per
/// category. About 20 ms, once per process, and only for expressions without a scanner.
std::vector<CategoryRun> ask_pcre2() {
  std::string expression;
  for (uint32_t i = 0; i < kGeneralCategories; ++i) {
    const std::string_view name = name_of(static_cast<GeneralCategory>(i));
    expression += fmt::format("{}\\p{{{}}}+(*MARK:{})", i == 0 ? "" : "|", name, i);
  }
  int error = 0;
  PCRE2_SIZE offset = 0;
  const std::unique_ptr<pcre2_code, decltype(&pcre2_code_free)> code(
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(expression.data()), expression.size(), PCRE2_UTF,
                    &error, &offset, nullptr),
      pcre2_code_free);
  STATOR_ASSERT(code != nullptr, "PCRE2 knows the general categories");
  static_cast<void>(pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE));
  const std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)> match(
      pcre2_match_data_create(1, nullptr), pcre2_match_data_free);
  std::string text;
  for (char32_t c = 0; c < kCodePoints; ++c) {
    if (!is_surrogate(c)) {
      append_utf8(text, c);
    }
  }
  std::vector<CategoryRun> runs;
  for (size_t at = 0; at < text.size(); at = pcre2_get_ovector_pointer(match.get())[1]) {
    const int rc = pcre2_match(code.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(),
                               at, PCRE2_NO_UTF_CHECK | PCRE2_ANCHORED, match.get(), nullptr);
    STATOR_ASSERT(rc > 0, "every code point has a category");
    const auto* mark = reinterpret_cast<const char*>(pcre2_get_mark(match.get()));
    runs.push_back({decode_at(text, at).value, static_cast<GeneralCategory>(std::stoi(mark))});
  }
  return runs;
}

/// A stretch of code points that our table and PCRE2's put into different categories.
struct Difference {
  char32_t first;
  char32_t last;
  GeneralCategory ours;
  GeneralCategory theirs;
};

std::vector<Difference> find_differences() {
  const std::span<const CategoryRun> ours = category_runs();
  const std::vector<CategoryRun> theirs = ask_pcre2();
  std::vector<Difference> differences;
  size_t i = 0;
  size_t j = 0;
  for (char32_t first = 0; first < kCodePoints;) {
    const char32_t our_end = i + 1 < ours.size() ? ours[i + 1].first : kCodePoints;
    const char32_t their_end = j + 1 < theirs.size() ? theirs[j + 1].first : kCodePoints;
    const char32_t end = std::min(our_end, their_end);
    if (ours[i].category != theirs[j].category && !is_surrogate(first)) {
      differences.push_back({first, end - 1, ours[i].category, theirs[j].category});
    }
    first = end;
    i += our_end == end ? 1 : 0;
    j += their_end == end ? 1 : 0;
  }
  return differences;
}

const std::vector<Difference>& differences() {
  static const std::vector<Difference> all = find_differences();
  return all;
}

bool has(CategorySet set, GeneralCategory category) {
  return (set & as_set(category)) != 0;
}

void append_range(char32_t first, char32_t last, std::string& out) {
  out += fmt::format("\\x{{{:X}}}-\\x{{{:X}}}", static_cast<uint32_t>(first),
                     static_cast<uint32_t>(last));
}

/// All of `set` by our table as ranges, for the case that PCRE2's classes hold too much.
std::string spell_out(CategorySet set) {
  std::string out;
  const std::span<const CategoryRun> runs = category_runs();
  for (size_t i = 0; i < runs.size();) {
    const char32_t first = runs[i].first;
    const size_t begin = i;
    while (i < runs.size() && has(set, runs[i].category) && !is_surrogate(runs[i].first)) {
      ++i;
    }
    if (i > begin) {
      append_range(first, (i < runs.size() ? runs[i].first : kCodePoints) - 1, out);
    } else {
      ++i;
    }
  }
  return out;
}

/// `set` as PCRE2 spells it: whole groups by one letter, which is faster.
std::string name_categories(CategorySet set) {
  std::string out;
  for (const std::string_view group : {"L", "M", "N", "P", "S", "Z", "C"}) {
    const CategorySet all = find_categories(group).value_or(0);
    if ((set & all) == all) {
      out += fmt::format("\\p{{{}}}", group);
      set &= ~all;
    }
  }
  for (uint32_t i = 0; i < kGeneralCategories; ++i) {
    if (has(set, static_cast<GeneralCategory>(i))) {
      out += fmt::format("\\p{{{}}}", name_of(static_cast<GeneralCategory>(i)));
    }
  }
  return out;
}

}  // namespace

std::string class_members(CategorySet categories, Members members) {
  constexpr CategorySet kAll = (CategorySet{1} << kGeneralCategories) - 1;
  const CategorySet set = members == Members::kThese ? categories : kAll & ~categories;
  std::string out = name_categories(set);
  for (const Difference& difference : differences()) {
    const bool in_theirs = has(set, difference.theirs);
    if (in_theirs && !has(set, difference.ours)) {
      return spell_out(set);
    }
    if (!in_theirs && has(set, difference.ours)) {
      append_range(difference.first, difference.last, out);
    }
  }
  return out;
}

}  // namespace stator::tokenizer
