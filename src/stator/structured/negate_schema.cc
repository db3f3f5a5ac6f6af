// SPDX-License-Identifier: Apache-2.0
#include "stator/structured/detail/negate_schema.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <vector>

namespace stator::structured {
namespace {

using json::Value;

constexpr int kDepthMax = 12;            // references and combinations followed
constexpr size_t kAlternativesMax = 64;  // ways to break one schema

struct Opposite {
  std::string_view keyword;
  std::string_view type;
  std::string_view opposite;
  int step = 0;  // of whole numbers: what the next one outside is
};
constexpr auto kOpposites = std::to_array<Opposite>({
    {"minimum", "number", "exclusiveMaximum"},
    {"maximum", "number", "exclusiveMinimum"},
    {"exclusiveMinimum", "number", "maximum"},
    {"exclusiveMaximum", "number", "minimum"},
    {"minLength", "string", "maxLength", -1},
    {"maxLength", "string", "minLength", 1},
    {"minItems", "array", "maxItems", -1},
    {"maxItems", "array", "minItems", 1},
    {"minProperties", "object", "maxProperties", -1},
    {"maxProperties", "object", "minProperties", 1},
});

/// Each keyword of the schema that can be broken is an alternative.
class Negation {
 public:
  explicit Negation(const Value& root) : root_(root) {}

  // NOLINTNEXTLINE(misc-no-recursion): bounded by kDepthMax
  std::optional<Value> of(const Value& schema, int depth) {
    if (const auto flag = schema.as_bool()) {
      return *flag ? std::nullopt : std::optional(Value(true));
    }
    if (!schema.is_object() || depth > kDepthMax) {
      return std::nullopt;
    }
    std::vector<Value> ways;
    for (const auto& [key, value] : schema.members()) {
      if (ways.size() <= kAlternativesMax) {
        add_ways(key, value, depth, ways);
      }
    }
    if (ways.empty()) {
      return std::nullopt;
    }
    return ways.size() == 1 ? std::move(ways.front())
                            : Value{{"anyOf", Value::array(std::move(ways))}};
  }

 private:
  // NOLINTNEXTLINE(misc-no-recursion): bounded by kDepthMax
  void add_ways(std::string_view key, const Value& value, int depth, std::vector<Value>& ways) {
    if (key == "type") {
      add_other_types(value, ways);
    } else if (key == "enum" || key == "const") {
      Value list = key == "enum" ? value : Value::array({value});
      ways.push_back({{"not", Value{{"enum", std::move(list)}}}});
    } else if (key == "pattern") {
      ways.push_back({{"type", "string"}, {"not", Value{{"pattern", value}}}});
    } else if (key == "required") {
      for (const Value& name : value.elements()) {
        ways.push_back(without(name.text()));
      }
    } else if (key == "properties") {
      for (const auto& [name, part] : value.members()) {
        if (auto other = of(part, depth + 1)) {
          ways.push_back({{"type", "object"},
                          {"properties", Value{{name, std::move(*other)}}},
                          {"required", Value::array({Value(name)})}});
        }
      }
    } else if (key == "allOf") {
      for (const Value& member : value.elements()) {
        add(of(member, depth + 1), ways);
      }
    } else if (key == "anyOf") {
      add(of_all(value, depth), ways);
    } else if (key == "not") {
      ways.push_back(value);
    } else if (key == "$ref" && value.text().starts_with('#')) {
      if (const Value* target = root_.find_pointer(value.text().substr(1))) {
        add(of(*target, depth + 1), ways);
      }
    } else {
      add_opposite(key, value, ways);
    }
  }

  static void add(std::optional<Value> way, std::vector<Value>& ways) {
    if (way) {
      ways.push_back(std::move(*way));
    }
  }

  static Value without(std::string_view name) {
    return {{"type", "object"}, {"properties", Value{{std::string(name), Value(false)}}}};
  }

  static void add_other_types(const Value& type, std::vector<Value>& ways) {
    const auto named = [&](std::string_view name) {
      return type.text() == name || std::ranges::any_of(type.elements(), [&](const Value& one) {
               return one.text() == name;
             });
    };
    Value others = Value::array();
    for (const std::string_view name : {"object", "array", "string", "boolean", "null"}) {
      if (!named(name)) {
        others.push_back(name);
      }
    }
    if (!named("number") && !named("integer")) {
      others.push_back("number");
    }
    if (others.size() > 0) {
      ways.push_back({{"type", std::move(others)}});
    }
  }

  /// Breaks all members of a list.
  // NOLINTNEXTLINE(misc-no-recursion): bounded by kDepthMax
  std::optional<Value> of_all(const Value& list, int depth) {
    Value all = Value::array();
    for (const Value& member : list.elements()) {
      auto other = of(member, depth + 1);
      if (!other) {
        return std::nullopt;
      }
      all.push_back(std::move(*other));
    }
    return Value{{"allOf", std::move(all)}};
  }

  static void add_opposite(std::string_view key, const Value& value, std::vector<Value>& ways) {
    const auto row = std::ranges::find(kOpposites, key, &Opposite::keyword);
    if (row == kOpposites.end() || !value.is_number()) {
      return;
    }
    Value way{{"type", row->type}};
    if (row->step == 0) {
      way[row->opposite] = value;
    } else {
      const auto count = value.as_int64();
      if (!count || *count + row->step < 0) {
        return;
      }
      way[row->opposite] = *count + row->step;
    }
    ways.push_back(std::move(way));
  }

  const Value& root_;
};

}  // namespace

std::optional<json::Value> negate_schema(const json::Value& schema, const json::Value& root) {
  return Negation(root).of(schema, 0);
}

}  // namespace stator::structured
