// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "stator/structured/refusal.h"
#include "stator/structured/structured_output.h"

namespace stator::structured {

/// Reads {"type":"structural_tag"} in either form: `structures` and `triggers`, or `format` (a tree
/// of the formats of xgrammar's structural tags). Schemas, patterns and grammars inside are checked
/// by their readers; every tag must begin with one of its triggers. Which formats it knows depends
/// on the engine's version; one that does not know a format refuses the request. Refusals name the
/// member ("structures[0].schema").
Outcome<StructuralTag> read_structural_tag(std::string_view json);

}  // namespace stator::structured
