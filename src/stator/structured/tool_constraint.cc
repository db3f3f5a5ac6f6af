// SPDX-License-Identifier: Apache-2.0
#include "stator/structured/tool_constraint.h"

#include <fmt/format.h>

#include <algorithm>

#include "stator/core/assert.h"
#include "stator/structured/detail/json_tree.h"
#include "stator/structured/json_schema.h"

namespace stator::structured {
namespace {

constexpr std::string_view kNoParameters = R"({"type":"object","properties":{}})";
constexpr std::string_view kAnyObject = R"({"type":"object"})";

std::string parameters_path(size_t tool) {
  return fmt::format("tools[{}].function.parameters", tool);
}

Outcome<SchemaFeatures> check_parameters(const ToolFunction& function, size_t tool) {
  auto features = check_json_schema(function.parameters);
  if (!features.has_value()) {
    return std::move(features.error()).in_field(parameters_path(tool));
  }
  return *features;
}

Outcome<ToolFunction> read_function(const JsonTree& tree, JsonIndex function, size_t tool) {
  const std::string path = fmt::format("tools[{}].function", tool);
  if (function == kNoJson || tree[function].type != JsonType::kObject) {
    return Refusal{Code::kInvalidArgument, path, "is required and must be an object"};
  }
  ToolFunction out{.name = {}, .parameters = std::string(kNoParameters)};
  for (const JsonIndex member : tree.children(function)) {
    const JsonNode& node = tree[member];
    if (node.type == JsonType::kNull) {
      continue;
    }
    if (node.key == "name" && node.type == JsonType::kString) {
      out.name = node.text;
    } else if (node.key == "parameters") {
      if (node.type != JsonType::kObject) {
        return Refusal{Code::kInvalidArgument, parameters_path(tool),
                       fmt::format("must be an object, not {}", describe(node.type))};
      }
      out.parameters = node.child_count == 0 ? kNoParameters : node.raw;
    } else if (node.key == "strict") {
      if (node.type != JsonType::kBool) {
        return Refusal{Code::kInvalidArgument, path + ".strict",
                       fmt::format("must be a boolean, not {}", describe(node.type))};
      }
      out.strict = node.boolean;
    }
  }
  if (out.name.empty()) {
    return Refusal{Code::kInvalidArgument, path + ".name",
                   "is required and must be a non-empty string"};
  }
  return out;
}

// ---- without a family: the output is JSON

StructuredOutput tool_output(Constraint constraint, Origin origin) {
  StructuredOutput out;
  out.constraint = std::move(constraint);
  out.field = origin == Origin::kToolChoice ? "tool_choice" : "tools";
  out.origin = origin;
  return out;
}

// Array of {"name": …, "parameters": …}. Schemas with references move to $defs, where pointers
// into them pass through objects only: some decoders cannot step through arrays.
Outcome<StructuredOutput> require_calls(const std::vector<ToolFunction>& tools, bool parallel) {
  JsonSchema schema;
  std::string members;
  std::string definitions;
  for (size_t i = 0; i < tools.size(); ++i) {
    STATOR_TRY(const SchemaFeatures features, check_parameters(tools[i], i));
    schema.features.merge(features);
    const std::string pointer = fmt::format("/$defs/tool_{}", i);
    RebasedSchema parameters = rebase_schema(tools[i].parameters, pointer);
    if (parameters.has_references) {
      definitions +=
          fmt::format(R"({}"tool_{}":{})", definitions.empty() ? "" : ",", i, parameters.text);
      parameters.text = fmt::format(R"({{"$ref":"#{}"}})", pointer);
    }
    members +=
        fmt::format(R"({}{{"type":"object","properties":{{"name":{{"const":{}}},"parameters":{}}},)"
                    R"("required":["name","parameters"],"additionalProperties":false}})",
                    members.empty() ? "" : ",", json_string(tools[i].name), parameters.text);
  }
  schema.text = fmt::format(R"({{"type":"array","minItems":1,{}"items":{{"anyOf":[{}]}}{}}})",
                            parallel ? "" : R"("maxItems":1,)", members,
                            definitions.empty() ? "" : ",\"$defs\":{" + definitions + "}");
  return tool_output(std::move(schema), Origin::kToolChoice);
}

// ---- with a family: structural tags

std::string arguments_format(const ToolCallFormat& format, std::string_view schema) {
  using enum ToolCallFormat::Arguments;
  std::string_view style;
  switch (format.arguments) {
    case kJson:
      break;
    case kQwenXml:
      style = R"(,"style":"qwen_xml")";
      break;
    case kDeepseekXml:
      style = R"(,"style":"deepseek_xml")";
      break;
    case kMinimaxXml:
      style = R"(,"style":"minimax_xml")";
      break;
    case kGlmXml:
      style = R"(,"style":"glm_xml")";
      break;
  }
  const std::string arguments =
      fmt::format(R"({{"type":"json_schema","json_schema":{}{}}})", schema, style);
  if (format.arguments_begin.empty()) {
    return arguments;
  }
  return fmt::format(R"({{"type":"sequence","elements":[{{"type":"regex","pattern":"\\d+"}},)"
                     R"({{"type":"const_string","value":{}}},{}]}})",
                     json_string(format.arguments_begin), arguments);
}

std::string call_tag(const ToolFunction& tool, const ToolCallFormat& format) {
  const std::string begin = format.begin_before_name + tool.name + format.begin_after_name;
  return fmt::format(
      R"({{"type":"tag","begin":{},"content":{},"end":{}}})", json_string(begin),
      arguments_format(format, tool.strict ? std::string_view(tool.parameters) : kAnyObject),
      json_string(format.end));
}

// The whole tag: `calls` inside the section's brackets if the family has one, and text around them
// unless a call is `required`.
std::string tag_text(const ToolCallFormat& format, std::string_view calls, bool required,
                     bool one_call) {
  const auto flag = [](bool value) { return value ? "true" : "false"; };
  std::string out;
  if (format.section_begin.empty()) {
    const std::string& trigger = format.trigger.empty() ? format.begin_before_name : format.trigger;
    out = fmt::format(R"({{"type":"triggered_tags","triggers":[{}],"tags":[{}],"at_least_one":{},)"
                      R"("stop_after_first":{}}})",
                      json_string(trigger), calls, flag(required), flag(one_call));
  } else {
    const std::string begin = json_string(format.section_begin);
    const std::string section = fmt::format(
        R"({{"type":"tag","begin":{},"content":{{"type":"tags_with_separator","tags":[{}],)"
        R"("separator":{},"at_least_one":true,"stop_after_first":{}}},"end":{}}})",
        begin, calls, json_string(format.separator), flag(one_call),
        json_string(format.section_end));
    out = required ? section
                   : fmt::format(R"({{"type":"triggered_tags","triggers":[{}],"tags":[{}],)"
                                 R"("at_least_one":false,"stop_after_first":true}})",
                                 begin, section);
  }
  return fmt::format(R"({{"type":"structural_tag","format":{}}})", out);
}

Outcome<StructuredOutput> tag_calls(const std::vector<ToolFunction>& tools,
                                    const ToolPolicy& policy, const ToolCallFormat& format) {
  STATOR_ASSERT(!format.begin_before_name.empty(), "a call begins with something");
  const bool named = policy.choice == ToolPolicy::Choice::kNamed;
  const bool required = policy.choice != ToolPolicy::Choice::kAuto;
  StructuralTag tag{.has_format = true};
  std::string calls;
  for (size_t i = 0; i < tools.size(); ++i) {
    if (named && tools[i].name != policy.name) {
      continue;
    }
    if (tools[i].strict) {
      STATOR_TRY(const SchemaFeatures features, check_parameters(tools[i], i));
      tag.features.merge(features);
    }
    calls += calls.empty() ? "" : ",";
    calls += call_tag(tools[i], format);
  }
  tag.text = tag_text(format, calls, required, named || !policy.parallel);
  return tool_output(std::move(tag), required ? Origin::kToolChoice : Origin::kStrictTools);
}

bool is_strict(const ToolFunction& tool) {
  return tool.strict;
}

}  // namespace

Outcome<std::vector<ToolFunction>> read_tools(std::string_view tools_json) {
  auto tree = JsonTree::parse(tools_json);
  if (!tree.has_value()) {
    return std::move(tree.error()).in_field("tools");
  }
  if (tree->root().type != JsonType::kArray) {
    return Refusal{Code::kInvalidArgument, "tools",
                   fmt::format("must be an array, not {}", describe(tree->root().type))};
  }
  std::vector<ToolFunction> out;
  for (const JsonIndex tool : tree->children(0)) {
    STATOR_TRY(ToolFunction function,
               read_function(*tree, tree->find(tool, "function"), out.size()));
    out.push_back(std::move(function));
  }
  return out;
}

Outcome<std::optional<StructuredOutput>> constrain_tools(const std::vector<ToolFunction>& tools,
                                                         const ToolPolicy& policy,
                                                         const ToolCallFormat* format) {
  using enum ToolPolicy::Choice;
  if (policy.choice == kRequired && tools.empty()) {
    return Refusal{Code::kInvalidArgument, "tool_choice", "required needs non-empty tools"};
  }
  const auto named = std::ranges::find(tools, policy.name, &ToolFunction::name);
  if (policy.choice == kNamed && named == tools.end()) {
    return Refusal{
        Code::kInvalidArgument, "tool_choice",
        fmt::format("names a function that is not in tools: {}", policy.name.substr(0, 128))};
  }
  if (policy.choice == kAuto) {
    const bool bound = std::ranges::any_of(tools, is_strict) || !policy.parallel;
    if (format == nullptr || tools.empty() || !bound) {
      return std::optional<StructuredOutput>();
    }
  }
  if (format != nullptr) {
    STATOR_TRY(StructuredOutput tag, tag_calls(tools, policy, *format));
    return std::optional(std::move(tag));
  }
  if (policy.choice == kRequired) {
    STATOR_TRY(StructuredOutput calls, require_calls(tools, policy.parallel));
    return std::optional(std::move(calls));
  }
  STATOR_TRY(const SchemaFeatures features,
             check_parameters(*named, static_cast<size_t>(named - tools.begin())));
  JsonSchema schema{.text = named->parameters, .features = features, .name = named->name};
  return std::optional(tool_output(std::move(schema), Origin::kToolChoice));
}

Outcome<std::optional<StructuredOutput>> join_constraints(
    std::optional<StructuredOutput> from_fields, std::optional<StructuredOutput> from_tools) {
  if (!from_fields) {
    return from_tools;
  }
  if (from_tools && from_tools->origin == Origin::kToolChoice) {
    if (from_fields->origin == Origin::kResponseFormat) {
      return from_tools;
    }
    return Refusal{Code::kInvalidArgument, "tool_choice",
                   fmt::format("cannot require a call together with {}: keep one of them",
                               from_fields->field)};
  }
  return from_fields;
}

}  // namespace stator::structured
