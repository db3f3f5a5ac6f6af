// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "stator/chat_template/detail/format.h"
#include "stator/chat_template/detail/interpreter.h"
#include "stator/chat_template/detail/library.h"
#include "stator/chat_template/detail/operators.h"
#include "stator/chat_template/detail/strftime.h"

namespace stator::chat_template::detail {
namespace {

using Args = const CallArguments&;

// The sandbox's own bound on range().
constexpr int64_t kRangeMax = 100'000;

Value global_range(Interpreter& interpreter, Args arguments) {
  const size_t count = arguments.positional.size();
  if (count == 0 || count > 3) {
    fail("range expected 1 to 3 arguments");
  }
  for (const Value& value : arguments.positional) {
    if (!as_integer(value)) {
      fail_operand("range() needs integers, not", value);
    }
  }
  const int64_t start = count == 1 ? 0 : *as_integer(arguments.positional[0]);
  const int64_t stop = *as_integer(arguments.positional[count == 1 ? 0 : 1]);
  const int64_t step = count == 3 ? *as_integer(arguments.positional[2]) : 1;
  if (step == 0) {
    fail("range() arg 3 must not be zero");
  }
  uint64_t length = 0;
  if (step > 0 ? start < stop : start > stop) {
    const uint64_t distance = step > 0 ? static_cast<uint64_t>(stop) - static_cast<uint64_t>(start)
                                       : static_cast<uint64_t>(start) - static_cast<uint64_t>(stop);
    const uint64_t stride =
        step > 0 ? static_cast<uint64_t>(step) : 0 - static_cast<uint64_t>(step);
    length = (distance - 1) / stride + 1;
  }
  if (length > kRangeMax) {
    fail("Range too big. The sandbox blocks ranges larger than MAX_RANGE (100000).");
  }
  return Value::object(interpreter.arena().make<RangeObject>(
      RangeObject{{Object::Type::kRange}, start, stop, step, static_cast<uint32_t>(length)}));
}

/// dict(mapping or pairs, key=value…), the arguments of namespace() too.
DictData* make_dict(Interpreter& interpreter, Args arguments) {
  Arena& arena = interpreter.arena();
  auto* dict = DictData::make(arena, arguments.named.size());
  if (!arguments.positional.empty()) {
    const Value& source = arguments.positional[0];
    if (source.is_undefined()) {
      fail_undefined(source);
    }
    if (source.is_dict()) {
      for (const auto& entry : source.as_dict().items()) {
        dict->set(arena, entry.key, entry.value);
      }
    } else {
      for (const Value& pair : interpreter.iterate(source)->values()) {
        const ListData& parts = *interpreter.iterate(pair);
        if (parts.size != 2 || !hashable(parts.items[0])) {
          fail("dict needs pairs of a key and a value");
        }
        dict->set(arena, parts.items[0], parts.items[1]);
      }
    }
    interpreter.charge(dict->size / 4);
  }
  for (size_t i = 0; i < arguments.named.size(); ++i) {
    dict->set(arena, Value::string(arguments.names[i]), arguments.named[i]);
  }
  return dict;
}

Value global_dict(Interpreter& interpreter, Args arguments) {
  return Value::dict(make_dict(interpreter, arguments));
}

/// dict.fromkeys(keys, value)
Value dict_from_keys(Interpreter& interpreter, Value, Args arguments) {
  const ListData& keys = *interpreter.iterate(arguments.require(0, "iterable", "fromkeys"));
  const Value* value = arguments.get(1, "value");
  auto* dict = DictData::make(interpreter.arena(), keys.size);
  interpreter.charge(keys.size / 4);
  for (const Value& key : keys.values()) {
    if (!hashable(key)) {
      fail("unhashable type: '" + std::string(type_name(key)) + "'");
    }
    dict->set(interpreter.arena(), key, value == nullptr ? Value::none() : *value);
  }
  return Value::dict(dict);
}

Value global_namespace(Interpreter& interpreter, Args arguments) {
  return Value::object(interpreter.arena().make<NamespaceObject>(
      NamespaceObject{{Object::Type::kNamespace}, make_dict(interpreter, arguments)}));
}

Value global_cycler(Interpreter& interpreter, Args arguments) {
  if (arguments.positional.empty()) {
    fail("at least one item has to be provided");
  }
  const size_t count = arguments.positional.size();
  auto* items = interpreter.arena().array<Value>(count);
  std::ranges::copy(arguments.positional, items);
  return Value::object(interpreter.arena().make<CyclerObject>(
      CyclerObject{{Object::Type::kCycler}, {items, count}, 0}));
}

Value global_joiner(Interpreter& interpreter, Args arguments) {
  const Value* separator = arguments.get(0, "sep");
  return Value::object(interpreter.arena().make<JoinerObject>(JoinerObject{
      {Object::Type::kJoiner}, separator == nullptr ? Value::string(", ") : *separator, false}));
}

Value global_raise_exception(Interpreter& interpreter, Args arguments) {
  const std::string text(interpreter.text_of(arguments.require(0, "message", "raise_exception")));
  throw Failure{Code::kInvalidArgument, text, true};
}

Value global_strftime_now(Interpreter& interpreter, Args arguments) {
  const std::string_view format = arguments.get_text(0, "format", "");
  return interpreter.make_string(format_time(interpreter.now(), format));
}

constexpr FunctionObject kGlobals[] = {
    {{Object::Type::kFunction}, global_range, "range", "*args"},
    {{Object::Type::kFunction}, global_dict, "dict", "other= / **kwargs"},
    {{Object::Type::kFunction}, global_namespace, "namespace", "other= / **kwargs"},
    {{Object::Type::kFunction}, global_cycler, "cycler", "*args"},
    {{Object::Type::kFunction}, global_joiner, "joiner", "sep="},
    {{Object::Type::kFunction}, global_raise_exception, "raise_exception", "message"},
    {{Object::Type::kFunction}, global_strftime_now, "strftime_now", "format"},
};

}  // namespace

const Method* find_function_method(const FunctionObject& function, std::string_view name) {
  static constexpr Method kFromKeys{"fromkeys", dict_from_keys, "iterable value= /"};
  return function.function == global_dict && name == kFromKeys.name ? &kFromKeys : nullptr;
}

const FunctionObject* find_global(std::string_view name) {
  const auto* found = std::ranges::find(kGlobals, name, &FunctionObject::name);
  return found == std::end(kGlobals) ? nullptr : found;
}

}  // namespace stator::chat_template::detail
