// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "stator/chat_template/detail/format.h"
#include "stator/chat_template/detail/interpreter.h"
#include "stator/chat_template/detail/library.h"
#include "stator/chat_template/detail/operators.h"

namespace stator::chat_template::detail {
namespace {

using Args = const CallArguments&;

void require_list(const Value& self, std::string_view method) {
  if (!self.is_list()) {
    fail("'tuple' object has no attribute '" + std::string(method) + "'");
  }
}

Value list_append(Interpreter& interpreter, Value self, Args arguments) {
  require_list(self, "append");
  self.as_list().push(interpreter.arena(), arguments.require(0, "object", "append"));
  return Value::none();
}

Value list_extend(Interpreter& interpreter, Value self, Args arguments) {
  require_list(self, "extend");
  const ListData& items = *interpreter.iterate(arguments.require(0, "iterable", "extend"));
  const uint32_t count = items.size;  // the list may be extended by itself
  interpreter.charge(count);
  for (uint32_t i = 0; i < count; ++i) {
    self.as_list().push(interpreter.arena(), items.items[i]);
  }
  return Value::none();
}

Value list_insert(Interpreter& interpreter, Value self, Args arguments) {
  require_list(self, "insert");
  ListData& list = self.as_list();
  const int64_t size = list.size;
  int64_t at = arguments.get_int(0, "index", 0);
  at = std::clamp<int64_t>(at < 0 ? at + size : at, 0, size);
  interpreter.charge(list.size / 16);
  list.insert(interpreter.arena(), static_cast<size_t>(at),
              arguments.require(1, "object", "insert"));
  return Value::none();
}

Value list_pop(Interpreter& interpreter, Value self, Args arguments) {
  require_list(self, "pop");
  ListData& list = self.as_list();
  const int64_t size = list.size;
  int64_t at = arguments.get_int(0, "index", -1);
  at = at < 0 ? at + size : at;
  if (at < 0 || at >= size) {
    fail(size == 0 ? "pop from empty list" : "pop index out of range");
  }
  const Value item = list.items[at];
  interpreter.charge(list.size / 16);
  list.erase(static_cast<size_t>(at));
  return item;
}

Value list_clear(Interpreter&, Value self, Args) {
  require_list(self, "clear");
  self.as_list().size = 0;
  return Value::none();
}

Value list_reverse(Interpreter& interpreter, Value self, Args) {
  require_list(self, "reverse");
  interpreter.charge(self.as_list().size / 16);
  std::ranges::reverse(self.as_list().values());
  return Value::none();
}

Value list_sort(Interpreter& interpreter, Value self, Args arguments) {
  require_list(self, "sort");
  if (const Value* key = arguments.get(SIZE_MAX, "key"); key != nullptr && !key->is_none()) {
    fail("sort() knows no key here: the filter sort has an attribute");
  }
  const Value* reverse = arguments.get(SIZE_MAX, "reverse");
  const Value order[] = {Value::boolean(reverse != nullptr && reverse->truthy()),
                         Value::boolean(true)};  // case_sensitive
  const Value sorted = (*find_filter("sort"))(interpreter, self, CallArguments{order, {}, {}});
  std::ranges::copy(sorted.as_list().values(), self.as_list().items);
  return Value::none();
}

Value list_copy(Interpreter& interpreter, Value self, Args arguments) {
  require_list(self, "copy");
  return (*find_filter("list"))(interpreter, self, arguments);
}

Value list_index(Interpreter& interpreter, Value self, Args arguments) {
  const Value& wanted = arguments.require(0, "value", "index");
  const ListData& list = self.as_list();
  interpreter.charge(list.size / 4);
  const int64_t size = list.size;
  const auto bound = [size](int64_t at) {
    return std::clamp<int64_t>(at < 0 ? at + size : at, 0, size);
  };
  const int64_t stop = bound(arguments.get_int(2, "stop", size));
  for (int64_t i = bound(arguments.get_int(1, "start", 0)); i < stop; ++i) {
    if (equals(list.items[i], wanted)) {
      return Value::integer(i);
    }
  }
  fail("the value is not in the list");
}

Value list_remove(Interpreter& interpreter, Value self, Args arguments) {
  require_list(self, "remove");
  const Value at = list_index(interpreter, self, arguments);
  self.as_list().erase(static_cast<size_t>(at.as_int()));
  return Value::none();
}

Value list_count(Interpreter& interpreter, Value self, Args arguments) {
  const Value& wanted = arguments.require(0, "value", "count");
  interpreter.charge(self.as_list().size / 4);
  return Value::integer(std::ranges::count_if(
      self.as_list().values(), [&](const Value& item) { return equals(item, wanted); }));
}

enum class Part : uint8_t { kKeys, kValues, kItems };

template <Part kPart>
Value dict_view(Interpreter& interpreter, Value self, Args) {
  Arena& arena = interpreter.arena();
  const DictData& dict = self.as_dict();
  auto* view = ListData::make(arena, dict.size);
  for (const auto& entry : dict.items()) {
    if constexpr (kPart == Part::kItems) {
      auto* pair = ListData::make(arena, 2);
      pair->push(arena, entry.key);
      pair->push(arena, entry.value);
      view->push(arena, Value::sequence(Kind::kTuple, pair));
    } else {
      view->push(arena, kPart == Part::kKeys ? entry.key : entry.value);
    }
  }
  interpreter.charge(dict.size / 8);
  static constexpr std::string_view kNames[] = {"keys", "values", "items"};
  return Value::view(view, kNames[static_cast<size_t>(kPart)]);
}

const Value& require_key(Args arguments, std::string_view method) {
  const Value& key = arguments.require(0, "key", method);
  if (!hashable(key)) {
    fail("unhashable type: '" + std::string(type_name(key)) + "'");
  }
  return key;
}

Value dict_get(Interpreter&, Value self, Args arguments) {
  if (const Value* found = self.as_dict().find(require_key(arguments, "get"))) {
    return *found;
  }
  const Value* otherwise = arguments.get(1, "default");
  return otherwise == nullptr ? Value::none() : *otherwise;
}

Value dict_pop(Interpreter& interpreter, Value self, Args arguments) {
  const Value& key = require_key(arguments, "pop");
  const Value* found = self.as_dict().find(key);
  if (found == nullptr) {
    const Value* otherwise = arguments.get(1, "default");
    if (otherwise == nullptr) {
      fail("pop: the key is not in the mapping");
    }
    return *otherwise;
  }
  const Value value = *found;
  interpreter.charge(self.as_dict().size / 8);
  self.as_dict().erase(interpreter.arena(), key);
  return value;
}

Value dict_setdefault(Interpreter& interpreter, Value self, Args arguments) {
  const Value key = require_key(arguments, "setdefault");
  if (const Value* found = self.as_dict().find(key)) {
    return *found;
  }
  const Value* otherwise = arguments.get(1, "default");
  const Value value = otherwise == nullptr ? Value::none() : *otherwise;
  self.as_dict().set(interpreter.arena(), key, value);
  return value;
}

Value dict_update(Interpreter& interpreter, Value self, Args arguments) {
  DictData& dict = self.as_dict();
  if (!arguments.positional.empty()) {
    const Value& other = arguments.positional[0];
    if (!other.is_dict()) {
      fail_operand("update needs a mapping, not", other);
    }
    const DictData& source = other.as_dict();
    interpreter.charge(source.size);
    for (uint32_t i = 0; i < source.size; ++i) {
      dict.set(interpreter.arena(), source.entries[i].key, source.entries[i].value);
    }
  }
  for (size_t i = 0; i < arguments.named.size(); ++i) {
    dict.set(interpreter.arena(), Value::string(arguments.names[i]), arguments.named[i]);
  }
  return Value::none();
}

Value dict_copy(Interpreter& interpreter, Value self, Args) {
  auto* copy = DictData::make(interpreter.arena(), self.as_dict().size);
  for (const auto& entry : self.as_dict().items()) {
    copy->set(interpreter.arena(), entry.key, entry.value);
  }
  interpreter.charge(copy->size / 4);
  return Value::dict(copy);
}

Value dict_clear(Interpreter&, Value self, Args) {
  self.as_dict() = DictData{};
  return Value::none();
}

constexpr Method kListMethods[] = {
    {"append", list_append, "object /"},
    {"extend", list_extend, "iterable /"},
    {"insert", list_insert, "index object /"},
    {"pop", list_pop, "index= /"},
    {"clear", list_clear},
    {"reverse", list_reverse},
    {"copy", list_copy},
    {"index", list_index, "value start= stop= /"},
    {"remove", list_remove, "value /"},
    {"count", list_count, "value /"},
    {"sort", list_sort, "* key= reverse="},
};

constexpr Method kDictMethods[] = {
    {"items", dict_view<Part::kItems>},
    {"keys", dict_view<Part::kKeys>},
    {"values", dict_view<Part::kValues>},
    {"get", dict_get, "key default= /"},
    {"pop", dict_pop, "key default= /"},
    {"setdefault", dict_setdefault, "key default= /"},
    {"update", dict_update, "other= / **kwargs"},
    {"copy", dict_copy},
    {"clear", dict_clear},
};

}  // namespace

std::span<const Method> list_methods() {
  return kListMethods;
}
std::span<const Method> dict_methods() {
  return kDictMethods;
}

}  // namespace stator::chat_template::detail
