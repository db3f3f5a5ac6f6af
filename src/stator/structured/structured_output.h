// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "stator/structured/schema_features.h"

namespace stator::structured {

// The shape a request asks the output to have: one form for all the spellings clients use
// (read_request.h) and for all the engines that can enforce it (lower.h). Whatever stands in a
// StructuredOutput has been checked by the readers of this module; texts are the client's,
// verbatim, because key order and number spelling matter to engines.

inline constexpr size_t kTextBytesMax = 4U << 20U;  ///< any schema, grammar or tag
inline constexpr size_t kRegexBytesMax = 64U << 10U;
inline constexpr size_t kChoicesMax = 4096;
inline constexpr size_t kChoiceBytesMax = 1U << 20U;  ///< all choices together
inline constexpr size_t kWhitespacePatternBytesMax = 256;
inline constexpr size_t kBackendNameBytesMax = 64;

/// A JSON value that follows a JSON Schema.
struct JsonSchema {
  std::string text;         ///< JSON, verbatim; an object
  SchemaFeatures features;  ///< what not every engine can enforce
  std::string name;         ///< response_format.json_schema.name; empty where there was none
  std::string description;
  std::optional<bool> strict;
};

/// Text that a regular expression matches from its first to its last byte.
struct Regex {
  std::string pattern;
};

/// One of these strings.
struct Choice {
  std::vector<std::string> options;  ///< 1 … kChoicesMax, none empty
};

/// Text of a context-free grammar.
struct Grammar {
  enum class Syntax : uint8_t {
    kEbnf,  ///< `root ::= …`: GBNF and what xgrammar adds
    kLark,  ///< `start: …`
  };
  Syntax syntax = Syntax::kEbnf;
  std::string text;
};

/// Any JSON object.
struct JsonObject {};

/// Free text in which certain openings force a shape until their end: xgrammar's structural tags.
struct StructuralTag {
  std::string text;         ///< JSON object {"type":"structural_tag",…}
  SchemaFeatures features;  ///< of all schemas inside
  bool has_format = false;  ///< {"format":…}; else the older {"structures":…,"triggers":…}
};

using Constraint = std::variant<JsonSchema, Regex, Choice, Grammar, JsonObject, StructuralTag>;

/// The alternatives of Constraint, in order.
enum class Kind : uint8_t { kJsonSchema, kRegex, kChoice, kGrammar, kJsonObject, kStructuralTag };
inline constexpr size_t kKindCount = std::variant_size_v<Constraint>;

/// "a JSON schema", "a regular expression", …: for messages.
std::string_view describe(Kind kind);

/// What made the constraint.
enum class Origin : uint8_t {
  kResponseFormat,
  kGuided,             ///< guided_*
  kStructuredOutputs,  ///< structured_outputs
  kSglang,             ///< json_schema, regex, ebnf at the root
  kToolChoice,         ///< required or named: the output is the call
  kStrictTools,        ///< auto: text, or calls whose arguments follow their schema
};

/// A value type; equal requests give equal values. Carried by the request as far as the engine.
struct StructuredOutput {
  Constraint constraint;
  std::string
      field;  ///< what asked for it: "guided_json", "structured_outputs.regex", "tool_choice"
  Origin origin = Origin::kResponseFormat;
  std::string whitespace_pattern;  ///< regex of the space between JSON tokens; empty = engine's
  std::string backend;             ///< library the client would like; a hint, may be ignored
  bool disable_any_whitespace = false;
  bool disable_additional_properties = false;
  /// The model thinks first and the constraint begins after its reasoning. Set by the caller, who
  /// knows the model.
  bool require_reasoning = false;

  Kind kind() const { return static_cast<Kind>(constraint.index()); }
};

}  // namespace stator::structured
