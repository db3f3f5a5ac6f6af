// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <cmath>

#include "stator/structured/detail/tag_reader.h"
#include "stator/structured/grammar.h"
#include "stator/structured/json_schema.h"
#include "stator/structured/regex.h"

// The tree of formats that xgrammar's documentation of structural tags describes.

namespace stator::structured {
namespace {

constexpr double kRepeatMax = 1e9;
constexpr std::string_view kTypes =
    "const_string, json_schema, qwen_xml_parameter, any_text, any_tokens, token, exclude_token, "
    "grammar, regex, sequence, or, optional, plus, star, repeat, tag, triggered_tags, "
    "token_triggered_tags, tags_with_separator, dispatch, token_dispatch";

}  // namespace

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
  if (type == "optional" || type == "plus" || type == "star") {
    return read_content(format, field);
  }
  if (type == "repeat") {
    return read_repeat(format, field);
  }
  if (type == "tag") {
    return read_tag(format, field);
  }
  if (type == "triggered_tags") {
    return read_triggered(format, field);
  }
  if (type == "token_triggered_tags") {
    return read_token_triggered(format, field);
  }
  if (type == "tags_with_separator") {
    JsonIndex separator = kNoJson;
    return require(format, field, "separator", JsonType::kString, separator) &&
           read_tags(format, field, nullptr);
  }
  if (type == "dispatch" || type == "token_dispatch") {
    return read_dispatch(format, field, type == "dispatch" ? Unit::kText : Unit::kToken);
  }
  return read_text_format(format, field, type);
}

/// Formats that hold no other ones.
bool TagReader::read_text_format(JsonIndex format, const std::string& field,
                                 std::string_view type) {
  JsonIndex value = kNoJson;
  if (type == "any_text") {
    return optional_strings(format, field, "excludes");
  }
  if (type == "any_tokens" || type == "exclude_token") {
    return optional_tokens(format, field, "exclude_tokens");
  }
  if (type == "token") {
    return read_token_format(format, field);
  }
  if (type == "const_string") {
    return require(format, field, "value", JsonType::kString, value);
  }
  if (type == "json_schema" || type == "qwen_xml_parameter") {
    return read_schema_format(format, field);
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
  return fail(field + ".type", fmt::format("must be one of {}", kTypes));
}

bool TagReader::read_schema_format(JsonIndex format, const std::string& field) {
  JsonIndex value = kNoJson;
  const JsonIndex schema = tree_.find(format, "json_schema");
  const bool any = schema != kNoJson && tree_[schema].type == JsonType::kBool;
  return (any || require(format, field, "json_schema", JsonType::kObject, value)) &&
         read_schema(schema, field + ".json_schema");
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
bool TagReader::read_content(JsonIndex format, const std::string& field) {
  JsonIndex content = kNoJson;
  return require(format, field, "content", JsonType::kObject, content) &&
         read_format(content, field + ".content");
}

bool TagReader::whole_number(JsonIndex object, const std::string& field, std::string_view name,
                             double& value) {
  JsonIndex member = kNoJson;
  if (!require(object, field, name, JsonType::kNumber, member)) {
    return false;
  }
  value = tree_[member].number;
  return (value == std::floor(value) && value >= -1 && value <= kRepeatMax) ||
         fail(fmt::format("{}.{}", field, name),
              fmt::format("must be a whole number of at most {}", kRepeatMax));
}

// NOLINTNEXTLINE(misc-no-recursion): bounded by kJsonDepthMax
bool TagReader::read_repeat(JsonIndex format, const std::string& field) {
  double least = 0;
  double most = 0;
  if (!whole_number(format, field, "min", least) || !whole_number(format, field, "max", most)) {
    return false;
  }
  if (least < 0) {
    return fail(field + ".min", "must not be negative");
  }
  if (most >= 0 && most < least) {
    return fail(field + ".max", "must not be less than min; -1 is without limit");
  }
  return read_content(format, field);
}

/// Pairs of what sets a format off, and the format.
// NOLINTNEXTLINE(misc-no-recursion): bounded by kJsonDepthMax
bool TagReader::read_dispatch(JsonIndex format, const std::string& field, Unit unit) {
  JsonIndex rules = kNoJson;
  if (!require(format, field, "rules", JsonType::kArray, rules) ||
      !optional_flag(format, field, "loop") ||
      !(unit == Unit::kText ? optional_strings(format, field, "excludes")
                            : optional_tokens(format, field, "exclude_tokens"))) {
    return false;
  }
  size_t index = 0;
  for (const JsonIndex rule : tree_.children(rules)) {
    const std::string path = fmt::format("{}.rules[{}]", field, index++);
    if (tree_[rule].type != JsonType::kArray || tree_[rule].child_count != 2) {
      return fail(path, "must be a list of a pattern and a format");
    }
    const JsonIndex pattern = tree_[rule].first_child;
    const bool good = unit == Unit::kToken ? read_token(pattern, path + "[0]")
                                           : tree_[pattern].type == JsonType::kString &&
                                                 !tree_[pattern].text.empty();
    if (!good) {
      return !refusal_.has_value() && fail(path + "[0]", "must be a non-empty string");
    }
    if (!read_format(tree_[pattern].next, path + "[1]")) {
      return false;
    }
  }
  return index > 0 || fail(field + ".rules", "must not be empty");
}

/// A token: its id, or its text.
bool TagReader::read_token(JsonIndex token, const std::string& field) {
  const JsonNode& node = tree_[token];
  const bool is_id = node.type == JsonType::kNumber && node.number >= 0 &&
                     node.number <= UINT32_MAX && node.number == std::floor(node.number);
  return is_id || (node.type == JsonType::kString && !node.text.empty()) ||
         fail(field, "must be a token: its id or its text");
}

/// {"type": "token", "token": …}
bool TagReader::read_token_format(JsonIndex object, const std::string& field) {
  const JsonIndex type = tree_.find(object, "type");
  if (type == kNoJson || tree_[type].text != "token") {
    return fail(field + ".type", "must be \"token\"");
  }
  const JsonIndex token = tree_.find(object, "token");
  return token == kNoJson ? fail(field + ".token", "is required")
                          : read_token(token, field + ".token");
}

bool TagReader::optional_tokens(JsonIndex object, const std::string& field, std::string_view name) {
  const JsonIndex list = tree_.find(object, name);
  if (list == kNoJson) {
    return true;
  }
  const std::string path = fmt::format("{}.{}", field, name);
  if (tree_[list].type != JsonType::kArray) {
    return fail(path, fmt::format("must be an array, not {}", describe(tree_[list].type)));
  }
  size_t index = 0;
  for (const JsonIndex token : tree_.children(list)) {
    if (!read_token(token, fmt::format("{}[{}]", path, index++))) {
      return false;
    }
  }
  return true;
}

bool TagReader::optional_strings(JsonIndex object, const std::string& field,
                                 std::string_view name) {
  const JsonIndex list = tree_.find(object, name);
  if (list == kNoJson || (tree_[list].type == JsonType::kArray && tree_[list].child_count == 0)) {
    return true;
  }
  const std::string path = fmt::format("{}.{}", field, name);
  std::vector<std::string_view> strings;
  return tree_[list].type == JsonType::kArray
             ? read_strings(list, path, strings)
             : fail(path, fmt::format("must be an array, not {}", describe(tree_[list].type)));
}

// NOLINTNEXTLINE(misc-no-recursion): bounded by kJsonDepthMax
bool TagReader::read_tag(JsonIndex tag, const std::string& field) {
  JsonIndex begin = tree_.find(tag, "begin");
  const bool is_token = begin != kNoJson && tree_[begin].type == JsonType::kObject;
  if (is_token ? !read_token_format(begin, field + ".begin")
               : !require(tag, field, "begin", JsonType::kString, begin)) {
    return false;
  }
  return read_tag_end(tag, field) && read_content(tag, field);
}

bool TagReader::read_tag_end(JsonIndex tag, const std::string& field) {
  JsonIndex end = tree_.find(tag, "end");
  if (end != kNoJson && tree_[end].type == JsonType::kObject) {
    return read_token_format(end, field + ".end");
  }
  std::vector<std::string_view> ends;
  const bool several = end != kNoJson && tree_[end].type == JsonType::kArray;
  return several ? read_strings(end, field + ".end", ends)
                 : require(tag, field, "end", JsonType::kString, end);
}

/// `triggers`: every tag must begin with one of them; null: with anything.
// NOLINTNEXTLINE(misc-no-recursion): bounded by kJsonDepthMax
bool TagReader::read_tags(JsonIndex format, const std::string& field, const Triggers* triggers) {
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
    JsonIndex begin = kNoJson;
    if (triggers != nullptr && !(require(tag, path, "begin", JsonType::kString, begin) &&
                                 check_trigger(path + ".begin", tree_[begin].text, *triggers))) {
      return false;
    }
    if (!read_tag(tag, path)) {
      return false;
    }
  }
  return index > 0 || fail(field + ".tags", "must not be empty");
}

// NOLINTNEXTLINE(misc-no-recursion): bounded by kJsonDepthMax
bool TagReader::read_triggered(JsonIndex format, const std::string& field) {
  JsonIndex list = kNoJson;
  Triggers triggers;
  return require(format, field, "triggers", JsonType::kArray, list) &&
         read_strings(list, field + ".triggers", triggers) &&
         optional_strings(format, field, "excludes") && read_tags(format, field, &triggers);
}

// NOLINTNEXTLINE(misc-no-recursion): bounded by kJsonDepthMax
bool TagReader::read_token_triggered(JsonIndex format, const std::string& field) {
  JsonIndex list = kNoJson;
  if (!require(format, field, "trigger_tokens", JsonType::kArray, list) ||
      !optional_tokens(format, field, "trigger_tokens") ||
      !optional_tokens(format, field, "exclude_tokens")) {
    return false;
  }
  return tree_[list].child_count == 0 ? fail(field + ".trigger_tokens", "must not be empty")
                                      : read_tags(format, field, nullptr);
}

}  // namespace stator::structured
