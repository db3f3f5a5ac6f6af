// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "stator/core/result.h"

namespace stator::parsers {

/// The JSON types a schema allows. kAny: the schema says nothing.
enum class ValueKind : uint8_t {
  kAny,
  kString,
  kInteger,
  kNumber,
  kBoolean,
  kObject,
  kArray,
  kNull
};

/// As much of one JSON schema as is needed to know what a bare text such as `42` stands for.
/// `$ref` into the same document, `anyOf`, `oneOf`, `allOf`, `enum`, `const` and `nullable` are
/// followed; nothing is validated.
struct ValueSchema {
  std::vector<ValueKind> kinds;  ///< in the order of the schema, no duplicates; empty = any
  std::map<std::string, ValueSchema, std::less<>> properties;
  std::unique_ptr<ValueSchema> items;

  bool allows(ValueKind kind) const;
  /// Null if the schema does not name it.
  const ValueSchema* find_property(std::string_view name) const;
};

/// Limits of what is read of a schema; deeper parts count as "any".
inline constexpr uint32_t kMaxSchemaDepth = 16;
inline constexpr uint32_t kMaxSchemaNodes = 16384;

/// The tools of one request: which names exist and what their parameters look like. Immutable,
/// shared by the choices of a request.
class ToolSchemas {
 public:
  /// `tools_json` is the request's array of {"type":"function","function":{"name",…,"parameters"}};
  /// the flat form {"name",…,"parameters"} is read, too. Of two tools with one name the last
  /// counts. kInvalidArgument for anything else.
  static Result<std::shared_ptr<const ToolSchemas>> parse(std::string_view tools_json);

  bool contains(std::string_view tool) const { return tools_.contains(tool); }
  bool empty() const { return tools_.empty(); }
  /// Schema of the parameters object; null for an unknown tool or one without parameters.
  const ValueSchema* find_parameters(std::string_view tool) const;
  /// Schema of one parameter; null if unknown.
  const ValueSchema* find_parameter(std::string_view tool, std::string_view parameter) const;

 private:
  ToolSchemas() = default;
  std::map<std::string, ValueSchema, std::less<>> tools_;
};

}  // namespace stator::parsers
