// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>
#include <charconv>
#include <span>
#include <vector>

#include "stator/chat_template/detail/format.h"
#include "stator/chat_template/detail/interpreter.h"
#include "stator/chat_template/detail/library.h"
#include "stator/chat_template/detail/operators.h"
#include "stator/chat_template/detail/text.h"

namespace stator::chat_template::detail {
namespace {

using Args = const CallArguments&;

/// A path such as "function.name" or "0", followed with Jinja's getitem; `otherwise`, when neither
/// null nor none, stands in for whatever is missing on the way.
Value follow_path(Interpreter& interpreter, Value value, const Value& path,
                  const Value* otherwise = nullptr) {
  const auto filled = [otherwise](const Value& found) {
    const bool fills = found.is_undefined() && otherwise != nullptr && !otherwise->is_none();
    return fills ? *otherwise : found;
  };
  if (!path.is_string()) {
    return filled(interpreter.get_item(value, path));
  }
  std::string_view rest = path.text();
  while (true) {
    const size_t dot = rest.find('.');
    const std::string_view part = rest.substr(0, dot);
    int64_t index = 0;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), index);
    const bool is_index = error == std::errc{} && end == part.data() + part.size();
    value =
        filled(interpreter.get_item(value, is_index ? Value::integer(index) : Value::string(part)));
    if (dot == std::string_view::npos) {
      return value;
    }
    rest.remove_prefix(dot + 1);
  }
}

Value ignore_case(Interpreter& interpreter, const Value& value) {
  if (!value.is_string()) {
    return value;
  }
  charge_text(interpreter, value.text().size());
  return interpreter.make_string(to_lower(value.text()));
}

/// What an element is sorted, grouped or compared by.
struct KeyRule {
  const Value* attribute;  // null: the element itself
  const Value* otherwise;  // for elements without the attribute
  bool case_sensitive;

  Value key_of(Interpreter& interpreter, const Value& item) const {
    Value key = item;
    if (attribute != nullptr && !attribute->is_none()) {
      key = follow_path(interpreter, item, *attribute, otherwise);
    }
    return case_sensitive ? key : ignore_case(interpreter, key);
  }
};

struct Keyed {
  Value key;
  Value item;
};

std::vector<Keyed> with_keys(Interpreter& interpreter, const Value& input, const KeyRule& rule) {
  std::vector<Keyed> keyed;
  const ListData& list = *interpreter.iterate(input);
  interpreter.charge(list.size);
  for (const Value& item : list.values()) {
    keyed.push_back({rule.key_of(interpreter, item), item});
    interpreter.charge(steps_of(keyed.back().key));
  }
  return keyed;
}

/// sort compares keys in lists, where equal ones are not asked for their order, which nulls,
/// mappings and undefined values do not have; groupby and dictsort do ask.
enum class EqualKeys : uint8_t { kCompare, kSkip };

/// Stable merge sort: `less` may throw, and NaN keys must not lead a library sort out of bounds.
void sort_keyed(Interpreter& interpreter, std::vector<Keyed>& keyed, bool reverse,
                EqualKeys equal_keys = EqualKeys::kCompare) {
  uint64_t steps = 4 * keyed.size();
  for (const Keyed& entry : keyed) {
    steps += steps_of(entry.key) * static_cast<uint64_t>(std::bit_width(keyed.size()));
  }
  interpreter.charge(steps);
  const auto precedes = [reverse, equal_keys](const Keyed& left, const Keyed& right) {
    if (equal_keys == EqualKeys::kSkip && equals(left.key, right.key)) {
      return false;
    }
    return reverse ? less(right.key, left.key) : less(left.key, right.key);
  };
  std::vector<Keyed> merged(keyed.size());
  for (size_t run = 1; run < keyed.size(); run *= 2) {
    for (size_t start = 0; start < keyed.size(); start += 2 * run) {
      const size_t middle = std::min(start + run, keyed.size());
      const size_t end = std::min(start + 2 * run, keyed.size());
      size_t left = start;
      size_t right = middle;
      for (size_t at = start; at < end; ++at) {
        const bool take_right =
            left == middle || (right < end && precedes(keyed[right], keyed[left]));
        merged[at] = keyed[take_right ? right++ : left++];
      }
    }
    keyed.swap(merged);
  }
}

/// sort by several attributes "a,b" compares tuples.
Value multi_key(Interpreter& interpreter, const Value& item, std::string_view attributes,
                bool case_sensitive) {
  auto* keys = ListData::make(interpreter.arena(), 2);
  while (true) {
    const size_t comma = attributes.find(',');
    const Value path = Value::string(attributes.substr(0, comma));
    keys->push(interpreter.arena(),
               KeyRule{&path, nullptr, case_sensitive}.key_of(interpreter, item));
    if (comma == std::string_view::npos) {
      return Value::sequence(Kind::kTuple, keys);
    }
    attributes.remove_prefix(comma + 1);
  }
}

Value to_list(Interpreter& interpreter, const std::vector<Keyed>& keyed) {
  auto* list = ListData::make(interpreter.arena(), keyed.size());
  for (const Keyed& entry : keyed) {
    list->push(interpreter.arena(), entry.item);
  }
  return Value::list(list);
}

Value filter_sort(Interpreter& interpreter, Value input, Args arguments) {
  const bool reverse = arguments.get_bool(0, "reverse", false);
  const bool case_sensitive = arguments.get_bool(1, "case_sensitive", false);
  const Value* attribute = arguments.get(2, "attribute");
  std::vector<Keyed> keyed;
  if (attribute != nullptr && attribute->is_string() &&
      attribute->text().find(',') != std::string_view::npos) {
    for (const Value& item : interpreter.iterate(input)->values()) {
      keyed.push_back({multi_key(interpreter, item, attribute->text(), case_sensitive), item});
    }
  } else {
    keyed = with_keys(interpreter, input, {attribute, nullptr, case_sensitive});
  }
  sort_keyed(interpreter, keyed, reverse, EqualKeys::kSkip);
  return to_list(interpreter, keyed);
}

Value filter_unique(Interpreter& interpreter, Value input, Args arguments) {
  const KeyRule rule{arguments.get(1, "attribute"), nullptr,
                     arguments.get_bool(0, "case_sensitive", false)};
  auto* seen = DictData::make(interpreter.arena(), 0);
  auto* kept = ListData::make(interpreter.arena(), 0);
  for (const Keyed& entry : with_keys(interpreter, input, rule)) {
    if (!hashable(entry.key)) {
      fail("unhashable type: '" + std::string(type_name(entry.key)) + "'");
    }
    if (seen->find(entry.key) == nullptr) {
      seen->set(interpreter.arena(), entry.key, Value::none());
      kept->push(interpreter.arena(), entry.item);
    }
  }
  return Value::sequence(Kind::kGenerator, kept);
}

Value filter_groupby(Interpreter& interpreter, Value input, Args arguments) {
  const bool case_sensitive = arguments.get_bool(2, "case_sensitive", false);
  const KeyRule rule{&arguments.require(0, "attribute", "groupby"), arguments.get(1, "default"),
                     case_sensitive};
  const KeyRule exact{rule.attribute, rule.otherwise, true};
  std::vector<Keyed> keyed = with_keys(interpreter, input, rule);
  sort_keyed(interpreter, keyed, false);
  Arena& arena = interpreter.arena();
  auto* groups = ListData::make(arena, 0);
  ListData* members = nullptr;
  for (size_t i = 0; i < keyed.size(); ++i) {
    if (i == 0 || !equals(keyed[i].key, keyed[i - 1].key)) {
      members = ListData::make(arena, 0);
      auto* group = ListData::make(arena, 2);
      group->push(arena, exact.key_of(interpreter, keyed[i].item));
      group->push(arena, Value::list(members));
      groups->push(arena, Value::group(group));
    }
    members->push(arena, keyed[i].item);
  }
  return Value::list(groups);
}

Value extreme(Interpreter& interpreter, const Value& input, Args arguments, bool largest) {
  const KeyRule rule{arguments.get(1, "attribute"), nullptr,
                     arguments.get_bool(0, "case_sensitive", false)};
  const std::vector<Keyed> keyed = with_keys(interpreter, input, rule);
  if (keyed.empty()) {
    return Value::undefined("an item of an empty sequence");
  }
  const Keyed* best = &keyed.front();
  for (const Keyed& entry : std::span(keyed).subspan(1)) {
    if (largest ? less(best->key, entry.key) : less(entry.key, best->key)) {
      best = &entry;
    }
  }
  return best->item;
}

Value filter_min(Interpreter& interpreter, Value input, Args arguments) {
  return extreme(interpreter, input, arguments, false);
}
Value filter_max(Interpreter& interpreter, Value input, Args arguments) {
  return extreme(interpreter, input, arguments, true);
}

Value filter_dictsort(Interpreter& interpreter, Value input, Args arguments) {
  if (!input.is_dict()) {
    fail_operand("dictsort needs a mapping, not", input);
  }
  const bool case_sensitive = arguments.get_bool(0, "case_sensitive", false);
  const std::string_view by = arguments.get_text(1, "by", "key");
  if (by != "key" && by != "value") {
    fail("You can only sort by either \"key\" or \"value\"");
  }
  Arena& arena = interpreter.arena();
  std::vector<Keyed> keyed;
  for (const auto& entry : input.as_dict().items()) {
    auto* pair = ListData::make(arena, 2);
    pair->push(arena, entry.key);
    pair->push(arena, entry.value);
    const Value& key = by == "key" ? entry.key : entry.value;
    keyed.push_back({case_sensitive ? key : ignore_case(interpreter, key),
                     Value::sequence(Kind::kTuple, pair)});
  }
  sort_keyed(interpreter, keyed, arguments.get_bool(2, "reverse", false));
  return to_list(interpreter, keyed);
}

CallArguments drop_first(Args arguments, size_t count) {
  CallArguments rest = arguments;
  rest.positional = rest.positional.subspan(std::min(count, rest.positional.size()));
  return rest;
}

Value filter_map(Interpreter& interpreter, Value input, Args arguments) {
  Arena& arena = interpreter.arena();
  auto* mapped = ListData::make(arena, 0);
  if (!input.truthy()) {  // also none, as in Jinja
    return Value::sequence(Kind::kGenerator, mapped);
  }
  const ListData& list = *interpreter.iterate(input);
  interpreter.charge(list.size);
  if (arguments.positional.empty()) {
    static constexpr Signature kByAttribute = "* attribute default=";
    kByAttribute.check("map", arguments);
    const Value& attribute = arguments.require(0, "attribute", "map");
    const Value* otherwise = arguments.get(1, "default");
    for (const Value& item : list.values()) {
      mapped->push(arena, follow_path(interpreter, item, attribute, otherwise));
    }
    return Value::sequence(Kind::kGenerator, mapped);
  }
  const std::string_view name = interpreter.text_of(arguments.positional[0]);
  const Filter* filter = find_filter(name);
  if (filter == nullptr) {
    fail("No filter named '" + std::string(name) + "'.");
  }
  const CallArguments rest = drop_first(arguments, 1);
  for (const Value& item : list.values()) {
    mapped->push(arena, (*filter)(interpreter, item, rest));
  }
  return Value::sequence(Kind::kGenerator, mapped);
}

/// select, reject (`by_attribute` false) and selectattr, rejectattr.
Value pick(Interpreter& interpreter, const Value& input, Args arguments, bool by_attribute,
           bool wanted) {
  auto* kept = ListData::make(interpreter.arena(), 0);
  if (!input.truthy()) {  // also none, as in Jinja
    return Value::sequence(Kind::kGenerator, kept);
  }
  const size_t test_at = by_attribute ? 1 : 0;
  if (arguments.positional.size() < test_at) {
    fail("Missing parameter for attribute name");
  }
  const Value* path = by_attribute ? &arguments.positional[0] : nullptr;
  const Test* test = nullptr;
  if (arguments.positional.size() > test_at) {
    const std::string_view name = interpreter.text_of(arguments.positional[test_at]);
    test = find_test(name);
    if (test == nullptr) {
      fail("No test named '" + std::string(name) + "'.");
    }
  }
  const CallArguments rest = drop_first(arguments, test_at + 1);
  const ListData& list = *interpreter.iterate(input);
  interpreter.charge(list.size);
  for (const Value& item : list.values()) {
    const Value subject = path == nullptr ? item : follow_path(interpreter, item, *path);
    const bool holds = test == nullptr ? subject.truthy() : (*test)(interpreter, subject, rest);
    if (holds == wanted) {
      kept->push(interpreter.arena(), item);
    }
  }
  return Value::sequence(Kind::kGenerator, kept);
}

Value filter_select(Interpreter& interpreter, Value input, Args arguments) {
  return pick(interpreter, input, arguments, false, true);
}
Value filter_reject(Interpreter& interpreter, Value input, Args arguments) {
  return pick(interpreter, input, arguments, false, false);
}
Value filter_selectattr(Interpreter& interpreter, Value input, Args arguments) {
  return pick(interpreter, input, arguments, true, true);
}
Value filter_rejectattr(Interpreter& interpreter, Value input, Args arguments) {
  return pick(interpreter, input, arguments, true, false);
}

Value filter_list(Interpreter& interpreter, Value input, Args) {
  const ListData& items = *interpreter.iterate(input);
  auto* list = ListData::make(interpreter.arena(), items.size);
  for (const Value& item : items.values()) {
    list->push(interpreter.arena(), item);
  }
  interpreter.charge(items.size / 16);
  return Value::list(list);
}

Value filter_items(Interpreter& interpreter, Value input, Args) {
  auto* pairs = ListData::make(interpreter.arena(), 0);
  if (input.is_undefined()) {
    return Value::sequence(Kind::kGenerator, pairs);
  }
  if (!input.is_dict()) {
    fail("Can only get item pairs from a mapping.");
  }
  for (const auto& entry : input.as_dict().items()) {
    auto* pair = ListData::make(interpreter.arena(), 2);
    pair->push(interpreter.arena(), entry.key);
    pair->push(interpreter.arena(), entry.value);
    pairs->push(interpreter.arena(), Value::sequence(Kind::kTuple, pair));
  }
  interpreter.charge(pairs->size / 8);
  return Value::sequence(Kind::kGenerator, pairs);
}

Value filter_first(Interpreter& interpreter, Value input, Args) {
  const bool is_generator = input.kind() == Kind::kGenerator && !input.is_failed_generator();
  if (is_generator && input.as_list().size > 1) {  // the others stay to be taken
    ListData& rest = input.as_list();
    const Value first = rest.items[0];
    rest.erase(0);
    interpreter.charge(rest.size / 16);
    return first;
  }
  const ListData& items = *interpreter.iterate(input);
  return items.size == 0 ? Value::undefined("the first item of an empty sequence") : items.items[0];
}

Value filter_last(Interpreter& interpreter, Value input, Args) {
  if (input.kind() == Kind::kGenerator) {
    fail("'generator' object is not reversible");
  }
  const ListData& items = *interpreter.iterate(input);
  return items.size == 0 ? Value::undefined("the last item of an empty sequence")
                         : items.items[items.size - 1];
}

Value filter_length(Interpreter& interpreter, Value input, Args) {
  switch (input.kind()) {
    case Kind::kUndefined:
      return Value::integer(0);
    case Kind::kString:
      interpreter.charge(input.text().size() / 64);
      return Value::integer(static_cast<int64_t>(count_code_points(input.text())));
    case Kind::kDict:
      return Value::integer(input.as_dict().size);
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kView:
      return Value::integer(input.as_list().size);
    case Kind::kObject:
      if (input.as_object().type == Object::Type::kRange) {
        return Value::integer(static_cast<const RangeObject&>(input.as_object()).size);
      }
      if (input.as_object().type == Object::Type::kLoop) {
        return Value::integer(static_cast<const LoopObject&>(input.as_object()).items->size);
      }
      [[fallthrough]];
    default:
      fail("object of type '" + std::string(type_name(input)) + "' has no len()");
  }
}

Value filter_reverse(Interpreter& interpreter, Value input, Args) {
  if (input.kind() == Kind::kGenerator) {
    fail("argument must be iterable");
  }
  ListData& items = *interpreter.iterate(input);
  auto* reversed = ListData::make(interpreter.arena(), items.size);
  for (uint32_t i = items.size; i > 0; --i) {
    reversed->push(interpreter.arena(), items.items[i - 1]);
  }
  interpreter.charge(items.size / 16);
  if (!input.is_string()) {
    return Value::sequence(Kind::kGenerator, reversed);
  }
  std::string text;
  for (const Value& character : reversed->values()) {
    text += character.text();
  }
  return interpreter.make_string(text);
}

Value filter_sum(Interpreter& interpreter, Value input, Args arguments) {
  const Value* attribute = arguments.get(0, "attribute");
  const Value* start = arguments.get(1, "start");
  Value total = start == nullptr ? Value::integer(0) : *start;
  const ListData& items = *interpreter.iterate(input);
  interpreter.charge(items.size / 4);
  for (const Value& item : items.values()) {
    const bool whole = attribute == nullptr || attribute->is_none();
    total = add(interpreter, total, whole ? item : follow_path(interpreter, item, *attribute));
  }
  return total;
}

Value filter_batch(Interpreter& interpreter, Value input, Args arguments) {
  const int64_t width = arguments.get_int(0, "linecount", 0);
  if (width <= 0 || width > 1'000'000) {
    fail("batch needs a size between 1 and 1000000");
  }
  const Value* fill = arguments.get(1, "fill_with");
  Arena& arena = interpreter.arena();
  auto* batches = ListData::make(arena, 0);
  ListData* batch = nullptr;
  for (const Value& item : interpreter.iterate(input)->values()) {
    if (batch == nullptr || batch->size == width) {
      batch = ListData::make(arena, 0);
      batches->push(arena, Value::list(batch));
    }
    batch->push(arena, item);
  }
  while (batch != nullptr && fill != nullptr && !fill->is_none() && batch->size < width) {
    batch->push(arena, *fill);
  }
  return Value::sequence(Kind::kGenerator, batches);
}

Value filter_slice(Interpreter& interpreter, Value input, Args arguments) {
  const int64_t slices = arguments.get_int(0, "slices", 0);
  if (slices <= 0 || slices > 100'000) {
    fail("slice needs a number between 1 and 100000");
  }
  const Value* fill = arguments.get(1, "fill_with");
  Arena& arena = interpreter.arena();
  const ListData& items = *interpreter.iterate(input);
  const int64_t each = items.size / slices;
  const int64_t longer = items.size % slices;
  auto* parts = ListData::make(arena, static_cast<size_t>(slices));
  uint32_t at = 0;
  for (int64_t i = 0; i < slices; ++i) {
    const int64_t count = each + (i < longer ? 1 : 0);
    auto* part = ListData::make(arena, static_cast<size_t>(count) + 1);
    for (int64_t taken = 0; taken < count; ++taken) {
      part->push(arena, items.items[at++]);
    }
    if (fill != nullptr && !fill->is_none() && i >= longer) {
      part->push(arena, *fill);
    }
    parts->push(arena, Value::list(part));
  }
  interpreter.charge(static_cast<uint64_t>(slices));
  return Value::sequence(Kind::kGenerator, parts);
}

/// Jinja's generator filters do nothing before their elements are taken: until then, neither does
/// their failure.
template <auto kFilter>
Value lazily(Interpreter& interpreter, Value input, Args arguments) {
  try {
    return kFilter(interpreter, input, arguments);
  } catch (const Failure& failure) {
    if (failure.raised || failure.code != Code::kInvalidArgument) {
      throw;
    }
    auto* reason = ListData::make(interpreter.arena(), 1);
    reason->push(interpreter.arena(), interpreter.make_string(failure.message));
    return Value::failed_generator(reason);
  }
}

constexpr Filter kFilters[] = {
    {"batch", lazily<filter_batch>, "linecount fill_with="},
    {"count", filter_length},
    {"dictsort", filter_dictsort, "case_sensitive= by= reverse="},
    {"first", filter_first},
    {"groupby", filter_groupby, "attribute default= case_sensitive="},
    {"items", lazily<filter_items>},
    {"last", filter_last},
    {"length", filter_length},
    {"list", filter_list},
    {"map", lazily<filter_map>, "*args **kwargs"},
    {"max", filter_max, "case_sensitive= attribute="},
    {"min", filter_min, "case_sensitive= attribute="},
    {"reject", lazily<filter_reject>, "*args **kwargs"},
    {"rejectattr", lazily<filter_rejectattr>, "*args **kwargs"},
    {"reverse", filter_reverse},
    {"select", lazily<filter_select>, "*args **kwargs"},
    {"selectattr", lazily<filter_selectattr>, "*args **kwargs"},
    {"slice", lazily<filter_slice>, "slices fill_with="},
    {"sort", filter_sort, "reverse= case_sensitive= attribute="},
    {"sum", filter_sum, "attribute= start="},
    {"unique", lazily<filter_unique>, "case_sensitive= attribute="},
};

}  // namespace

std::span<const Filter> sequence_filters() {
  return kFilters;
}

}  // namespace stator::chat_template::detail
