// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "stator/structured/refusal.h"
#include "stator/structured/schema_features.h"

namespace stator::structured {

/// Reads a JSON Schema (drafts 7 and 2020-12) for what constrained decoders can enforce, and says
/// which engine-dependent features it uses. Refused, with the JSON pointer of the keyword and what
/// to write instead: keywords nobody enforces (`maxContains`, …), wrong value types,
/// bounds that exclude every value, references that leave the document, dangle, or lead back to
/// themselves without a value between, and schemas that no finite value matches. Annotations and
/// unknown keywords are ignored, as the standard asks. docs/reference/structured_output.md has the
/// table.
///
/// The root must be an object. Depth and number of JSON values are bounded (kJsonDepthMax,
/// kJsonNodesMax in detail/json_tree.h); linear time.
Outcome<SchemaFeatures> check_json_schema(std::string_view text);

/// An accepted schema as rules_of_schema.cc compiles it (rewrite_schema.h); empty if that is the
/// text itself.
std::string own_form(std::string_view text);

/// Where in an accepted schema the first of `features` stands, as a pointer ("#/allOf").
std::string find_schema_feature(std::string_view text, SchemaFeatures features);

/// An accepted schema, ready to stand at `prefix` ("/$defs/a") of another document: its references
/// "#/x" have become "#/$defs/a/x"; nothing else changes. `has_references` tells whether any did.
struct RebasedSchema {
  std::string text;
  bool has_references = false;
};
RebasedSchema rebase_schema(std::string_view text, std::string_view prefix);

}  // namespace stator::structured
