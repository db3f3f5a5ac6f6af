// SPDX-License-Identifier: Apache-2.0
#include "stator/structured/read_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "stator/structured/detail/json_tree.h"
#include "stator/structured/grammar.h"
#include "stator/structured/json_schema.h"
#include "stator/structured/regex.h"
#include "stator/structured/structural_tag.h"

namespace stator::structured {
namespace {

/// A JSON value and the path that refusals call it by.
struct Value {
  const JsonTree& tree;
  JsonIndex at = 0;
  std::string path;

  const JsonNode& node() const { return tree[at]; }
  Value member(JsonIndex index) const {
    return {tree, index, fmt::format("{}.{}", path, tree[index].key)};
  }
  Refusal refused(std::string text) const {
    return {Code::kInvalidArgument, path, std::move(text)};
  }
  Refusal must_be(std::string_view expected) const {
    return refused(fmt::format("must be {}, not {}", expected, describe(node().type)));
  }
};

// ---- one value, one constraint

Outcome<std::string> read_text(const Value& value, size_t bytes_max) {
  if (value.node().type != JsonType::kString) {
    return value.must_be("a string");
  }
  const std::string_view text = value.node().text;
  if (text.find_first_not_of(" \t\r\n") == std::string_view::npos) {
    return value.refused("must not be blank");
  }
  if (text.size() > bytes_max) {
    return Refusal{Code::kTooLarge, value.path, fmt::format("is longer than {} bytes", bytes_max)};
  }
  return std::string(text);
}

Outcome<bool> read_flag(const Value& value) {
  if (value.node().type != JsonType::kBool) {
    return value.must_be("a boolean");
  }
  return value.node().boolean;
}

// An object, or a string that holds one.
Outcome<std::string> read_json_text(const Value& value) {
  if (value.node().type == JsonType::kString) {
    return std::string(value.node().text);
  }
  if (value.node().type != JsonType::kObject) {
    return value.must_be("an object or a string");
  }
  return std::string(value.node().raw);
}

Outcome<Constraint> read_schema(const Value& value) {
  STATOR_TRY(std::string text, read_json_text(value));
  auto features = check_json_schema(text);
  if (!features.has_value()) {
    return std::move(features.error()).in_field(value.path);
  }
  return JsonSchema{.text = std::move(text), .features = *features};
}

Outcome<Constraint> read_pattern(const Value& value) {
  STATOR_TRY(std::string pattern, read_text(value, kRegexBytesMax));
  if (auto facts = check_regex(pattern); !facts.has_value()) {
    return std::move(facts.error()).in_field(value.path);
  }
  return Regex{std::move(pattern)};
}

Outcome<Constraint> read_grammar_in(const Value& value, Grammar::Syntax syntax, std::string text) {
  if (auto check = check_grammar(text, syntax); !check.has_value()) {
    return std::move(check.error()).in_field(value.path);
  }
  return Grammar{syntax, std::move(text)};
}

Outcome<Constraint> read_grammar(const Value& value) {
  STATOR_TRY(std::string text, read_text(value, kTextBytesMax));
  const Grammar::Syntax syntax = detect_syntax(text);
  return read_grammar_in(value, syntax, std::move(text));
}

Outcome<Constraint> read_ebnf(const Value& value) {
  STATOR_TRY(std::string text, read_text(value, kTextBytesMax));
  return read_grammar_in(value, Grammar::Syntax::kEbnf, std::move(text));
}

Outcome<Constraint> read_choice(const Value& value) {
  if (value.node().type != JsonType::kArray) {
    return value.must_be("an array of strings");
  }
  Choice choice;
  size_t bytes = 0;
  for (const JsonIndex item : value.tree.children(value.at)) {
    const Value option{value.tree, item, fmt::format("{}[{}]", value.path, choice.options.size())};
    if (option.node().type != JsonType::kString) {
      return option.must_be("a string");
    }
    if (option.node().text.empty()) {
      return option.refused("must not be empty");
    }
    bytes += option.node().text.size();
    if (choice.options.size() == kChoicesMax || bytes > kChoiceBytesMax) {
      return Refusal{Code::kTooLarge, value.path,
                     fmt::format("must have at most {} strings and {} bytes in all: use a grammar",
                                 kChoicesMax, kChoiceBytesMax)};
    }
    choice.options.emplace_back(option.node().text);
  }
  if (choice.options.empty()) {
    return value.refused("must not be empty");
  }
  return choice;
}

Outcome<Constraint> read_tag(const Value& value) {
  STATOR_TRY(const std::string text, read_json_text(value));
  auto tag = read_structural_tag(text);
  if (!tag.has_value()) {
    return std::move(tag.error()).in_field(value.path);
  }
  return std::move(*tag);
}

// ---- the fields of a request

/// Gathers the constraint and its options from all fields.
class RequestReader {
 public:
  Check read_response_format(const Value& value);
  Check read_structured_outputs(const Value& value);
  Check read_whitespace_pattern(const Value& value);
  Check read_backend(const Value& value) {
    STATOR_TRY(output_.backend, read_text(value, kBackendNameBytesMax));
    return {};
  }
  Check read_json_object(const Value& value, Origin origin) {
    STATOR_TRY(const bool wanted, read_flag(value));
    return wanted ? add(value.path, JsonObject{}, origin) : Check();
  }

  /// The constraint that `field` asks for; a second one is refused.
  Check add(std::string field, Constraint constraint, Origin origin) {
    if (!output_.field.empty()) {
      return Refusal{Code::kInvalidArgument, std::move(field),
                     fmt::format("cannot be combined with {}: keep one of them", output_.field)};
    }
    output_.field = std::move(field);
    output_.constraint = std::move(constraint);
    output_.origin = origin;
    return {};
  }

  std::optional<StructuredOutput> finish() {
    return output_.field.empty() ? std::nullopt : std::optional(std::move(output_));
  }

 private:
  Check read_named_schema(const Value& format);
  Check read_structured_member(const Value& member);

  StructuredOutput output_;  // field is empty as long as there is no constraint
};

Check RequestReader::read_response_format(const Value& value) {
  if (value.node().type != JsonType::kObject) {
    return value.must_be("an object");
  }
  const JsonIndex type_at = value.tree.find(value.at, "type");
  const std::string_view type = type_at == kNoJson ? std::string_view() : value.tree[type_at].text;
  if (type == "text") {
    return {};
  }
  if (type == "json_object") {
    return add(value.path, JsonObject{}, Origin::kResponseFormat);
  }
  if (type == "json_schema") {
    return read_named_schema(value);
  }
  if (type == "structural_tag") {
    STATOR_TRY(Constraint tag, read_tag(value));
    return add(value.path, std::move(tag), Origin::kResponseFormat);
  }
  return Refusal{Code::kInvalidArgument, value.path + ".type",
                 "must be one of text, json_object, json_schema, structural_tag"};
}

Check RequestReader::read_named_schema(const Value& format) {
  const JsonIndex at = format.tree.find(format.at, "json_schema");
  const std::string path = format.path + ".json_schema";
  if (at == kNoJson || format.tree[at].type == JsonType::kNull) {
    return Refusal{Code::kInvalidArgument, path,
                   "is required when response_format.type is json_schema"};
  }
  const Value named = format.member(at);
  if (named.node().type != JsonType::kObject) {
    return named.must_be("an object");
  }
  JsonSchema schema;
  for (const JsonIndex index : named.tree.children(at)) {
    const Value member = named.member(index);
    const std::string_view key = member.node().key;
    if (member.node().type == JsonType::kNull) {
      continue;
    }
    if (key == "name") {
      STATOR_TRY(schema.name, read_text(member, kTextBytesMax));
    } else if (key == "description") {
      if (member.node().type != JsonType::kString) {
        return member.must_be("a string");
      }
      schema.description = member.node().text;
    } else if (key == "strict") {
      STATOR_TRY(schema.strict, read_flag(member));
    } else if (key == "schema") {
      if (member.node().type != JsonType::kObject) {
        return member.must_be("an object");
      }
      STATOR_TRY(Constraint read, read_schema(member));
      schema.text = std::move(std::get<JsonSchema>(read).text);
      schema.features = std::get<JsonSchema>(read).features;
    }
  }
  if (schema.name.empty()) {
    return Refusal{Code::kInvalidArgument, path + ".name", "must not be empty"};
  }
  if (schema.text.empty()) {
    return Refusal{Code::kInvalidArgument, path + ".schema", "is required and must be an object"};
  }
  return add(format.path, std::move(schema), Origin::kResponseFormat);
}

Check RequestReader::read_whitespace_pattern(const Value& value) {
  STATOR_TRY(output_.whitespace_pattern, read_text(value, kWhitespacePatternBytesMax));
  if (auto facts = check_regex(output_.whitespace_pattern); !facts.has_value()) {
    return std::move(facts.error()).in_field(value.path);
  }
  return {};
}

Check RequestReader::read_structured_outputs(const Value& value) {
  if (value.node().type != JsonType::kObject) {
    return value.must_be("an object");
  }
  for (const JsonIndex index : value.tree.children(value.at)) {
    if (value.tree[index].type != JsonType::kNull) {
      STATOR_CHECK(read_structured_member(value.member(index)));
    }
  }
  if (output_.field.empty()) {
    return value.refused(
        "must have one of json, regex, choice, grammar, json_object: true, structural_tag");
  }
  return {};
}

Check RequestReader::read_structured_member(const Value& member) {
  using Read = Outcome<Constraint> (*)(const Value&);
  constexpr auto kConstraints = std::to_array<std::pair<std::string_view, Read>>({
      {"json", read_schema},
      {"regex", read_pattern},
      {"choice", read_choice},
      {"grammar", read_grammar},
      {"structural_tag", read_tag},
  });
  const std::string_view key = member.node().key;
  for (const auto& [name, read] : kConstraints) {
    if (key == name) {
      STATOR_TRY(Constraint constraint, read(member));
      return add(member.path, std::move(constraint), Origin::kStructuredOutputs);
    }
  }
  if (key == "json_object") {
    return read_json_object(member, Origin::kStructuredOutputs);
  }
  if (key == "whitespace_pattern") {
    return read_whitespace_pattern(member);
  }
  if (key == "disable_any_whitespace") {
    STATOR_TRY(output_.disable_any_whitespace, read_flag(member));
    return {};
  }
  if (key == "disable_additional_properties") {
    STATOR_TRY(output_.disable_additional_properties, read_flag(member));
    return {};
  }
  if (key == "disable_fallback") {  // chooses between vLLM's own libraries
    STATOR_CHECK(read_flag(member));
    return {};
  }
  return member.refused("is unknown: remove it");
}

// ---- which reader for which field

using FieldRead = Check (*)(RequestReader&, const Value&);

template <Outcome<Constraint> (*kRead)(const Value&), Origin kOrigin>
Check read_constraint(RequestReader& reader, const Value& value) {
  STATOR_TRY(Constraint constraint, kRead(value));
  return reader.add(value.path, std::move(constraint), kOrigin);
}

struct FieldRow {
  std::string_view name;
  FieldRead read;
};

// In the order in which two constraints name each other: the later row is the refused one.
constexpr auto kFields = std::to_array<FieldRow>({
    {"response_format",
     [](RequestReader& reader, const Value& value) { return reader.read_response_format(value); }},
    {"structured_outputs",
     [](RequestReader& reader, const Value& value) {
       return reader.read_structured_outputs(value);
     }},
    {"guided_json", read_constraint<read_schema, Origin::kGuided>},
    {"guided_regex", read_constraint<read_pattern, Origin::kGuided>},
    {"guided_choice", read_constraint<read_choice, Origin::kGuided>},
    {"guided_grammar", read_constraint<read_grammar, Origin::kGuided>},
    {"guided_structural_tag", read_constraint<read_tag, Origin::kGuided>},
    {"guided_json_object",
     [](RequestReader& reader, const Value& value) {
       return reader.read_json_object(value, Origin::kGuided);
     }},
    {"json_schema", read_constraint<read_schema, Origin::kSglang>},
    {"regex", read_constraint<read_pattern, Origin::kSglang>},
    {"ebnf", read_constraint<read_ebnf, Origin::kSglang>},
    {"structural_tag", read_constraint<read_tag, Origin::kSglang>},
    {"guided_decoding_backend",
     [](RequestReader& reader, const Value& value) { return reader.read_backend(value); }},
    {"guided_whitespace_pattern",
     [](RequestReader& reader, const Value& value) {
       return reader.read_whitespace_pattern(value);
     }},
});

const SourceField* find_last(std::span<const SourceField> fields, std::string_view name) {
  for (size_t i = fields.size(); i > 0; --i) {
    if (fields[i - 1].name == name) {
      return &fields[i - 1];
    }
  }
  return nullptr;
}

}  // namespace

bool is_source_field(std::string_view name) {
  return std::ranges::find(kFields, name, &FieldRow::name) != kFields.end();
}

Outcome<std::optional<StructuredOutput>> read_structured_output(
    std::span<const SourceField> fields) {
  RequestReader reader;
  for (const FieldRow& row : kFields) {
    const SourceField* field = find_last(fields, row.name);
    if (field == nullptr) {
      continue;
    }
    auto tree = JsonTree::parse(field->json);
    if (!tree.has_value()) {
      return std::move(tree.error()).in_field(row.name);
    }
    if (tree->root().type != JsonType::kNull) {
      STATOR_CHECK(row.read(reader, Value{*tree, 0, std::string(row.name)}));
    }
  }
  return reader.finish();
}

}  // namespace stator::structured
