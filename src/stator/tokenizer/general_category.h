// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace stator::tokenizer {

/// General categories of Unicode, in the order of the generated table.
enum class GeneralCategory : uint8_t {
  kLu,
  kLl,
  kLt,
  kLm,
  kLo,
  kMn,
  kMc,
  kMe,
  kNd,
  kNl,
  kNo,
  kPc,
  kPd,
  kPs,
  kPe,
  kPi,
  kPf,
  kPo,
  kSm,
  kSc,
  kSk,
  kSo,
  kZs,
  kZl,
  kZp,
  kCc,
  kCf,
  kCs,
  kCo,
  kCn,
};
inline constexpr uint32_t kGeneralCategories = 30;

/// A set of general categories, bit = enumerator.
using CategorySet = uint32_t;

constexpr CategorySet as_set(GeneralCategory category) {
  return CategorySet{1} << static_cast<uint32_t>(category);
}

/// "Lu", "Nd", …
std::string_view name_of(GeneralCategory category);

/// What `\p{name}` stands for in a regular expression: "L", "Lu", "Letter", "LC" … in any case;
/// nothing if that is not about general categories.
std::optional<CategorySet> find_categories(std::string_view name);

/// Code points from `first` up to the next run's are of the category; from U+0000 on. The table is
/// that of the reference's regular expressions (see testdata/make_script_data.py).
struct CategoryRun {
  char32_t first;
  GeneralCategory category;
};
std::span<const CategoryRun> category_runs();

}  // namespace stator::tokenizer
