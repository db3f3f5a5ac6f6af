// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "stator/structured/refusal.h"
#include "stator/structured/structured_output.h"

namespace stator::structured {

/// One function of the request's `tools`.
struct ToolFunction {
  std::string name;
  std::string parameters;  ///< JSON Schema, verbatim; an object without properties if absent
  bool strict = false;
};

/// How a model spells one call, as its parser knows it. Around all calls: `section_begin`,
/// `separator`, `section_end` (often empty). One call: begin_before_name NAME begin_after_name
/// [number arguments_begin] ARGUMENTS end.
struct ToolCallFormat {
  enum class Arguments : uint8_t { kJson, kQwenXml, kDeepseekXml, kMinimaxXml, kGlmXml };

  std::string section_begin;
  std::string section_end;
  std::string separator;
  std::string begin_before_name;  ///< `<tool_call>\n{"name": "`; never empty
  std::string begin_after_name;   ///< `", "arguments": `
  std::string arguments_begin;    ///< not empty: a call number and this stand before the arguments
  std::string end;                ///< `}\n</tool_call>`
  std::string trigger;            ///< prefix of begin_before_name; empty: all of it
  Arguments arguments = Arguments::kJson;
};

/// Which calls the client allows.
struct ToolPolicy {
  enum class Choice : uint8_t { kAuto, kRequired, kNamed };
  Choice choice = Choice::kAuto;
  std::string name;      ///< kNamed
  bool parallel = true;  ///< false: at most one call
};

/// The functions of a `tools` array. Schemas are not looked into yet: a model that is free to
/// choose may be given ones that nobody can enforce. Refusals name `tools[i].function.…`.
Outcome<std::vector<ToolFunction>> read_tools(std::string_view tools_json);

/// The constraint that `policy` means, or nothing when the model is free.
///
/// With `format`: a structural tag in the model's own spelling, if a call is required, a tool is
/// strict, or calls may not be parallel. It enforces the schemas of strict tools; the arguments of
/// others are any object. Without: required is a JSON array of {"name", "parameters"} objects (at
/// most one if calls may not be parallel), named is the arguments object alone; both enforce the
/// schemas; auto is left free.
///
/// Refused: kRequired without tools, kNamed with a name that is not among `tools`, and schemas that
/// would have to be enforced but cannot (`tools[i].function.parameters`, with the keyword's place).
Outcome<std::optional<StructuredOutput>> constrain_tools(const std::vector<ToolFunction>& tools,
                                                         const ToolPolicy& policy,
                                                         const ToolCallFormat* format);

/// Joins what fields asked for and what tools ask for. An automatic choice gives way to the fields.
/// A required call leaves no content, so response_format has nothing to say, as with OpenAI; other
/// fields constrain the whole output, and are refused, naming both.
Outcome<std::optional<StructuredOutput>> join_constraints(
    std::optional<StructuredOutput> from_fields, std::optional<StructuredOutput> from_tools);

}  // namespace stator::structured
