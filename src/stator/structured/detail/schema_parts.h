// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "stator/structured/detail/json_tree.h"

namespace stator::structured {

/// A schema of a tree, or what is left of it: bits say which of its keywords are schemas of their
/// own in the same conjunction already. Trees have far fewer values than there are numbers left.
using SchemaPart = JsonIndex;
inline constexpr SchemaPart kFollowed = 1U << 31U;     ///< without $ref and allOf
inline constexpr SchemaPart kAnyOfChosen = 1U << 30U;  ///< without anyOf
inline constexpr SchemaPart kOneOfChosen = 1U << 29U;  ///< without oneOf

constexpr JsonIndex node_of(SchemaPart part) {
  return part & (kOneOfChosen - 1);
}
constexpr bool is_left_out(SchemaPart part, std::string_view key) {
  return ((part & kFollowed) != 0 && (key == "$ref" || key == "allOf")) ||
         ((part & kAnyOfChosen) != 0 && key == "anyOf") ||
         ((part & kOneOfChosen) != 0 && key == "oneOf");
}

/// The keyword's value; kNoJson if the part has none.
JsonIndex find_keyword(const JsonTree& tree, SchemaPart part, std::string_view key);

/// Numbers and strings by what they say, other values by their spelling.
bool same_value(const JsonTree& tree, JsonIndex a, JsonIndex b);

/// Whether a schema takes a value that is written out in the tree. `unclear` becomes the place of
/// a keyword that is not understood here; the answer means nothing then.
bool takes_value(const JsonTree& tree, SchemaPart part, JsonIndex value, JsonIndex& unclear);

}  // namespace stator::structured
