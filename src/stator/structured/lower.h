// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "stator/structured/refusal.h"
#include "stator/structured/structured_output.h"

namespace stator::structured {

/// Whose request body is to be written.
enum class Dialect : uint8_t {
  kVllm,         ///< structured_outputs; what 0.12 and later understand
  kVllmGuided,   ///< guided_*; before that. Later servers silently ignore these names
  kSglang,       ///< /generate
  kTensorRtLlm,  ///< trtllm-serve
  kLlamaCpp,     ///< /completion
  kOpenAi,       ///< any server with response_format
};
inline constexpr size_t kDialectCount = 6;

/// What an engine can be asked for.
struct EngineCapabilities {
  std::string_view name;                    ///< for messages: "vLLM"
  std::array<bool, kKindCount> kinds = {};  ///< by Kind, conversions included
  bool lark = false;                        ///< grammars in Lark, too
  bool legacy_tags = false;                 ///< structural tags with structures and triggers
  bool whitespace_pattern = false;
  bool json_options = false;     ///< disable_any_whitespace, disable_additional_properties
  bool after_reasoning = false;  ///< StructuredOutput::require_reasoning
  SchemaFeatures schema;
};

const EngineCapabilities& capabilities(Dialect dialect);

/// One member to add to an engine's request.
struct EngineField {
  enum class Place : uint8_t {
    kSampling,  ///< beside `temperature`: in sampling_params where the route has one, else the body
    kBody,      ///< the body's root
  };
  std::string_view name;  ///< a literal
  std::string json;       ///< its value
  Place place = Place::kSampling;
};

/// The members that make `dialect` enforce `output`. Choices become a regular expression or a
/// grammar where an engine has none, regular expressions a grammar for llama.cpp. Refused with
/// kUnsupported, naming engine and feature (and the keyword's pointer), when the engine could not
/// keep the promise; nothing is ever dropped but the `backend` hint. Pure.
Outcome<std::vector<EngineField>> lower(const StructuredOutput& output, Dialect dialect);

/// The form in which constraints travel between Stator's own processes: the value of vLLM's
/// `structured_outputs`. read_structured_output with that field reads it back, but for name,
/// description and strict of a schema, the backend hint, the origin, and require_reasoning.
std::string encode(const StructuredOutput& output);

}  // namespace stator::structured
