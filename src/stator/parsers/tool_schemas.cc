// SPDX-License-Identifier: Apache-2.0
#include "stator/parsers/tool_schemas.h"

#include "stator/parsers/detail/contains.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <utility>

namespace stator::parsers {
namespace {

namespace json = boost::json;

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

ValueKind kind_of_value(const json::value& value) {
  switch (value.kind()) {
    case json::kind::null:
      return ValueKind::kNull;
    case json::kind::bool_:
      return ValueKind::kBoolean;
    case json::kind::int64:
    case json::kind::uint64:
      return ValueKind::kInteger;
    case json::kind::double_:
      return ValueKind::kNumber;
    case json::kind::string:
      return ValueKind::kString;
    case json::kind::array:
      return ValueKind::kArray;
    case json::kind::object:
      return ValueKind::kObject;
  }
  return ValueKind::kAny;
}

/// Reads one parameters schema with the document that its references point into.
class SchemaReader {
 public:
  explicit SchemaReader(const json::value& root) : root_(root) {}

  void read(const json::value& schema, uint32_t depth, ValueSchema& into) {
    if (!schema.is_object() || depth > kMaxSchemaDepth || ++nodes_ > kMaxSchemaNodes) {
      return;
    }
    const json::object& object = schema.as_object();
    for (const auto& [key, value] : object) {
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

  void read_key(std::string_view key, const json::value& value, uint32_t depth, ValueSchema& into) {
    if (key == "type") {
      read_type(value, into);
    } else if (key == "$ref" && value.is_string()) {
      if (const json::value* target = find_target(value.as_string())) {
        read(*target, depth + 1, into);
      }
    } else if ((key == "anyOf" || key == "oneOf" || key == "allOf") && value.is_array()) {
      for (const json::value& member : value.as_array()) {
        read(member, depth + 1, into);
      }
    } else if (key == "enum" && value.is_array()) {
      for (const json::value& member : value.as_array()) {
        add_kind(into, kind_of_value(member));
      }
    } else if (key == "const") {
      add_kind(into, kind_of_value(value));
    } else if (key == "nullable" && value == true) {
      add_kind(into, ValueKind::kNull);
    } else if (key == "properties" && value.is_object()) {
      for (const auto& [name, member] : value.as_object()) {
        read(member, depth + 1, into.properties[std::string(name)]);
      }
    } else if (key == "items") {
      into.items = into.items != nullptr ? std::move(into.items) : std::make_unique<ValueSchema>();
      read(value, depth + 1, *into.items);
    }
  }

  static void read_type(const json::value& value, ValueSchema& into) {
    if (value.is_string()) {
      add_kind(into, kind_of_name(value.as_string()));
    } else if (value.is_array()) {
      for (const json::value& member : value.as_array()) {
        if (member.is_string()) {
          add_kind(into, kind_of_name(member.as_string()));
        }
      }
    }
  }

  /// Only references into the same schema ("#/$defs/Point").
  const json::value* find_target(std::string_view reference) const {
    if (!reference.starts_with("#/")) {
      return nullptr;
    }
    json::error_code error;
    return root_.find_pointer(reference.substr(1), error);
  }

  const json::value& root_;
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
  json::error_code error;
  json::parse_options options;
  options.max_depth = 256;
  const json::value value = json::parse(tools_json, error, {}, options);
  if (error || !value.is_array()) {
    return Error(Code::kInvalidArgument, error
                                             ? fmt::format("tools is not JSON: {}", error.message())
                                             : std::string("tools must be an array"));
  }
  auto schemas = std::shared_ptr<ToolSchemas>(new ToolSchemas());  // NOLINT: private constructor
  for (size_t i = 0; i < value.as_array().size(); ++i) {
    const json::value& tool = value.as_array()[i];
    const json::object* object = tool.if_object();
    const json::value* nested = object == nullptr ? nullptr : object->if_contains("function");
    const json::object* function =
        nested != nullptr && nested->is_object() ? &nested->as_object() : object;
    const json::value* name = function == nullptr ? nullptr : function->if_contains("name");
    if (name == nullptr || !name->is_string() || name->as_string().empty()) {
      return Error(Code::kInvalidArgument, fmt::format("tools[{}] has no name", i));
    }
    ValueSchema& schema = schemas->tools_[std::string(name->as_string())];
    schema = {};  // clients let a later tool of the same name hide the earlier one
    if (const json::value* parameters = function->if_contains("parameters")) {
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
