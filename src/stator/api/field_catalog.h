// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace stator::api {

/// Bodies whose root keys this module reads.
enum class BodyKind : uint8_t {
  kChat,
  kCompletion,
  kTokenize,
  kDetokenize,
  kEmbeddings,
  kRerank,
  kScore,
  kClassify,
  kPooling,
  kCohereEmbed,
  kTeiEmbed,
  kTeiEmbedAll,
  kTeiPredict,
  kTeiSimilarity,
};

/// The root keys that the reader of such a body knows, sorted: the readers' own tables.
std::vector<std::string_view> body_fields(BodyKind kind);

/// Whether a field is known only to be refused by name (501), whatever the engine.
bool is_refused_field(std::string_view field);

/// JSON Schema of such a body, one property per field: what /openapi.json shows. Refused fields are
/// named in "x-stator-refused" instead. Fields that are not listed are ignored
/// (frontend.strict_fields: refused), so the schema is open. It refers to "ChatMessage" and "Tool"
/// in #/components/schemas.
std::string body_schema(BodyKind kind);

/// JSON Schema of one field's values, as far as it does not depend on other fields; empty for a
/// field that has none, which a test forbids.
std::string_view field_schema(BodyKind kind, std::string_view field);

}  // namespace stator::api
