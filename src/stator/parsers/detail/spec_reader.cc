// SPDX-License-Identifier: Apache-2.0
#include "stator/parsers/detail/spec_reader.h"

#include "stator/json/value.h"
#include "stator/parsers/reasoning_mode.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace stator::parsers {
namespace {

struct BodyName {
  std::string_view name;
  BodyKind kind;
};
constexpr BodyName kBodyNames[] = {
    {"json_calls", BodyKind::kJsonCalls}, {"named_json", BodyKind::kNamedJson},
    {"tag_params", BodyKind::kTagParams}, {"whole_json", BodyKind::kWholeJson},
    {"pythonic", BodyKind::kPythonic},    {"harmony", BodyKind::kHarmony},
    {"invoke", BodyKind::kInvoke},        {"gemma4", BodyKind::kGemma4},
    {"minimax_m3", BodyKind::kMinimaxM3},
};

Error wrong(std::string_view key, std::string_view expected) {
  return {Code::kInvalidArgument, fmt::format("parser spec: '{}' must be {}", key, expected)};
}

Result<std::string> read_string(std::string_view key, const json::Value& value) {
  if (!value.is_string()) {
    return wrong(key, "a string");
  }
  return std::string(value.text());
}

/// A string, or an array of strings.
Result<std::vector<std::string>> read_strings(std::string_view key, const json::Value& value) {
  std::vector<std::string> strings;
  if (value.is_string()) {
    strings.emplace_back(value.text());
    return strings;
  }
  if (!value.is_array()) {
    return wrong(key, "a string or an array of strings");
  }
  for (const json::Value& element : value.elements()) {
    STATOR_TRY(strings.emplace_back(), read_string(key, element));
  }
  return strings;
}

Result<bool> read_bool(std::string_view key, const json::Value& value) {
  if (!value.is_bool()) {
    return wrong(key, "true or false");
  }
  return *value.as_bool();
}

/// "text", {"text": …, "special": true}, or an array of those.
Status read_markers(std::string_view key, const json::Value& value, Markers& markers) {
  if (value.is_array()) {
    for (const json::Value& element : value.elements()) {
      STATOR_CHECK(read_markers(key, element, markers));
    }
    return {};
  }
  Marker marker;
  if (value.is_string()) {
    marker.text = value.text();
  } else if (value.is_object()) {
    for (const auto& [name, member] : value.members()) {
      if (name == "text") {
        STATOR_TRY(marker.text, read_string(name, member));
      } else if (name == "special") {
        STATOR_TRY(marker.special, read_bool(name, member));
      } else {
        return wrong(key, "a marker of the keys 'text' and 'special' only");
      }
    }
  } else {
    return wrong(key, "a marker: a string or {\"text\": …, \"special\": true}");
  }
  if (marker.text.empty()) {
    return wrong(key, "a marker that is not empty");
  }
  markers.push_back(std::move(marker));
  return {};
}

Status read_marker_map(const json::Value& value,
                       std::map<std::string, Markers, std::less<>>& markers) {
  if (!value.is_object()) {
    return wrong("markers", "an object of lists of markers");
  }
  for (const auto& [key, member] : value.members()) {
    STATOR_CHECK(read_markers(key, member, markers[key]));
  }
  return {};
}

Status read_word_map(const json::Value& value,
                     std::map<std::string, std::vector<std::string>, std::less<>>& words) {
  if (!value.is_object()) {
    return wrong("words", "an object of lists of strings");
  }
  for (const auto& [key, member] : value.members()) {
    STATOR_TRY(words[key], read_strings(key, member));
  }
  return {};
}

Status read_match(const json::Value& value, Fingerprint& match) {
  if (!value.is_object()) {
    return wrong("match", "an object");
  }
  for (const auto& [key, member] : value.members()) {
    if (key == "models") {
      STATOR_TRY(match.models, read_strings(key, member));
    } else if (key == "priority") {
      const auto priority = member.as_int64();
      if (!priority || *priority < -1000 || *priority > 1000) {
        return wrong(key, "an integer from -1000 to 1000");
      }
      match.priority = static_cast<int32_t>(*priority);
    } else if (key == "templates" && member.is_array()) {
      for (const json::Value& element : member.elements()) {
        STATOR_TRY(match.templates.emplace_back(), read_strings(key, element));
      }
    } else {
      return wrong("match", "an object of 'models', 'templates' (arrays) and 'priority'");
    }
  }
  return {};
}

Status read_structural_tag(const json::Value& value, StructuralTag& tag) {
  if (!value.is_object()) {
    return wrong("structural_tag", "an object");
  }
  for (const auto& [key, member] : value.members()) {
    if (key != "trigger" && key != "begin" && key != "end") {
      return wrong("structural_tag", "an object of 'trigger', 'begin' and 'end'");
    }
    std::string& text = key == "trigger" ? tag.trigger : (key == "begin" ? tag.begin : tag.end);
    STATOR_TRY(text, read_string(key, member));
  }
  return {};
}

Status read_names(const json::Value& object, std::string& name, std::vector<std::string>& aliases) {
  const json::Value* given = object.find("name");
  if (given == nullptr || !given->is_string() || given->text().empty()) {
    return wrong("name", "a string that is not empty");
  }
  name = normalize_family_name(given->text());
  if (const json::Value* more = object.find("aliases")) {
    STATOR_TRY(aliases, read_strings("aliases", *more));
    std::ranges::transform(aliases, aliases.begin(), normalize_family_name);
  }
  return {};
}

Result<BodyKind> read_body(const json::Value& value) {
  STATOR_TRY(const std::string name, read_string("body", value));
  const auto* row = std::ranges::find(kBodyNames, name, &BodyName::name);
  if (row == std::end(kBodyNames)) {
    std::string known;
    for (const BodyName& body : kBodyNames) {
      known += fmt::format("{}{}", known.empty() ? "" : ", ", body.name);
    }
    return wrong("body", fmt::format("one of {}, not '{}'", known, name));
  }
  return row->kind;
}

Result<IdScheme> read_ids(const json::Value& value) {
  STATOR_TRY(const std::string name, read_string("ids", value));
  if (name == "call24") {
    return IdScheme::kCall24;
  }
  if (name == "alnum9") {
    return IdScheme::kAlnum9;
  }
  if (name == "native") {
    return IdScheme::kNative;
  }
  return wrong("ids", "one of call24, alnum9, native");
}

/// Keys that name something for people only.
bool is_note(std::string_view key) {
  return key == "kind" || key == "name" || key == "aliases" || key == "description";
}

Status read_tools_key(std::string_view key, const json::Value& value, FamilySpec& spec) {
  if (key == "body") {
    STATOR_TRY(spec.body, read_body(value));
  } else if (key == "markers") {
    STATOR_CHECK(read_marker_map(value, spec.markers));
  } else if (key == "words") {
    STATOR_CHECK(read_word_map(value, spec.words));
  } else if (key == "flags") {
    STATOR_TRY(spec.flags, read_strings(key, value));
  } else if (key == "ids") {
    STATOR_TRY(spec.ids, read_ids(value));
  } else if (key == "reasoning") {
    STATOR_TRY(spec.reasoning, read_string(key, value));
  } else if (key == "owns_reasoning") {
    STATOR_TRY(spec.owns_reasoning, read_bool(key, value));
  } else if (key == "always_on") {
    STATOR_TRY(spec.always_on, read_bool(key, value));
  } else if (key == "structural_tag") {
    STATOR_CHECK(read_structural_tag(value, spec.structural_tag));
  } else if (key == "match") {
    STATOR_CHECK(read_match(value, spec.match));
  } else if (!is_note(key)) {
    return wrong(key, "left out: no such key in a spec of tool calls");
  }
  return {};
}

Status check_conditions(const ReasoningSpec& spec) {
  for (const std::string_view key : {"off_when", "off_unless"}) {
    if (!std::ranges::all_of(spec.find_words(key), is_reasoning_condition)) {
      return wrong(key,
                   "a list of thinking=true, thinking=false, thinking_mode=…, reasoning_effort");
    }
  }
  return {};
}

Status read_reasoning_key(std::string_view key, const json::Value& value, ReasoningSpec& spec) {
  if (key == "open") {
    STATOR_CHECK(read_markers(key, value, spec.open));
  } else if (key == "close") {
    STATOR_CHECK(read_markers(key, value, spec.close));
  } else if (key == "hand_over") {
    STATOR_CHECK(read_markers(key, value, spec.hand_over));
  } else if (key == "framing") {
    STATOR_CHECK(read_markers(key, value, spec.framing));
  } else if (key == "starts_inside") {
    STATOR_TRY(spec.starts_inside, read_bool(key, value));
  } else if (key == "words") {
    STATOR_CHECK(read_word_map(value, spec.words));
    STATOR_CHECK(check_conditions(spec));
  } else if (key == "flags") {
    STATOR_TRY(spec.flags, read_strings(key, value));
  } else if (key == "match") {
    STATOR_CHECK(read_match(value, spec.match));
  } else if (!is_note(key)) {
    return wrong(key, "left out: no such key in a spec of reasoning");
  }
  return {};
}

Result<AnySpec> read_spec(const json::Value& object) {
  if (!object.is_object()) {
    return wrong("spec", "an object");
  }
  const json::Value* kind = object.find("kind");
  if (kind == nullptr || !(*kind == "tools" || *kind == "reasoning")) {
    return wrong("kind", "\"tools\" or \"reasoning\"");
  }
  if (*kind == "reasoning") {
    ReasoningSpec spec;
    STATOR_CHECK(read_names(object, spec.name, spec.aliases));
    for (const auto& [key, member] : object.members()) {
      STATOR_CHECK(read_reasoning_key(key, member, spec),
                   fmt::format("reasoning family '{}'", spec.name));
    }
    return AnySpec(std::move(spec));
  }
  FamilySpec spec;
  STATOR_CHECK(read_names(object, spec.name, spec.aliases));
  if (object.find("body") == nullptr) {
    return wrong("body", "given: it says how calls are read");
  }
  for (const auto& [key, member] : object.members()) {
    STATOR_CHECK(read_tools_key(key, member, spec), fmt::format("tool family '{}'", spec.name));
  }
  return AnySpec(std::move(spec));
}

}  // namespace

std::string normalize_family_name(std::string_view name) {
  std::string normal(name);
  for (char& c : normal) {
    c = c == '-' ? '_' : (c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c);
  }
  return normal;
}

Result<std::vector<AnySpec>> read_specs(std::string_view json_text) {
  if (json_text.size() > kMaxSpecBytes) {
    return Error(Code::kTooLarge, fmt::format("parser spec has {} bytes; at most {} are allowed",
                                              json_text.size(), kMaxSpecBytes));
  }
  STATOR_TRY(const json::Value value, json::parse(json_text), "parser spec");
  std::vector<AnySpec> specs;
  if (!value.is_array()) {
    STATOR_TRY(AnySpec spec, read_spec(value));
    specs.push_back(std::move(spec));
    return specs;
  }
  for (const json::Value& element : value.elements()) {
    STATOR_TRY(AnySpec spec, read_spec(element));
    specs.push_back(std::move(spec));
  }
  return specs;
}

}  // namespace stator::parsers
