// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "stator/core/assert.h"
#include "stator/structured/json_schema.h"
#include "stator/structured/lower.h"
#include "stator/structured/read_request.h"
#include "stator/structured/rule_set.h"
#include "stator/structured/structural_tag.h"

// Any bytes are either an accepted schema, which is accepted again in the form that travels between
// processes and at another place of a document, or a refusal with a text. A short one is compiled,
// rewritten or not: refused, or a grammar. The same bytes as a structural tag must not crash.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace stator::structured;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto tag = read_structural_tag(text);
  STATOR_ASSERT(tag.has_value() || !tag.error().text.empty(), "refusals say why");
  const auto features = check_json_schema(text);
  if (!features.has_value()) {
    STATOR_ASSERT(!features.error().text.empty(), "refusals say why");
    return 0;
  }
  StructuredOutput output;
  output.constraint = JsonSchema{.text = std::string(text), .features = *features};
  const std::string encoded = encode(output);
  const SourceField fields[] = {{"structured_outputs", encoded}};
  const auto again = read_structured_output(fields);
  if (again.has_value()) {  // one level deeper, an accepted schema may be too deep
    STATOR_ASSERT(std::get<JsonSchema>((*again)->constraint).features == *features,
                  "the same schema has the same features");
  }
  if (size < 512) {
    const auto rules = compile_rules(output);
    STATOR_ASSERT(rules.has_value() || !rules.error().text.empty(), "refusals say why");
  }
  const RebasedSchema moved = rebase_schema(text, "/$defs/a");
  const std::string document = "{\"$ref\":\"#/$defs/a\",\"$defs\":{\"a\":" + moved.text + "}}";
  const auto nested = check_json_schema(document);
  STATOR_ASSERT(nested.has_value() || nested.error().text.contains("deeper"),
                "a rebased schema is accepted");
  return 0;
}
