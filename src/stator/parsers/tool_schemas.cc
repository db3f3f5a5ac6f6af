// SPDX-License-Identifier: Apache-2.0
#include "stator/parsers/tool_schemas.h"

#include "stator/json/value.h"
#include "stator/parsers/detail/contains.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace stator::parsers {
namespace {

constexpr uint32_t kDepthMax = 256;

ValueKind kind_of_name(std::string_view name) {
  constexpr std::pair<std::string_view, ValueKind> kNames[] = {
      {"string", ValueKind::kString}, {"integer", ValueKind::kInteger},
      {"number", ValueKind::kNumber}, {"boolean", ValueKind::kBoolean},
      {"object", ValueKind::kObject}, {"array", ValueKind::kArray},
      {"null", ValueKind::kNull},     {"str", ValueKind::kString},
      {"int", ValueKind::kInteger},   {"float", ValueKind::kNumber},
      {"bool", ValueKind::kBoolean},  {"dict", ValueKind::kObject},
      {"list", ValueKind::kArray},
  };
  const auto* row = std::ranges::find(kNames, name, &std::pair<std::string_view, ValueKind>::first);
  return row == std::end(kNames) ? ValueKind::kAny : row->second;
}

ValueKind kind_of_value(const json::Value& value) {
  switch (value.kind()) {
    case json::Kind::kNull:
      return ValueKind::kNull;
    case json::Kind::kBool:
      return ValueKind::kBoolean;
    case json::Kind::kNumber:
      return value.as_int64() || value.as_uint64() ? ValueKind::kInteger : ValueKind::kNumber;
    case json::Kind::kString:
      return ValueKind::kString;
    case json::Kind::kArray:
      return ValueKind::kArray;
    case json::Kind::kObject:
      return ValueKind::kObject;
    case json::Kind::kInvalid:
      break;
  }
  return ValueKind::kAny;
}

/// Reads one parameters schema with the document that its references point into.
class SchemaReader {
 public:
  explicit SchemaReader(const json::Value& root) : root_(root) {}

  void read(const json::Value& schema, uint32_t depth, ValueSchema& into) {
    if (!schema.is_object() || depth > kMaxSchemaDepth || ++nodes_ > kMaxSchemaNodes) {
      return;
    }
    for (const auto& [key, value] : schema.members()) {
      read_key(key, value, depth, into);
    }
    if (into.kinds.empty() && !into.properties.empty()) {
      add_kind(into, ValueKind::kObject);
    }
  }

 private:
  static void add_kind(ValueSchema& into, ValueKind kind) {
    if (kind != ValueKind::kAny && !contains(into.kinds, kind)) {
      into.kinds.push_back(kind);
    }
  }

  void read_key(std::string_view key, const json::Value& value, uint32_t depth, ValueSchema& into) {
    if (key == "type") {
      read_type(value, into);
    } else if (key == "$ref" && value.is_string()) {
      if (const json::Value* target = find_target(value.text())) {
        read(*target, depth + 1, into);
      }
    } else if ((key == "anyOf" || key == "oneOf" || key == "allOf") && value.is_array()) {
      for (const json::Value& member : value.elements()) {
        read(member, depth + 1, into);
      }
    } else if (key == "enum" && value.is_array()) {
      for (const json::Value& member : value.elements()) {
        add_kind(into, kind_of_value(member));
      }
    } else if (key == "const") {
      add_kind(into, kind_of_value(value));
    } else if (key == "nullable" && value == true) {
      add_kind(into, ValueKind::kNull);
    } else if (key == "properties" && value.is_object()) {
      for (const auto& [name, member] : value.members()) {
        read(member, depth + 1, into.properties[std::string(name)]);
      }
    } else if (key == "items") {
      into.items = into.items != nullptr ? std::move(into.items) : std::make_unique<ValueSchema>();
      read(value, depth + 1, *into.items);
    }
  }

  static void read_type(const json::Value& value, ValueSchema& into) {
    if (value.is_string()) {
      add_kind(into, kind_of_name(value.text()));
    } else if (value.is_array()) {
      for (const json::Value& member : value.elements()) {
        if (member.is_string()) {
          add_kind(into, kind_of_name(member.text()));
        }
      }
    }
  }

  /// Only references into the same schema ("#/$defs/Point").
  const json::Value* find_target(std::string_view reference) const {
    return reference.starts_with("#/") ? root_.find_pointer(reference.substr(1)) : nullptr;
  }

  const json::Value& root_;
  uint32_t nodes_ = 0;
};

}  // namespace

bool ValueSchema::allows(ValueKind kind) const {
  return kinds.empty() || contains(kinds, kind);
}

const ValueSchema* ValueSchema::find_property(std::string_view name) const {
  const auto found = properties.find(name);
  return found == properties.end() ? nullptr : &found->second;
}

Result<std::shared_ptr<const ToolSchemas>> ToolSchemas::parse(std::string_view tools_json) {
  STATOR_TRY(const json::Value value, json::parse(tools_json, {.depth_max = kDepthMax}), "tools");
  if (!value.is_array()) {
    return Error(Code::kInvalidArgument, "tools must be an array");
  }
  auto schemas = std::shared_ptr<ToolSchemas>(new ToolSchemas());  // NOLINT: private constructor
  for (size_t i = 0; i < value.elements().size(); ++i) {
    const json::Value& tool = value.elements()[i];
    const json::Value* nested = tool.find("function");
    const json::Value& function = nested != nullptr && nested->is_object() ? *nested : tool;
    const std::string_view name = function.text_at({"name"});
    if (name.empty()) {
      return Error(Code::kInvalidArgument, fmt::format("tools[{}] has no name", i));
    }
    ValueSchema& schema = schemas->tools_[std::string(name)];
    schema = {};  // clients let a later tool of the same name hide the earlier one
    if (const json::Value* parameters = function.find("parameters")) {
      SchemaReader(*parameters).read(*parameters, 0, schema);
    }
  }
  return std::shared_ptr<const ToolSchemas>(std::move(schemas));
}

const ValueSchema* ToolSchemas::find_parameters(std::string_view tool) const {
  const auto found = tools_.find(tool);
  return found == tools_.end() ? nullptr : &found->second;
}

const ValueSchema* ToolSchemas::find_parameter(std::string_view tool,
                                               std::string_view parameter) const {
  const ValueSchema* schema = find_parameters(tool);
  return schema == nullptr ? nullptr : schema->find_property(parameter);
}

}  // namespace stator::parsers
