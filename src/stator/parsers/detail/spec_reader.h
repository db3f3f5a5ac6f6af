// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>
#include <variant>
#include <vector>

#include "stator/parsers/family_spec.h"

namespace stator::parsers {

/// Limits of a spec file; beyond them it is refused.
inline constexpr size_t kMaxSpecBytes = size_t{1} << 20;

using AnySpec = std::variant<FamilySpec, ReasoningSpec>;

/// One spec object, or an array of them. kInvalidArgument names the key that is wrong.
Result<std::vector<AnySpec>> read_specs(std::string_view json_text);

/// Lower case, '-' as '_'.
std::string normalize_family_name(std::string_view name);

/// A spec that is compiled in.
struct BuiltinSpec {
  std::string_view file;
  std::string_view text;
};
/// The files of families/, in the order of CMakeLists.txt. Generated.
std::span<const BuiltinSpec> builtin_specs();

}  // namespace stator::parsers
