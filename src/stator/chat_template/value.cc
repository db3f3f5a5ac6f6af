// SPDX-License-Identifier: Apache-2.0
#include "stator/chat_template/value.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "stator/chat_template/detail/failure.h"
#include "stator/chat_template/detail/format.h"
#include "stator/chat_template/detail/meter.h"
#include "stator/chat_template/detail/object.h"
#include "stator/chat_template/detail/operators.h"
#include "stator/core/keyed_hash.h"

namespace stator::chat_template {
namespace {

constexpr int kDepthMax = 200;
// Values can share parts, so comparing two small graphs may visit exponentially many pairs.
constexpr uint64_t kPairsMax = 2'000'000;

bool is_number(const Value& value) {
  return value.kind() >= Kind::kBool && value.kind() <= Kind::kDouble;
}

bool numbers_equal(const Value& left, const Value& right) {
  if (left.kind() == Kind::kBigInt || right.kind() == Kind::kBigInt) {
    const Value& other = left.kind() == Kind::kBigInt ? right : left;
    if (other.kind() != Kind::kDouble) {  // a shorter integer has the other kind
      return left.kind() == right.kind() && left.text() == right.text();
    }
    return detail::as_number(left) == detail::as_number(right);
  }
  if (left.kind() != Kind::kDouble && right.kind() != Kind::kDouble) {
    return left.as_int() == right.as_int();
  }
  const auto real = [](const Value& value) {
    return value.kind() == Kind::kDouble ? value.as_double() : static_cast<double>(value.as_int());
  };
  return real(left) == real(right);
}

class Comparison {
 public:
  bool equal(const Value& left, const Value& right, int depth);

 private:
  bool equal_lists(const ListData& left, const ListData& right, int depth);
  bool equal_dicts(const DictData& left, const DictData& right, int depth);

  uint64_t pairs_ = 0;
};

bool Comparison::equal_lists(const ListData& left, const ListData& right, int depth) {
  if (&left == &right) {
    return true;
  }
  if (left.size != right.size) {
    return false;
  }
  for (uint32_t i = 0; i < left.size; ++i) {
    if (!equal(left.items[i], right.items[i], depth + 1)) {
      return false;
    }
  }
  return true;
}

bool Comparison::equal_dicts(const DictData& left, const DictData& right, int depth) {
  if (&left == &right) {
    return true;
  }
  if (left.size != right.size) {
    return false;
  }
  return std::ranges::all_of(left.items(), [&](const DictData::Entry& entry) {
    const Value* other = right.find(entry.key);
    return other != nullptr && equal(entry.value, *other, depth + 1);
  });
}

/// Ranges are equal when their elements are; other objects are equal only to themselves.
bool equal_objects(const Object& left, const Object& right) {
  if (left.type != Object::Type::kRange || right.type != Object::Type::kRange) {
    return &left == &right;
  }
  const auto& a = static_cast<const detail::RangeObject&>(left);
  const auto& b = static_cast<const detail::RangeObject&>(right);
  return a.size == b.size &&
         (a.size == 0 || (a.start == b.start && (a.size == 1 || a.step == b.step)));
}

bool Comparison::equal(const Value& left, const Value& right, int depth) {
  if (++pairs_ > kPairsMax || depth > kDepthMax) {
    detail::fail("comparing values that are nested too deeply");
  }
  if (is_number(left) && is_number(right)) {
    return numbers_equal(left, right);
  }
  if (left.kind() != right.kind()) {
    return false;
  }
  switch (left.kind()) {
    case Kind::kString:
      return left.text() == right.text();
    case Kind::kList:
    case Kind::kTuple:
      return equal_lists(left.as_list(), right.as_list(), depth);
    case Kind::kView:
    case Kind::kGenerator:
      return &left.as_list() == &right.as_list();
    case Kind::kDict:
      return equal_dicts(left.as_dict(), right.as_dict(), depth);
    case Kind::kObject:
      return equal_objects(left.as_object(), right.as_object());
    default:
      return true;  // undefined, none
  }
}

uint64_t hash_word(uint64_t value) {
  return keyed_hash({reinterpret_cast<const char*>(&value), sizeof(value)});
}

/// What equals() tells two ranges apart by.
uint64_t hash_range(const detail::RangeObject& range) {
  const uint64_t start = range.size > 0 ? static_cast<uint64_t>(range.start) : 0;
  const uint64_t step = range.size > 1 ? static_cast<uint64_t>(range.step) : 0;
  return hash_word(static_cast<uint64_t>(range.size) ^ hash_word(start ^ hash_word(step)));
}

uint32_t tag_of(uint64_t hash) {
  return static_cast<uint32_t>(hash >> 32U);
}

}  // namespace

bool Value::truthy_other() const {
  switch (kind_) {
    case Kind::kMissing:
    case Kind::kUndefined:
    case Kind::kNone:
      return false;
    case Kind::kBool:
    case Kind::kInt:
      return payload_.integer != 0;
    case Kind::kDouble:
      return payload_.real != 0.0;
    case Kind::kString:
      return length_ != 0;
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kView:
      return payload_.list->size != 0;
    case Kind::kDict:
      return payload_.dict->size != 0;
    case Kind::kObject:
      return payload_.object->type != Object::Type::kRange ||
             static_cast<const detail::RangeObject*>(payload_.object)->size != 0;
    case Kind::kBigInt:
    case Kind::kGenerator:
      return true;
  }
  return false;
}

const Value* Value::find(std::string_view key) const {
  return kind_ == Kind::kDict ? payload_.dict->find(key) : nullptr;
}

std::string Value::to_python_json() const {
  std::string text;
  detail::JsonStyle style;
  try {
    detail::write_json(*this, style, text);
  } catch (const detail::Failure&) {
    text.clear();  // only values that from_json cannot make
  }
  return text;
}

bool equals(const Value& left, const Value& right) {
  if (left.is_string() && right.is_string()) {
    return same_text(left.text(), right.text());
  }
  return Comparison().equal(left, right, 0);
}

bool hashable(const Value& value) {
  switch (value.kind()) {
    case Kind::kList:
    case Kind::kDict:
    case Kind::kView:
      return false;
    case Kind::kTuple:
      // Flat tuples only: nothing a template needs, and no exponential walks.
      return std::ranges::all_of(value.as_list().values(), [](const Value& item) {
        return !item.has_list() && hashable(item);
      });
    default:
      return true;
  }
}

uint64_t hash_of(const Value& value) {
  switch (value.kind()) {
    case Kind::kString:
      return keyed_hash(value.text());
    case Kind::kBool:
    case Kind::kInt:
      return hash_word(static_cast<uint64_t>(value.as_int()));
    case Kind::kDouble: {
      const double real = value.as_double();
      if (real == std::floor(real) && std::fabs(real) < 9e18) {
        return hash_word(static_cast<uint64_t>(static_cast<int64_t>(real)));
      }
      return hash_word(std::bit_cast<uint64_t>(real));
    }
    case Kind::kBigInt:
      return keyed_hash(value.text());
    case Kind::kTuple: {
      uint64_t hash = value.as_list().size;
      for (const Value& item : value.as_list().values()) {
        hash = hash_word(hash + hash_of(item));
      }
      return hash;
    }
    case Kind::kObject:
      if (value.as_object().type == Object::Type::kRange) {
        return hash_range(static_cast<const detail::RangeObject&>(value.as_object()));
      }
      return hash_word(reinterpret_cast<uintptr_t>(&value.as_object()));
    default:
      return static_cast<uint64_t>(value.kind());
  }
}

ListData* ListData::make(Arena& arena, size_t capacity) {
  auto* list = arena.make<ListData>();
  if (capacity > UINT32_MAX) {
    detail::fail("a list of more than 4 billion elements", Code::kTooLarge);
  }
  list->items = capacity == 0 ? nullptr : arena.array<Value>(capacity);
  list->capacity = static_cast<uint32_t>(capacity);
  return list;
}

void ListData::push(Arena& arena, Value value) {
  if (size == capacity) [[unlikely]] {
    const uint32_t grown = capacity < 4 ? 4 : capacity * 2;
    auto* target = arena.array<Value>(grown);
    std::copy_n(items, size, target);
    items = target;
    capacity = grown;
  }
  items[size++] = value;
}

void ListData::insert(Arena& arena, size_t index, Value value) {
  push(arena, value);
  std::rotate(items + std::min<size_t>(index, size - 1), items + size - 1, items + size);
}

void ListData::erase(size_t index) {
  std::copy(items + index + 1, items + size, items + index);
  --size;
}

DictData* DictData::make(Arena& arena, size_t capacity) {
  auto* dict = arena.make<DictData>();
  if (capacity > 0) {
    dict->entries = arena.array<Entry>(capacity);
    dict->capacity = static_cast<uint32_t>(capacity);
  }
  return dict;
}

void DictData::charge(uint64_t steps) const {
  if (meter != nullptr) {
    meter->charge(steps);
  }
}

uint32_t DictData::find_entry(Value key, uint64_t hash) const {
  const uint32_t tag = tag_of(hash);
  uint64_t vain = 0;
  uint64_t slot = hash & index_mask;
  while (index[slot].entry != 0 &&
         (index[slot].tag != tag || !equals(entries[index[slot].entry - 1].key, key))) {
    slot = (slot + 1) & index_mask;
    ++vain;
  }
  if (vain > 0) {
    charge(vain);
  }
  return index[slot].entry;
}

/// The entry is new.
void DictData::place(uint64_t hash, uint32_t entry) {
  uint64_t vain = 0;
  uint64_t slot = hash & index_mask;
  while (index[slot].entry != 0) {
    slot = (slot + 1) & index_mask;
    ++vain;
  }
  index[slot] = {.entry = entry, .tag = tag_of(hash)};
  if (vain > 0) {
    charge(vain);
  }
}

Value* DictData::find(Value key) const {
  if (key.is_string() && index == nullptr) {
    return find(key.text());
  }
  if (!hashable(key)) {
    return nullptr;
  }
  if (index != nullptr) {
    const uint32_t found = find_entry(key, hash_of(key));
    return found == 0 ? nullptr : &entries[found - 1].value;
  }
  for (uint32_t i = 0; i < size; ++i) {
    if (equals(entries[i].key, key)) {
      return &entries[i].value;
    }
  }
  return nullptr;
}

Value* DictData::find_indexed(std::string_view key) const {
  const uint32_t found = find_entry(Value::string(key), hash_of(Value::string(key)));
  return found == 0 ? nullptr : &entries[found - 1].value;
}

void DictData::set_indexed(Arena& arena, Value key, Value value) {
  const uint64_t hash = hash_of(key);
  if (const uint32_t found = find_entry(key, hash); found != 0) {
    entries[found - 1].value = value;
  } else {
    append_indexed(arena, key, value, hash);
  }
}

void DictData::set(Arena& arena, Value key, Value value) {
  if (index != nullptr && hashable(key)) {
    set_indexed(arena, key, value);
  } else if (Value* present = find(key)) {
    *present = value;
  } else {
    append(arena, key, value);
  }
}

void DictData::append(Arena& arena, Value key, Value value) {
  if (index != nullptr) {
    append_indexed(arena, key, value, hash_of(key));
    return;
  }
  append_entry(arena, key, value);
  reindex(arena);
}

void DictData::append_indexed(Arena& arena, Value key, Value value, uint64_t hash) {
  append_entry(arena, key, value);
  if (size * 2 > index_mask) {
    reindex(arena);
  } else {
    place(hash, size);
  }
}

void DictData::append_entry(Arena& arena, Value key, Value value) {
  if (size == capacity) [[unlikely]] {
    const uint32_t grown = capacity < 4 ? 4 : capacity * 2;
    auto* target = arena.array<Entry>(grown);
    std::copy_n(entries, size, target);
    entries = target;
    capacity = grown;
  }
  entries[size++] = Entry{key, value};
}

void DictData::reindex(Arena& arena) {
  if (size <= kLinearMax) {
    index = nullptr;
    return;
  }
  const uint32_t slots = std::bit_ceil(size * 4);
  if (index == nullptr || slots > index_mask + 1) {
    index = arena.array<Slot>(slots);
    index_mask = slots - 1;
    meter = arena.meter();
  }
  std::fill_n(index, size_t{index_mask} + 1, Slot{});
  for (uint32_t i = 0; i < size; ++i) {
    place(hash_of(entries[i].key), i + 1);
  }
}

bool DictData::erase(Arena& arena, Value key) {
  Value* present = find(key);
  if (present == nullptr) {
    return false;
  }
  auto* entry = reinterpret_cast<Entry*>(reinterpret_cast<char*>(present) - offsetof(Entry, value));
  std::copy(entry + 1, entries + size, entry);
  --size;
  reindex(arena);
  return true;
}

}  // namespace stator::chat_template
