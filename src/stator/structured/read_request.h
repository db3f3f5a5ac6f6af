// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "stator/structured/refusal.h"
#include "stator/structured/structured_output.h"

namespace stator::structured {

/// One root key of a request and its value as JSON text (`null` counts as absent). Views into the
/// request's body.
struct SourceField {
  std::string_view name;
  std::string_view json;
};

/// Whether a root key belongs to this module: response_format, guided_json, guided_regex,
/// guided_choice, guided_grammar, guided_json_object, guided_structural_tag,
/// guided_decoding_backend, guided_whitespace_pattern, structured_outputs, and SGLang's
/// json_schema, regex, ebnf and structural_tag.
bool is_source_field(std::string_view name);

/// From the fields of one request to its constraint: nothing if there is none, else exactly one,
/// checked. Two constraints are refused, naming both fields. Field names in refusals are paths into
/// the request ("response_format.json_schema.schema"); inside schemas, grammars and patterns the
/// text says where (JSON pointer of the keyword; line and column; character). Of a field given
/// twice the last counts.
///
///   const SourceField fields[] = {{"guided_regex", R"("[0-9]{4}")"}};
///   STATOR_TRY(auto output, read_structured_output(fields));
///
/// Pure. Time and memory are linear in the texts, which are bounded (structured_output.h).
Outcome<std::optional<StructuredOutput>> read_structured_output(
    std::span<const SourceField> fields);

}  // namespace stator::structured
