// SPDX-License-Identifier: Apache-2.0
#include "stator/structured/structural_tag.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <vector>

#include "stator/structured/detail/json_tree.h"
#include "stator/structured/grammar.h"
#include "stator/structured/json_schema.h"
#include "stator/structured/regex.h"

namespace stator::structured {
namespace {

// Triggers are tried one after another for each tag.
constexpr size_t kTagStringsMax = 256;

/// Field names in refusals are paths below the tag: "format.tags[0].content".
class TagReader {
 public:
  explicit TagReader(const JsonTree& tree) : tree_(tree) {}

  Outcome<StructuralTag> read() {
    const JsonIndex format = tree_.find(0, "format");
    const bool good = format != kNoJson ? read_format(format, "format") : read_structures();
    if (!good) {
      return std::move(*refusal_);
    }
    return StructuralTag{.text = std::string(tree_.root().raw),
                         .features = features_,
                         .has_format = format != kNoJson};
  }

 private:
  bool fail(std::string field, std::string text) {
    refusal_ = Refusal{Code::kInvalidArgument, std::move(field), std::move(text)};
    return false;
  }
  bool fail(const std::string& field, Refusal inner) {
    refusal_ = std::move(inner).in_field(field);
    return false;
  }

  // The member `name` of `object`, which must have this type.
  bool require(JsonIndex object, const std::string& field, std::string_view name, JsonType type,
               JsonIndex& member);
  bool optional_flag(JsonIndex object, const std::string& field, std::string_view name);
  bool read_strings(JsonIndex list, const std::string& field, std::vector<std::string_view>& out);
  bool read_schema(JsonIndex schema, const std::string& field);
  bool read_structures();
  bool read_structure(JsonIndex structure, const std::string& field,
                      const std::vector<std::string_view>& triggers);
  bool check_trigger(const std::string& field, std::string_view begin,
                     const std::vector<std::string_view>& triggers);

  bool read_format(JsonIndex format, const std::string& field);
  bool read_leaf(JsonIndex format, const std::string& field, std::string_view type);
  bool read_elements(JsonIndex format, const std::string& field);
  bool read_tag(JsonIndex tag, const std::string& field,
                const std::vector<std::string_view>* triggers);
  bool read_tags(JsonIndex format, const std::string& field,
                 const std::vector<std::string_view>* triggers);
  bool read_triggered(JsonIndex format, const std::string& field);

  const JsonTree& tree_;
  SchemaFeatures features_;
  std::optional<Refusal> refusal_;
};

bool TagReader::require(JsonIndex object, const std::string& field, std::string_view name,
                        JsonType type, JsonIndex& member) {
  member = tree_.find(object, name);
  const std::string path = field.empty() ? std::string(name) : fmt::format("{}.{}", field, name);
  if (member == kNoJson) {
    return fail(path, fmt::format("is required and must be {}", describe(type)));
  }
  return tree_[member].type == type || fail(path, fmt::format("must be {}, not {}", describe(type),
                                                              describe(tree_[member].type)));
}

bool TagReader::optional_flag(JsonIndex object, const std::string& field, std::string_view name) {
  const JsonIndex member = tree_.find(object, name);
  return member == kNoJson || tree_[member].type == JsonType::kBool ||
         fail(fmt::format("{}.{}", field, name),
              fmt::format("must be a boolean, not {}", describe(tree_[member].type)));
}

bool TagReader::read_strings(JsonIndex list, const std::string& field,
                             std::vector<std::string_view>& out) {
  for (const JsonIndex item : tree_.children(list)) {
    if (tree_[item].type != JsonType::kString || tree_[item].text.empty()) {
      return fail(fmt::format("{}[{}]", field, out.size()), "must be a non-empty string");
    }
    out.push_back(tree_[item].text);
  }
  if (out.size() > kTagStringsMax) {
    return fail(field, fmt::format("has more than {} strings", kTagStringsMax));
  }
  return !out.empty() || fail(field, "must not be empty");
}

bool TagReader::read_schema(JsonIndex schema, const std::string& field) {
  if (tree_[schema].type == JsonType::kBool && tree_[schema].boolean) {
    return true;
  }
  auto features = check_json_schema(tree_[schema].raw);
  if (!features.has_value()) {
    return fail(field, std::move(features.error()));
  }
  features_.merge(*features);
  return true;
}

bool TagReader::read_structures() {
  JsonIndex triggers_at = kNoJson;
  JsonIndex structures = kNoJson;
  std::vector<std::string_view> triggers;
  if (!require(0, "", "triggers", JsonType::kArray, triggers_at) ||
      !read_strings(triggers_at, "triggers", triggers) ||
      !require(0, "", "structures", JsonType::kArray, structures)) {
    return false;
  }
  size_t index = 0;
  for (const JsonIndex structure : tree_.children(structures)) {
    if (!read_structure(structure, fmt::format("structures[{}]", index++), triggers)) {
      return false;
    }
  }
  return index > 0 || fail("structures", "must not be empty");
}

bool TagReader::read_structure(JsonIndex structure, const std::string& field,
                               const std::vector<std::string_view>& triggers) {
  if (tree_[structure].type != JsonType::kObject) {
    return fail(field, fmt::format("must be an object, not {}", describe(tree_[structure].type)));
  }
  JsonIndex begin = kNoJson;
  JsonIndex schema = kNoJson;
  JsonIndex end = kNoJson;
  return require(structure, field, "begin", JsonType::kString, begin) &&
         check_trigger(field + ".begin", tree_[begin].text, triggers) &&
         require(structure, field, "end", JsonType::kString, end) &&
         require(structure, field, "schema", JsonType::kObject, schema) &&
         read_schema(schema, field + ".schema");
}

bool TagReader::check_trigger(const std::string& field, std::string_view begin,
                              const std::vector<std::string_view>& triggers) {
  const bool known = std::ranges::any_of(
      triggers, [begin](std::string_view trigger) { return begin.starts_with(trigger); });
  return known || fail(field, "must begin with one of the triggers");
}

// NOLINTNEXTLINE(misc-no-recursion): bounded by kJsonDepthMax
bool TagReader::read_format(JsonIndex format, const std::string& field) {
  if (tree_[format].type != JsonType::kObject) {
    return fail(field, fmt::format("must be an object, not {}", describe(tree_[format].type)));
  }
  JsonIndex type_at = kNoJson;
  if (!require(format, field, "type", JsonType::kString, type_at)) {
    return false;
  }
  const std::string_view type = tree_[type_at].text;
  if (type == "sequence" || type == "or") {
    return read_elements(format, field);
  }
  if (type == "tag") {
    return read_tag(format, field, nullptr);
  }
  if (type == "triggered_tags") {
    return read_triggered(format, field);
  }
  if (type == "tags_with_separator") {
    JsonIndex separator = kNoJson;
    return require(format, field, "separator", JsonType::kString, separator) &&
           read_tags(format, field, nullptr);
  }
  return read_leaf(format, field, type);
}

bool TagReader::read_leaf(JsonIndex format, const std::string& field, std::string_view type) {
  JsonIndex value = kNoJson;
  if (type == "any_text") {
    return true;
  }
  if (type == "const_string") {
    return require(format, field, "value", JsonType::kString, value);
  }
  if (type == "json_schema" || type == "qwen_xml_parameter") {
    const JsonIndex schema = tree_.find(format, "json_schema");
    const bool any = schema != kNoJson && tree_[schema].type == JsonType::kBool;
    return (any || require(format, field, "json_schema", JsonType::kObject, value)) &&
           read_schema(schema, field + ".json_schema");
  }
  if (type == "regex") {
    if (!require(format, field, "pattern", JsonType::kString, value)) {
      return false;
    }
    auto facts = check_regex(tree_[value].text);
    return facts.has_value() || fail(field + ".pattern", std::move(facts.error()));
  }
  if (type == "grammar") {
    if (!require(format, field, "grammar", JsonType::kString, value)) {
      return false;
    }
    auto check = check_grammar(tree_[value].text, Grammar::Syntax::kEbnf);
    return check.has_value() || fail(field + ".grammar", std::move(check.error()));
  }
  return fail(field + ".type",
              "must be one of const_string, json_schema, qwen_xml_parameter, any_text, grammar, "
              "regex, sequence, or, tag, triggered_tags, tags_with_separator");
}

// NOLINTNEXTLINE(misc-no-recursion): bounded by kJsonDepthMax
bool TagReader::read_elements(JsonIndex format, const std::string& field) {
  JsonIndex elements = kNoJson;
  if (!require(format, field, "elements", JsonType::kArray, elements)) {
    return false;
  }
  size_t index = 0;
  for (const JsonIndex element : tree_.children(elements)) {
    if (!read_format(element, fmt::format("{}.elements[{}]", field, index++))) {
      return false;
    }
  }
  return index > 0 || fail(field + ".elements", "must not be empty");
}

// NOLINTNEXTLINE(misc-no-recursion): bounded by kJsonDepthMax
bool TagReader::read_tag(JsonIndex tag, const std::string& field,
                         const std::vector<std::string_view>* triggers) {
  JsonIndex begin = kNoJson;
  if (!require(tag, field, "begin", JsonType::kString, begin)) {
    return false;
  }
  if (triggers != nullptr && !check_trigger(field + ".begin", tree_[begin].text, *triggers)) {
    return false;
  }
  JsonIndex end = tree_.find(tag, "end");
  std::vector<std::string_view> ends;
  const bool several = end != kNoJson && tree_[end].type == JsonType::kArray;
  if (several ? !read_strings(end, field + ".end", ends)
              : !require(tag, field, "end", JsonType::kString, end)) {
    return false;
  }
  JsonIndex content = kNoJson;
  return require(tag, field, "content", JsonType::kObject, content) &&
         read_format(content, field + ".content");
}

// NOLINTNEXTLINE(misc-no-recursion): bounded by kJsonDepthMax
bool TagReader::read_tags(JsonIndex format, const std::string& field,
                          const std::vector<std::string_view>* triggers) {
  JsonIndex tags = kNoJson;
  if (!require(format, field, "tags", JsonType::kArray, tags) ||
      !optional_flag(format, field, "at_least_one") ||
      !optional_flag(format, field, "stop_after_first")) {
    return false;
  }
  size_t index = 0;
  for (const JsonIndex tag : tree_.children(tags)) {
    const std::string path = fmt::format("{}.tags[{}]", field, index++);
    if (tree_[tag].type != JsonType::kObject) {
      return fail(path, fmt::format("must be an object, not {}", describe(tree_[tag].type)));
    }
    if (!read_tag(tag, path, triggers)) {
      return false;
    }
  }
  return index > 0 || fail(field + ".tags", "must not be empty");
}

// NOLINTNEXTLINE(misc-no-recursion): bounded by kJsonDepthMax
bool TagReader::read_triggered(JsonIndex format, const std::string& field) {
  JsonIndex list = kNoJson;
  std::vector<std::string_view> triggers;
  return require(format, field, "triggers", JsonType::kArray, list) &&
         read_strings(list, field + ".triggers", triggers) && read_tags(format, field, &triggers);
}

}  // namespace

Outcome<StructuralTag> read_structural_tag(std::string_view json) {
  STATOR_TRY(const JsonTree tree, JsonTree::parse(json));
  if (tree.root().type != JsonType::kObject) {
    return refuse(fmt::format("must be an object, not {}", describe(tree.root().type)));
  }
  const JsonIndex type = tree.find(0, "type");
  if (type == kNoJson || tree[type].text != "structural_tag") {
    return Refusal{Code::kInvalidArgument, "type", "must be \"structural_tag\""};
  }
  return TagReader(tree).read();
}

}  // namespace stator::structured
