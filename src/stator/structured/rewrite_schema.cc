// SPDX-License-Identifier: Apache-2.0
#include "stator/structured/rewrite_schema.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <utility>
#include <vector>

#include "stator/json/value.h"
#include "stator/structured/detail/json_tree.h"
#include "stator/structured/detail/look_ahead.h"
#include "stator/structured/detail/negate_schema.h"
#include "stator/text/hex.h"

namespace stator::structured {
namespace {

using json::Value;

constexpr size_t kOverlapsMax = 8;  // members of a oneOf that are told apart by what they are not
constexpr size_t kWordsMax = 4'000'000;  // of the rewritten text: negation copies

constexpr auto kMapsOfSchemas =
    std::to_array<std::string_view>({"$defs", "definitions", "dependencies", "dependentSchemas",
                                     "patternProperties", "properties"});
constexpr auto kSchemas = std::to_array<std::string_view>(
    {"additionalItems", "additionalProperties", "allOf", "anyOf", "contains", "else", "if", "items",
     "not", "oneOf", "prefixItems", "propertyNames", "then", "unevaluatedItems",
     "unevaluatedProperties"});
// What may look at members that unevaluatedProperties and unevaluatedItems then leave alone.
constexpr auto kApplicators =
    std::to_array<std::string_view>({"$ref", "allOf", "anyOf", "oneOf", "if", "then", "else", "not",
                                     "dependentSchemas", "dependencies"});

bool contains(std::span<const std::string_view> names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

std::string escaped(std::string_view key) {
  std::string out;
  for (const char c : key) {
    c == '~' ? out += "~0" : c == '/' ? out += "~1" : out += c;
  }
  return out;
}

/// The types a schema says its values are of; empty: it does not say.
std::vector<std::string_view> types_of(const Value& schema) {
  std::vector<std::string_view> out;
  const Value& type = schema.at("type");
  if (type.is_string()) {
    out.push_back(type.text());
  }
  for (const Value& one : type.elements()) {
    out.push_back(one.text());
  }
  if (out.empty() && (schema.find("properties") != nullptr)) {
    out.push_back("object");
  }
  return out;
}

/// Whether some text is a spelling of both: 1 and 1.0 are one number, whole ones of any length are
/// told apart by their digits.
bool may_be_equal(const Value& a, const Value& b) {
  if (!a.is_number() || !b.is_number()) {
    return a == b;
  }
  const auto is_whole = [](const Value& value) {
    return value.text().find_first_not_of("-0123456789") == std::string_view::npos;
  };
  return is_whole(a) && is_whole(b) ? a.text() == b.text() : a.as_double() == b.as_double();
}

class Rewriter {
 public:
  explicit Rewriter(Value root) : root_(std::move(root)) {}

  Outcome<std::optional<RewrittenSchema>> run() {
    collect_names(root_, "#", 0);
    schema(root_, "#");
    if (refusal_) {
      return std::move(*refusal_);
    }
    if (!changed_) {
      return std::optional<RewrittenSchema>();
    }
    RewrittenSchema out{.text = json::to_text(root_), .first_place = std::move(first_place_)};
    if (out.text.size() > kWordsMax) {
      Refusal refusal = refuse_at(out.first_place, "leads to too many combinations");
      refusal.code = Code::kTooLarge;
      return refusal;
    }
    return std::optional(std::move(out));
  }

 private:
  void note(std::string_view place, std::string_view key) {
    if (!std::exchange(changed_, true)) {
      first_place_ = fmt::format("{}/{}", place, escaped(key));
    }
  }
  void fail(std::string_view place, std::string_view key, std::string_view why) {
    if (!refusal_) {
      refusal_ = refuse_at(fmt::format("{}/{}", place, escaped(key)), why);
    }
  }

  /// Where $anchor and $id are.
  // NOLINTNEXTLINE(misc-no-recursion): bounded by kJsonDepthMax
  void collect_names(const Value& value, const std::string& place, int depth) {
    for (const auto& [key, member] : value.members()) {
      if (key == "$anchor" && member.is_string()) {
        names_.try_emplace(fmt::format("#{}", member.text()), place);
      } else if ((key == "$id" || key == "id") && member.is_string() && !member.text().empty()) {
        names_.try_emplace(std::string(member.text()), place);
      }
      if (key != "enum" && key != "const" && key != "default" && key != "examples") {
        collect_names(member, fmt::format("{}/{}", place, escaped(key)), depth + 1);
      }
    }
    size_t index = 0;
    for (const Value& element : value.elements()) {
      collect_names(element, fmt::format("{}/{}", place, index++), depth + 1);
    }
  }

  // NOLINTNEXTLINE(misc-no-recursion): bounded by kJsonDepthMax
  void schema(Value& value, const std::string& place) {
    if (!value.is_object() || refusal_) {
      return;
    }
    for (auto& [key, member] : *value.mutable_members()) {
      if (contains(kMapsOfSchemas, key) && member.is_object()) {
        for (auto& [name, part] : *member.mutable_members()) {
          schema(part, fmt::format("{}/{}/{}", place, key, escaped(name)));
        }
      } else if (contains(kSchemas, key) && member.is_array()) {
        size_t index = 0;
        for (Value& part : *member.mutable_elements()) {
          schema(part, fmt::format("{}/{}/{}", place, key, index++));
        }
      } else if (contains(kSchemas, key)) {
        schema(member, fmt::format("{}/{}", place, key));
      }
    }
    reference(value, place);
    look_aheads(value, place);
    simple_keywords(value, place);
    dependencies(value, place);
    condition(value, place);
    negation(value, place);
    unevaluated(value, place);
    alternatives(value, place);
  }

  static void conjoin(Value& schema, Value other) { schema["allOf"].push_back(std::move(other)); }

  /// "#anchor", "URL of a part#/pointer", "#/a~1b", "#/a%20b" become "#/…".
  void reference(Value& schema, const std::string& place) {
    Value* reference = schema.find("$ref");
    if (reference == nullptr || !reference->is_string()) {
      return;
    }
    const std::string text(reference->text());
    std::string_view rest = text;
    std::string target;
    if (const auto whole = names_.find(text); whole != names_.end()) {
      target = whole->second;
      rest = {};
    } else if (!rest.starts_with('#')) {
      const size_t hash = rest.find('#');
      const auto part = names_.find(std::string(rest.substr(0, hash)));
      if (part == names_.end() || hash == std::string_view::npos) {
        return;
      }
      target = part->second;
      rest.remove_prefix(hash + 1);
    } else {
      target = "#";
      rest.remove_prefix(1);
    }
    for (size_t i = 0; i < rest.size(); ++i) {
      const bool escape = rest[i] == '%' && i + 2 < rest.size();
      const uint32_t high = escape ? text::hex_value(rest[i + 1]) : text::kNoHexDigit;
      const uint32_t low = escape ? text::hex_value(rest[i + 2]) : text::kNoHexDigit;
      const bool good = high != text::kNoHexDigit && low != text::kNoHexDigit;
      target += good ? static_cast<char>(high << 4U | low) : rest[i];
      i += good ? 2 : 0;
    }
    if (target != text) {
      note(place, "$ref");
      *reference = target;
    }
  }

  void simple_keywords(Value& schema, const std::string& place) {
    if (schema.erase("nullable")) {  // of OpenAPI: whoever does not know it ignores it
      note(place, "nullable");
    }
    for (const auto& [open, bound] :
         {std::pair("exclusiveMinimum", "minimum"), std::pair("exclusiveMaximum", "maximum")}) {
      const Value* flag = schema.find(open);
      if (flag == nullptr || !flag->is_bool()) {
        continue;
      }
      note(place, open);
      const bool is_open = *flag->as_bool();
      schema.erase(open);
      if (const Value* value = schema.find(bound); is_open && value != nullptr) {
        Value moved = *value;
        schema.erase(bound);
        schema[open] = std::move(moved);
      }
    }
    const Value* least = schema.find("minContains");
    if (least != nullptr && least->as_double() == 0.0 && schema.find("maxContains") == nullptr) {
      note(place, "minContains");
      schema.erase("minContains");
      schema.erase("contains");
    }
    if (schema.find("contains") == nullptr) {
      schema.erase("minContains");
      schema.erase("maxContains");
    }
  }

  void look_aheads(Value& schema, const std::string& place) {
    const Value* found = schema.find("pattern");
    std::string pattern(found == nullptr ? std::string_view() : found->text());
    for (LookAhead& one : take_look_aheads(pattern)) {
      note(place, "pattern");
      Value part{{"pattern", std::move(one.pattern)}};
      conjoin(schema, one.wanted ? std::move(part) : Value{{"not", std::move(part)}});
      schema["pattern"] = pattern;
    }
  }

  void dependencies(Value& schema, const std::string& place) {
    for (const std::string_view key : {"dependencies", "dependentRequired", "dependentSchemas"}) {
      const Value* found = schema.find(key);
      if (found == nullptr) {
        continue;
      }
      if (!found->is_object()) {
        fail(place, key, "must be an object");
        return;
      }
      note(place, key);
      const Value all = *found;
      schema.erase(key);
      for (const auto& [name, needed] : all.members()) {
        Value required = Value::array({Value(name)});
        Value with{{"type", "object"}};
        if (needed.is_array()) {
          for (const Value& other : needed.elements()) {
            if (other.text() != name) {
              required.push_back(other);
            }
          }
        }
        with["required"] = std::move(required);
        if (!needed.is_array()) {
          with = Value{{"allOf", Value::array({std::move(with), needed})}};
        }
        const Value without{{"type", "object"}, {"properties", Value{{name, Value(false)}}}};
        conjoin(schema, {{"anyOf", Value::array({without, std::move(with)})}});
      }
    }
  }

  void condition(Value& schema, const std::string& place) {
    const Value* found = schema.find("if");
    if (found == nullptr) {
      if (schema.erase("then") || schema.erase("else")) {
        schema.erase("else");
        note(place, "then");
      }
      return;
    }
    note(place, "if");
    const Value condition = *found;
    const Value yes = schema.find("then") != nullptr ? schema.at("then") : Value(true);
    const Value no = schema.find("else") != nullptr ? schema.at("else") : Value(true);
    for (const std::string_view key : {"if", "then", "else"}) {
      schema.erase(key);
    }
    Value cases = Value::array();
    const auto add = [&](const Value& a, const Value& b) {
      if (a.as_bool() == false || b.as_bool() == false) {
        return;
      }
      Value both = Value::array();
      for (const Value* part : {&a, &b}) {
        if (part->is_object()) {
          both.push_back(*part);
        }
      }
      cases.push_back({{"allOf", std::move(both)}});
      if (cases.elements().back().at("allOf").size() == 0) {
        cases.mutable_elements()->back() = Value::object();
      }
    };
    if (condition.as_bool() != std::optional(false)) {
      add(condition, yes);
    }
    if (const auto otherwise = negate_schema(condition, root_)) {
      add(*otherwise, no);
    }
    add(yes, no);  // whatever the condition says
    if (cases.size() == 0) {
      fail(place, "if", "leaves no value");
      return;
    }
    conjoin(schema, {{"anyOf", std::move(cases)}});
  }

  /// {"enum": […]} and {"pattern": …} stay.
  void negation(Value& schema, const std::string& place) {
    const Value* found = schema.find("not");
    if (found == nullptr) {
      return;
    }
    if (found->size() == 1 &&
        (found->find("enum") != nullptr || found->find("pattern") != nullptr)) {
      note(place, "not");
      return;
    }
    const Value denied = *found;
    auto other = negate_schema(denied, root_);
    if (!other) {
      fail(place, "not", "not is not supported: say what is allowed, with enum, anyOf or pattern");
      return;
    }
    note(place, "not");
    schema.erase("not");
    if (other->is_object()) {
      conjoin(schema, std::move(*other));
    }
  }

  /// As additional members of a schema whose members all stand in it.
  void unevaluated(Value& schema, const std::string& place) {
    for (const auto& [key, own, others] :
         {std::tuple("unevaluatedProperties", "properties", "additionalProperties"),
          std::tuple("unevaluatedItems", "prefixItems", "items")}) {
      const Value* value = schema.find(key);
      if (value == nullptr || value->as_bool() == std::optional(true)) {
        continue;
      }
      if (schema.at("items").is_array() && std::string_view(own) == "prefixItems" &&
          !has_applicator(schema)) {  // draft 2019-09
        note(place, key);
        const Value rest = *value;
        schema.erase(key);
        if (schema.find("additionalItems") == nullptr) {
          schema["additionalItems"] = rest;
        }
        continue;
      }
      Value names = Value::object();
      const bool objects = std::string_view(own) == "properties";
      const bool alone = !has_applicator(schema);
      if (alone && schema.find(others) != nullptr) {  // all are evaluated
        note(place, key);
        schema.erase(key);
        continue;
      }
      if (!alone &&
          (!objects || schema.find(others) != nullptr || !collect_properties(schema, names, 0))) {
        fail(place, key, fmt::format("{} is not supported: use {}: false", key, others));
        return;
      }
      note(place, key);
      const Value rest = *value;
      schema.erase(key);
      for (const auto& [name, part] : names.members()) {
        if (schema.at(own).find(name) == nullptr) {
          schema[own][name] = true;
        }
      }
      schema[others] = rest;
    }
  }
  static bool has_applicator(const Value& schema) {
    return std::ranges::any_of(kApplicators,
                               [&](std::string_view key) { return schema.find(key) != nullptr; });
  }
  /// All properties that a schema and what it is joined with name. False if that depends on the
  /// value.
  // NOLINTNEXTLINE(misc-no-recursion): bounded
  bool collect_properties(const Value& schema, Value& names, int depth) {
    if (depth > 16 || schema.find("patternProperties") != nullptr ||
        (depth > 0 && schema.find("additionalProperties") != nullptr)) {
      return false;
    }
    for (const auto& [name, part] : schema.at("properties").members()) {
      names[name] = true;
    }
    for (const std::string_view key : {"anyOf", "oneOf", "if", "dependentSchemas"}) {
      if (schema.find(key) != nullptr) {
        return false;
      }
    }
    for (const Value& member : schema.at("allOf").elements()) {
      if (!collect_properties(member, names, depth + 1)) {
        return false;
      }
    }
    const std::string_view reference = schema.at("$ref").text();
    if (reference.empty()) {
      return true;
    }
    const Value* target =
        reference.starts_with('#') ? root_.find_pointer(reference.substr(1)) : nullptr;
    return target != nullptr && collect_properties(*target, names, depth + 1);
  }

  const Value& followed(const Value& schema) const {
    const Value* at = &schema;
    for (int depth = 0; depth < 8 && at->at("$ref").text().starts_with('#'); ++depth) {
      const Value* next = root_.find_pointer(at->at("$ref").text().substr(1));
      if (next == nullptr) {
        break;
      }
      at = next;
    }
    return *at;
  }

  /// The values a property must have, if a schema lists them and requires it.
  const Value* required_values(const Value& schema, std::string_view name) const {
    const auto& required = schema.at("required").elements();
    if (std::ranges::none_of(required, [&](const Value& one) { return one.text() == name; })) {
      return nullptr;
    }
    const Value* part = schema.at("properties").find(name);
    return part == nullptr                  ? nullptr
           : part->find("const") != nullptr ? part->find("const")
           : part->at("enum").is_array()    ? part->find("enum")
                                            : nullptr;
  }

  /// Whether no value follows both, as far as their types and listed values tell.
  bool exclude_each_other(const Value& a, const Value& b) const {
    const auto types = types_of(a);
    const auto others = types_of(b);
    const auto shared = [&](std::string_view type) {
      const auto of = [](std::string_view name) { return name == "integer" ? "number" : name; };
      return std::ranges::any_of(others,
                                 [&](std::string_view other) { return of(type) == of(other); });
    };
    if (!types.empty() && !others.empty() && std::ranges::none_of(types, shared)) {
      return true;
    }
    const auto listed = [](const Value& schema, const Value* found) {
      return found == nullptr               ? std::vector<Value>()
             : found == schema.find("enum") ? found->elements()
                                            : std::vector<Value>{*found};
    };
    const auto disjoint = [&](const std::vector<Value>& some, const std::vector<Value>& more) {
      return !some.empty() && !more.empty() && std::ranges::none_of(some, [&](const Value& value) {
        return std::ranges::any_of(more,
                                   [&](const Value& other) { return may_be_equal(value, other); });
      });
    };
    const auto values = [&](const Value& schema) {
      const Value* constant = schema.find("const");
      return listed(schema, constant != nullptr ? constant : schema.find("enum"));
    };
    if (disjoint(values(a), values(b))) {
      return true;
    }
    return std::ranges::any_of(a.at("properties").members(), [&](const json::Member& member) {
      const Value* mine = required_values(a, member.key);
      const Value* theirs = required_values(b, member.key);
      if (mine == nullptr || theirs == nullptr || types.size() != 1 || others.size() != 1) {
        return false;
      }
      return disjoint(listed(a.at("properties").at(member.key), mine),
                      listed(b.at("properties").at(member.key), theirs));
    });
  }

  static bool takes_everything(const Value& schema) {
    return schema.as_bool() == std::optional(true) || (schema.is_object() && schema.size() == 0);
  }

  /// A oneOf with a member that takes every value takes what no other member does.
  void leave_free_member(Value& schema, const std::string& place, ptrdiff_t free) {
    Value all = Value::array();
    for (const Value& member : schema.at("oneOf").elements()) {
      if (takes_everything(member)) {
        continue;
      }
      auto other = negate_schema(member, root_);
      if (!other) {
        fail(place, "oneOf", "has a member that takes every value: leave it out");
        return;
      }
      all.push_back(std::move(*other));
    }
    if (free > 1) {
      fail(place, "oneOf", "has two members that take every value, so that none fits just one");
      return;
    }
    note(place, "oneOf");
    schema.erase("oneOf");
    for (const Value& one : all.elements()) {
      conjoin(schema, one);
    }
  }

  /// oneOf as anyOf of members that exclude each other, or are made to.
  void alternatives(Value& schema, const std::string& place) {
    const Value* list = schema.find("oneOf");
    if (list == nullptr || list->size() < 2) {
      return;
    }
    const auto& members = list->elements();
    if (const auto free = std::ranges::count_if(members, takes_everything); free > 0) {
      leave_free_member(schema, place, free);
      return;
    }
    bool apart = true;
    for (size_t i = 0; i < members.size() && apart; ++i) {
      for (size_t k = i + 1; k < members.size() && apart; ++k) {
        apart = exclude_each_other(followed(members[i]), followed(members[k]));
      }
    }
    Value out = Value::array();
    for (size_t i = 0; i < members.size(); ++i) {
      Value all = Value::array({members[i]});
      for (size_t k = 0; k < members.size() && !apart; ++k) {
        if (k == i || exclude_each_other(followed(members[i]), followed(members[k]))) {
          continue;
        }
        auto other = members.size() <= kOverlapsMax ? negate_schema(members[k], root_)
                                                    : std::optional<Value>();
        if (!other) {
          return;  // stays as it is: read as anyOf where nothing stands beside it
        }
        all.push_back(std::move(*other));
      }
      out.push_back(all.size() == 1 ? members[i] : Value{{"allOf", std::move(all)}});
    }
    note(place, "oneOf");
    schema.erase("oneOf");
    if (schema.find("anyOf") != nullptr) {
      conjoin(schema, {{"anyOf", std::move(out)}});
    } else {
      schema["anyOf"] = std::move(out);
    }
  }

  Value root_;
  std::map<std::string, std::string> names_;  // $anchor and $id: where they are
  bool changed_ = false;
  std::string first_place_;
  std::optional<Refusal> refusal_;
};

constexpr auto kRewritten = std::to_array<std::string_view>(
    {"$anchor", "contains", "dependencies", "dependentRequired", "dependentSchemas", "else",
     "exclusiveMaximum", "exclusiveMinimum", "if", "not", "nullable", "oneOf", "then",
     "unevaluatedItems", "unevaluatedProperties"});

bool may_need_it(const JsonTree& tree) {
  for (JsonIndex at = 1; at < tree.size(); ++at) {
    const JsonNode& node = tree[at];
    if (contains(kRewritten, node.key) || (node.key == "pattern" && node.text.starts_with("^(?")) ||
        (node.key == "$ref" && node.type == JsonType::kString &&
         (!node.text.starts_with("#") || node.text.find_first_of("%~") != std::string_view::npos ||
          (node.text != "#" && !node.text.starts_with("#/"))))) {
      return true;
    }
  }
  return false;
}

}  // namespace

Outcome<std::optional<RewrittenSchema>> rewrite_schema(std::string_view text) {
  STATOR_TRY(const JsonTree tree, JsonTree::parse(text));
  if (!may_need_it(tree)) {
    return std::optional<RewrittenSchema>();
  }
  auto root = json::parse(text);
  if (!root.has_value()) {
    return refuse(std::string(root.error().message()));
  }
  return Rewriter(std::move(*root)).run();
}

}  // namespace stator::structured
