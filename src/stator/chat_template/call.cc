// SPDX-License-Identifier: Apache-2.0
#include "stator/chat_template/detail/object.h"

#include <algorithm>

#include "stator/chat_template/detail/format.h"
#include "stator/chat_template/detail/interpreter.h"
#include "stator/chat_template/detail/library.h"
#include "stator/chat_template/detail/operators.h"
#include "stator/chat_template/detail/text.h"

namespace stator::chat_template::detail {
namespace {

/// What an index beyond the end gives.
Value missing_element(int64_t position, Kind owner, Arena& arena) {
  return Value::undefined(arena.copy(std::to_string(position)), owner);
}

Value cycler_next(Interpreter&, Value self, const CallArguments&) {
  auto& cycler = static_cast<CyclerObject&>(self.as_object());
  const Value item = cycler.items[cycler.position];
  cycler.position = (cycler.position + 1) % static_cast<uint32_t>(cycler.items.size());
  return item;
}

Value cycler_reset(Interpreter&, Value self, const CallArguments&) {
  static_cast<CyclerObject&>(self.as_object()).position = 0;
  return Value::none();
}

Value loop_cycle(Interpreter&, Value self, const CallArguments& arguments) {
  if (arguments.positional.empty()) {
    fail("no items for cycling given");
  }
  const auto& loop = static_cast<LoopObject&>(self.as_object());
  return arguments.positional[loop.index0 % arguments.positional.size()];
}

Value loop_changed(Interpreter& interpreter, Value self, const CallArguments& arguments) {
  auto& loop = static_cast<LoopObject&>(self.as_object());
  auto* seen = ListData::make(interpreter.arena(), arguments.positional.size());
  for (const Value& value : arguments.positional) {
    seen->push(interpreter.arena(), value);
  }
  const Value now = Value::sequence(Kind::kTuple, seen);
  if (!loop.changed.is_missing() && equals(loop.changed, now)) {
    return Value::boolean(false);
  }
  loop.changed = now;
  return Value::boolean(true);
}

constexpr Method kCyclerNext{"next", cycler_next};
constexpr Method kCyclerReset{"reset", cycler_reset};
constexpr Method kLoopCycle{"cycle", loop_cycle, "*args"};
constexpr Method kLoopChanged{"changed", loop_changed, "*args"};
constexpr Signature kNoParameters = "";
constexpr Signature kLoopParameters = "iterable";

}  // namespace

std::string_view Interpreter::text_of(const Value& value) {
  if (value.is_string()) {
    return value.text();
  }
  std::string text;
  write_str(value, text);
  charge(text.size() / 64);
  return arena_.copy(std::string_view(text));
}

ListData* Interpreter::iterate(const Value& value) {
  switch (value.kind()) {
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kView:
      return &value.as_list();
    case Kind::kGenerator: {
      if (value.is_failed_generator()) {
        fail(std::string(value.as_list().items[0].text()));
      }
      // A generator gives its elements once.
      auto* taken = arena_.make<ListData>(value.as_list());
      value.as_list().size = 0;
      return taken;
    }
    case Kind::kDict: {
      const DictData& dict = value.as_dict();
      auto* keys = ListData::make(arena_, dict.size);
      for (const auto& entry : dict.items()) {
        keys->push(arena_, entry.key);
      }
      charge(dict.size / 16);
      return keys;
    }
    case Kind::kString: {
      const std::string_view text = value.text();
      charge(text.size() / 4);
      auto* characters = ListData::make(arena_, count_code_points(text));
      for (size_t at = 0; at < text.size();) {
        const size_t start = at;
        next_code_point(text, at);
        characters->push(arena_, Value::string(text.substr(start, at - start)));
      }
      return characters;
    }
    case Kind::kUndefined:
      return ListData::make(arena_, 0);
    case Kind::kObject:
      if (value.as_object().type == Object::Type::kLoop) {
        return static_cast<LoopObject&>(value.as_object()).items;
      }
      if (value.as_object().type == Object::Type::kRange) {
        return list_range(static_cast<const RangeObject&>(value.as_object()));
      }
      [[fallthrough]];
    default:
      fail("'" + std::string(type_name(value)) + "' object is not iterable");
  }
}

ListData* Interpreter::list_range(const RangeObject& range) {
  charge(range.size / 16);
  auto* items = ListData::make(arena_, range.size);
  for (uint32_t i = 0; i < range.size; ++i) {
    items->push(arena_, Value::integer(range.at(i)));
  }
  return items;
}

Value Interpreter::bind_method(const Value& self, const Method& method) {
  return Value::object(
      arena_.make<MethodObject>(MethodObject{{Object::Type::kMethod}, self, &method}));
}

Value Interpreter::get_attribute(const Value& object, std::string_view name,
                                 const MethodSet& methods) {
  switch (object.kind()) {
    case Kind::kMissing:
    case Kind::kUndefined:
      fail_undefined(object);
    case Kind::kString:
      if (methods.on_string != nullptr) {
        return bind_method(object, *methods.on_string);
      }
      break;
    case Kind::kList:
      if (methods.on_list != nullptr) {
        return bind_method(object, *methods.on_list);
      }
      break;
    case Kind::kTuple:
      if (object.is_group() && (name == "grouper" || name == "list")) {
        return object.as_list().items[name == "grouper" ? 0 : 1];
      }
      if (name == "index" || name == "count") {
        return bind_method(object, *methods.on_list);
      }
      break;
    case Kind::kBool:
    case Kind::kInt:
      if (name == "real" || name == "numerator") {
        return Value::integer(object.as_int());
      }
      if (name == "imag" || name == "denominator") {
        return Value::integer(name == "imag" ? 0 : 1);
      }
      break;
    case Kind::kDict:
      if (methods.on_dict != nullptr) {
        return bind_method(object, *methods.on_dict);
      }
      if (const Value* found = object.as_dict().find(name)) {
        return *found;
      }
      break;
    case Kind::kObject:
      return get_object_attribute(object, name);
    default:
      break;
  }
  return Value::undefined(name, object.kind());
}

Value Interpreter::get_item(const Value& object, const Value& index) {
  if (object.is_undefined()) {
    fail_undefined(object);
  }
  if (object.is_dict()) {
    if (const Value* found = object.as_dict().find(index)) {
      return *found;
    }
  }
  const auto position = as_integer(index);
  if (position && (object.kind() == Kind::kList || object.kind() == Kind::kTuple)) {
    const ListData& list = object.as_list();
    const int64_t at = *position < 0 ? *position + int64_t{list.size} : *position;
    return at >= 0 && at < int64_t{list.size} ? list.items[at]
                                              : missing_element(*position, object.kind(), arena_);
  }
  if (position && object.is_object() && object.as_object().type == Object::Type::kRange) {
    const auto& range = static_cast<const RangeObject&>(object.as_object());
    const int64_t at = *position < 0 ? *position + int64_t{range.size} : *position;
    return at >= 0 && at < int64_t{range.size} ? Value::integer(range.at(at))
                                               : missing_element(*position, Kind::kObject, arena_);
  }
  if (position && object.is_string()) {
    const std::string_view text = object.text();
    const auto length = static_cast<int64_t>(count_code_points(text));
    charge(text.size() / 64);
    const int64_t at = *position < 0 ? *position + length : *position;
    if (at < 0 || at >= length) {
      return missing_element(*position, Kind::kString, arena_);
    }
    const size_t begin = byte_offset(text, static_cast<size_t>(at));
    size_t end = begin;
    next_code_point(text, end);
    return Value::string(text.substr(begin, end - begin));
  }
  if (index.is_string()) {
    const std::string_view name = index.text();
    return get_attribute(object, name, find_methods(name));
  }
  return Value::undefined("item", object.kind());
}

Value Interpreter::get_object_attribute(const Value& value, std::string_view name) {
  Object& object = value.as_object();
  switch (object.type) {
    case Object::Type::kNamespace:
      if (const Value* found = static_cast<NamespaceObject&>(object).attributes->find(name)) {
        return *found;
      }
      break;
    case Object::Type::kLoop:
      return get_loop_attribute(static_cast<LoopObject&>(object), value, name);
    case Object::Type::kMacro:
      return get_macro_attribute(*static_cast<MacroObject&>(object).declaration, name);
    case Object::Type::kFunction:
      if (const Method* method =
              find_function_method(static_cast<const FunctionObject&>(object), name)) {
        return bind_method(value, *method);
      }
      break;
    case Object::Type::kRange:
      return get_range_attribute(value, name);
    case Object::Type::kCycler:
      if (name == "next") {
        return bind_method(value, kCyclerNext);
      }
      if (name == "reset") {
        return bind_method(value, kCyclerReset);
      }
      if (name == "current") {
        const auto& cycler = static_cast<CyclerObject&>(object);
        return cycler.items[cycler.position];
      }
      break;
    default:
      break;
  }
  return Value::undefined(name, Kind::kObject);
}

Value Interpreter::get_range_attribute(const Value& value, std::string_view name) {
  const auto& range = static_cast<const RangeObject&>(value.as_object());
  if (name == "start") {
    return Value::integer(range.start);
  }
  if (name == "stop") {
    return Value::integer(range.stop);
  }
  if (name == "step") {
    return Value::integer(range.step);
  }
  if (name == "index" || name == "count") {
    return bind_method(Value::list(list_range(range)), *find_methods(name).on_list);
  }
  return Value::undefined(name, Kind::kObject);
}

Value Interpreter::get_macro_attribute(const MacroStmt& macro, std::string_view name) {
  if (name == "name") {
    return macro.name.empty() ? Value::none() : Value::string(macro.name);
  }
  if (name == "arguments") {
    auto* names = ListData::make(arena_, macro.function.parameter_names.size());
    for (const std::string_view parameter : macro.function.parameter_names) {
      names->push(arena_, Value::string(parameter));
    }
    return Value::sequence(Kind::kTuple, names);
  }
  if (name == "catch_kwargs") {
    return Value::boolean(macro.function.uses_kwargs);
  }
  if (name == "catch_varargs") {
    return Value::boolean(macro.function.uses_varargs);
  }
  if (name == "caller") {
    return Value::boolean(macro.function.uses_caller);
  }
  return Value::undefined(name, Kind::kObject);
}

Value Interpreter::get_loop_attribute(LoopObject& loop, const Value& self, std::string_view name) {
  const int64_t index0 = loop.index0;
  const int64_t length = loop.items->size;
  if (name == "index0") {
    return Value::integer(index0);
  }
  if (name == "index") {
    return Value::integer(index0 + 1);
  }
  if (name == "first") {
    return Value::boolean(index0 == 0);
  }
  if (name == "last") {
    return Value::boolean(index0 + 1 == length);
  }
  if (name == "length") {
    return Value::integer(length);
  }
  if (name == "revindex") {
    return Value::integer(length - index0);
  }
  if (name == "revindex0") {
    return Value::integer(length - index0 - 1);
  }
  if (name == "previtem") {
    return index0 > 0 ? loop.items->items[index0 - 1]
                      : Value::undefined("there is no previous item");
  }
  if (name == "nextitem") {
    return index0 + 1 < length ? loop.items->items[index0 + 1]
                               : Value::undefined("there is no next item");
  }
  if (name == "depth0") {
    return Value::integer(loop.depth0);
  }
  if (name == "depth") {
    return Value::integer(int64_t{loop.depth0} + 1);
  }
  if (name == "cycle") {
    return bind_method(self, kLoopCycle);
  }
  if (name == "changed") {
    return bind_method(self, kLoopChanged);
  }
  return Value::undefined(name, Kind::kObject);
}

Value Interpreter::call(const Value& callee, const CallArguments& arguments) {
  const Depth depth(*this);
  charge(1);
  if (callee.is_undefined()) {
    fail_undefined(callee);
  }
  if (!callee.is_object()) {
    fail("'" + std::string(type_name(callee)) + "' object is not callable");
  }
  return call_object(callee.as_object(), arguments);
}

Value Interpreter::call_object(Object& object, const CallArguments& arguments) {
  switch (object.type) {
    case Object::Type::kMacro:
      return call_macro(static_cast<MacroObject&>(object), arguments);
    case Object::Type::kLoop:
      return call_loop(static_cast<LoopObject&>(object), arguments);
    case Object::Type::kMethod: {
      const auto& method = static_cast<MethodObject&>(object);
      return (*method.method)(*this, method.self, arguments);
    }
    case Object::Type::kFunction: {
      const auto& function = static_cast<FunctionObject&>(object);
      function.signature.check(function.name, arguments);
      return function.function(*this, arguments);
    }
    case Object::Type::kJoiner: {
      kNoParameters.check("joiner", arguments);
      auto& joiner = static_cast<JoinerObject&>(object);
      return std::exchange(joiner.used, true) ? joiner.separator : Value::string("");
    }
    default:
      fail("this object is not callable");
  }
}

void Interpreter::bind_parameters(const MacroStmt& macro, const CallArguments& arguments) {
  const FunctionSyntax& function = macro.function;
  const size_t count = function.parameter_slots.size();
  const size_t first_default = count - function.defaults.size();
  const std::string name(macro.name);
  for (size_t i = 0; i < count; ++i) {
    const std::string_view parameter = function.parameter_names[i];
    Value value = Value::undefined(parameter);
    if (const Value* given = arguments.get(i, parameter)) {
      value = *given;
    } else if (i >= first_default) {
      value = evaluate(*function.defaults[i - first_default]);
    }
    frame_->slots[function.parameter_slots[i]] = value;
  }
  if (arguments.positional.size() > count && !function.uses_varargs) {
    fail("macro '" + name + "' takes not more than " + std::to_string(count) + " argument(s)");
  }
  auto* varargs = ListData::make(arena_, 0);
  for (size_t i = count; i < arguments.positional.size(); ++i) {
    varargs->push(arena_, arguments.positional[i]);
  }
  frame_->slots[function.varargs_slot] = Value::sequence(Kind::kTuple, varargs);
  Value caller = Value::undefined("caller");
  auto* kwargs = DictData::make(arena_, 0);
  for (size_t i = 0; i < arguments.names.size(); ++i) {
    const std::string_view given = arguments.names[i];
    const auto known = static_cast<size_t>(std::ranges::find(function.parameter_names, given) -
                                           function.parameter_names.begin());
    if (known < count && known >= arguments.positional.size()) {
      continue;  // bound above
    }
    const bool may_be_caller = function.uses_caller || !function.uses_kwargs;
    if (known == count && given == "caller" && may_be_caller) {
      caller = arguments.named[i];
    } else if (function.uses_kwargs) {
      kwargs->set(arena_, Value::string(given), arguments.named[i]);
    } else if (known < count) {
      fail("macro '" + name + "' got multiple values for argument '" + std::string(given) + "'");
    } else {
      fail("macro '" + name + "' takes no keyword argument '" + std::string(given) + "'");
    }
  }
  if (!caller.is_undefined() && !function.uses_caller) {
    fail("macro '" + name + "' was invoked with a call block but does not use caller()");
  }
  if (std::ranges::find(function.parameter_names, "caller") == function.parameter_names.end()) {
    frame_->slots[function.caller_slot] = caller;
  }
  frame_->slots[function.kwargs_slot] = Value::dict(kwargs);
}

Value Interpreter::call_macro(const MacroObject& macro, const CallArguments& arguments) {
  const MacroStmt& declaration = *macro.declaration;
  const size_t slots = declaration.function.slot_count;
  auto* frame = arena_.make<Frame>(Frame{macro.closure, {arena_.array<Value>(slots), slots}});
  std::ranges::fill(frame->slots, Value::missing());
  Frame* const outer = std::exchange(frame_, frame);
  const uint32_t line = line_;
  bind_parameters(declaration, arguments);
  const size_t start = out_.size();
  run_block(declaration.body);
  const Value text = make_string(std::string_view(out_).substr(start));
  out_.resize(start);
  frame_ = outer;
  line_ = line;
  return text;
}

/// `loop(children)` in a recursive for: the same body one level down, its output as a value.
Value Interpreter::call_loop(const LoopObject& loop, const CallArguments& arguments) {
  if (!loop.statement->recursive) {
    fail("the loop must have the 'recursive' marker to be called recursively");
  }
  kLoopParameters.check("loop", arguments);
  ListData* items = iterate(*arguments.get(0, "iterable"));
  Frame* const outer = std::exchange(frame_, loop.frame);
  const std::span<Value> slots = frame_->slots;
  auto* saved = arena_.array<Value>(slots.size());
  std::ranges::copy(slots, saved);
  const size_t start = out_.size();
  run_loop(*loop.statement, items, loop.depth0 + 1);
  const Value text = make_string(std::string_view(out_).substr(start));
  out_.resize(start);
  std::copy_n(saved, slots.size(), slots.begin());
  frame_ = outer;
  return text;
}

}  // namespace stator::chat_template::detail
