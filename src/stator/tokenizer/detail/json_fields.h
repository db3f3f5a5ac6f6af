// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include <simdjson.h>

#include "stator/core/result.h"

namespace stator::tokenizer {

using Json = simdjson::dom::element;

/// Sequences inside sequences deeper than this are refused: the file is hostile or broken.
inline constexpr int kMaxNesting = 8;

// Typed access to fields of a JSON object. A missing field or null is absent; a value of another
// type than asked for is an error that names the field.

/// The field, or nothing if `object` is no object or the field is missing or null.
std::optional<Json> find_field(Json object, std::string_view name);

Result<std::string_view> get_string(Json object, std::string_view name);
Result<std::optional<std::string_view>> find_string(Json object, std::string_view name);
Result<bool> get_bool(Json object, std::string_view name, bool if_absent);
Result<uint64_t> get_unsigned(Json object, std::string_view name, uint64_t if_absent);
Result<simdjson::dom::array> get_array(Json object, std::string_view name);
Result<simdjson::dom::object> get_object(Json object, std::string_view name);

/// The "type" of a pipeline step.
Result<std::string_view> get_type(Json step);

/// kUnsupported for a step we do not have; `kind` is "normalizer", "decoder", …
Error unsupported_step(std::string_view kind, std::string_view type);

/// Parses a document. The parser owns what the element views. kCorrupt: not JSON.
Result<Json> parse_json(simdjson::dom::parser& parser, std::string_view text,
                        std::string_view file_name);

}  // namespace stator::tokenizer
