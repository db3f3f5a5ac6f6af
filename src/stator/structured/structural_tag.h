// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "stator/structured/refusal.h"
#include "stator/structured/structured_output.h"

namespace stator::structured {

/// Reads {"type":"structural_tag"} in either form: `structures` and `triggers`, or `format` (a tree
/// of const_string, json_schema, qwen_xml_parameter, any_text, grammar, regex, sequence, or, tag,
/// triggered_tags and tags_with_separator). Schemas, patterns and grammars inside are checked by
/// their readers; every tag must begin with one of its triggers. Refusals name the member
/// ("structures[0].schema").
Outcome<StructuralTag> read_structural_tag(std::string_view json);

}  // namespace stator::structured
