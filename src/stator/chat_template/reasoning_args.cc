// SPDX-License-Identifier: Apache-2.0
#include "stator/chat_template/reasoning_args.h"

#include <algorithm>
#include <iterator>
#include <optional>

#include "stator/chat_template/arena.h"
#include "stator/chat_template/detail/failure.h"
#include "stator/chat_template/detail/text.h"
#include "stator/chat_template/value.h"

namespace stator::chat_template {
namespace {

constexpr size_t kBytesMax = size_t{64} << 20U;

enum class Mode : uint8_t { kEnabled, kDisabled, kAdaptive };

std::optional<Mode> mode_of_word(std::string_view word) {
  static constexpr std::string_view kOn[] = {"true", "1", "yes", "on", "enabled", "thinking"};
  static constexpr std::string_view kOff[] = {"false",    "0",    "no",  "off",
                                              "disabled", "chat", "none"};
  const std::string lower = detail::to_lower(word);
  if (std::ranges::find(kOn, lower) != std::end(kOn)) {
    return Mode::kEnabled;
  }
  if (std::ranges::find(kOff, lower) != std::end(kOff)) {
    return Mode::kDisabled;
  }
  return lower == "adaptive" || lower == "auto" ? std::optional(Mode::kAdaptive) : std::nullopt;
}

/// Of true, "on", 1, "enabled" …; nothing for null and for what says nothing about reasoning.
std::optional<Mode> mode_of(const Value* value) {
  if (value == nullptr) {
    return std::nullopt;
  }
  switch (value->kind()) {
    case Kind::kBool:
    case Kind::kInt:
      return value->truthy() ? Mode::kEnabled : Mode::kDisabled;
    case Kind::kDouble:
      return value->as_double() != 0.0 ? Mode::kEnabled : Mode::kDisabled;
    case Kind::kString:
      return mode_of_word(value->text());
    case Kind::kDict:
      return mode_of(value->find("type"));
    default:
      return std::nullopt;
  }
}

Result<Value> parse(std::string_view json, std::string_view name, Arena& arena) {
  if (json.empty()) {
    return Value::none();
  }
  STATOR_TRY(const Value value, Value::from_json(json, arena), std::string(name));
  return value;
}

std::optional<Mode> mode_of_effort(std::string_view effort) {
  if (effort.empty()) {
    return std::nullopt;
  }
  return effort == "none" ? Mode::kDisabled : Mode::kEnabled;
}

void write_mode(Mode mode, DictData& kwargs, Arena& arena) {
  if (mode == Mode::kAdaptive) {
    kwargs.erase(arena, Value::string("thinking"));
    kwargs.erase(arena, Value::string("enable_thinking"));
    kwargs.set(arena, Value::string("thinking_mode"), Value::string("adaptive"));
    return;
  }
  const bool on = mode == Mode::kEnabled;
  kwargs.set(arena, Value::string("thinking"), Value::boolean(on));
  kwargs.set(arena, Value::string("enable_thinking"), Value::boolean(on));
  kwargs.set(arena, Value::string("thinking_mode"), Value::string(on ? "enabled" : "disabled"));
}

}  // namespace

Result<std::string> normalize_reasoning_args(const ReasoningArgs& args) {
  if (args.kwargs_json.empty() && args.thinking_json.empty() && args.reasoning_effort.empty() &&
      args.default_mode.empty()) {
    return std::string();
  }
  Arena arena(kBytesMax);
  try {
    STATOR_TRY(Value kwargs, parse(args.kwargs_json, "chat_template_kwargs", arena));
    STATOR_TRY(const Value thinking, parse(args.thinking_json, "thinking", arena));
    if (kwargs.is_none()) {
      kwargs = Value::dict(DictData::make(arena, 4));
    }
    if (!kwargs.is_dict()) {
      return Error(Code::kInvalidArgument, "chat_template_kwargs must be an object");
    }
    std::string_view effort = args.reasoning_effort;
    const Value* nested = kwargs.find("reasoning_effort");
    if (effort.empty() && nested != nullptr && nested->is_string()) {
      effort = nested->text();
    }
    std::optional<Mode> mode = mode_of(&thinking);
    for (const std::string_view name : {"thinking", "enable_thinking", "thinking_mode"}) {
      mode = mode ? mode : mode_of(kwargs.find(name));
    }
    mode = mode ? mode : mode_of_effort(effort);
    mode = mode ? mode : mode_of_word(args.default_mode);
    if (mode) {
      write_mode(*mode, kwargs.as_dict(), arena);
    }
    if (!args.reasoning_effort.empty()) {
      kwargs.as_dict().set(arena, Value::string("reasoning_effort"), Value::string(effort));
    }
    return kwargs.as_dict().size == 0 ? std::string() : kwargs.to_python_json();
  } catch (detail::Failure& failure) {
    return Error(failure.code, std::move(failure.message));
  }
}

}  // namespace stator::chat_template
