// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "stator/structured/refusal.h"

namespace stator::structured {

/// A schema in the words that the grammar of rules_of_schema.cc has: every value that follows it
/// follows the client's, too, though not all that do are left where negation would need more than
/// an automaton.
struct RewrittenSchema {
  std::string text;
  std::string first_place;  ///< of the first keyword that was rewritten, as a pointer
};

/// Rewrites what says something about other keywords or other schemas: `not`, `if`, `then`, `else`,
/// `dependencies`, `dependentRequired`, `dependentSchemas`, `unevaluatedProperties: false`,
/// `unevaluatedItems: false`, `contains` with `minContains: 0`, draft 4's `exclusiveMinimum: true`,
/// `nullable`, `oneOf` whose members may overlap, `$anchor`, `$id` and escapes in references. What
/// is left of `not` is {"enum": […]} or {"pattern": …}.
/// Nothing if there is nothing to rewrite (most schemas). Refused with its place: what cannot be
/// said otherwise. `text` must be JSON that JsonTree takes.
Outcome<std::optional<RewrittenSchema>> rewrite_schema(std::string_view text);

}  // namespace stator::structured
