// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

#include "stator/chat_template/arena.h"
#include "stator/core/result.h"

namespace stator::chat_template {

struct ListData;
struct DictData;
struct Object;

/// left == right, without a library call for the short texts that keys and roles are.
inline bool same_text(std::string_view left, std::string_view right) {
  const size_t size = left.size();
  if (size != right.size()) {
    return false;
  }
  if (size > 16) {
    return left.data() == right.data() || std::memcmp(left.data(), right.data(), size) == 0;
  }
  const auto differ = [&]<typename Word>(Word, size_t at) {
    Word a;
    Word b;
    std::memcpy(&a, left.data() + at, sizeof(Word));
    std::memcpy(&b, right.data() + at, sizeof(Word));
    return a ^ b;
  };
  // Two words that overlap in the middle cover any length between one and two of them.
  if (size >= 8) {
    return (differ(uint64_t{}, 0) | differ(uint64_t{}, size - 8)) == 0;
  }
  if (size >= 4) {
    return (differ(uint32_t{}, 0) | differ(uint32_t{}, size - 4)) == 0;
  }
  for (size_t i = 0; i < size; ++i) {
    if (left[i] != right[i]) {
      return false;
    }
  }
  return true;
}

enum class Kind : uint8_t {
  kMissing,    ///< "no such variable here": internal, never visible to a template
  kUndefined,  ///< what a template sees for a missing name or key; prints as nothing
  kNone,
  kBool,
  kInt,     ///< fits int64
  kBigInt,  ///< wider: the exact decimal spelling (BigInteger computes with it)
  kDouble,
  kString,  ///< UTF-8
  kList,
  kTuple,
  kView,       ///< dict.items(), .keys(), .values(): iterable, sized, not indexable
  kGenerator,  ///< what map, select … answer: iterable once, always true, no length
  kDict,       ///< insertion order
  kObject,     ///< namespace, loop, macro, bound method …: see detail/object.h
};

/// One value of a template's world: 16 bytes, trivially copyable, aliasing what it was made from.
/// Strings, lists and dicts point into an Arena or into the JSON text they were read from; both
/// must outlive the value. Lists and dicts are shared by reference, as in Python. Not thread-safe
/// while written; a render owns all values it makes.
///
///   Arena arena(1 << 20);
///   STATOR_TRY(Value messages, Value::from_json(body, arena));
///   std::string text = messages.to_python_json();
class Value {
 public:
  Value() : kind_(Kind::kNone) { payload_.integer = 0; }

  static Value missing() { return Value(Kind::kMissing); }
  static Value none() { return Value(Kind::kNone); }
  static Value boolean(bool value) {
    Value result(Kind::kBool);
    result.payload_.integer = value ? 1 : 0;
    return result;
  }
  static Value integer(int64_t value) {
    Value result(Kind::kInt);
    result.payload_.integer = value;
    return result;
  }
  static Value number(double value) {
    Value result(Kind::kDouble);
    result.payload_.real = value;
    return result;
  }
  /// `text` is referenced, not copied; at most 4 GiB.
  static Value string(std::string_view text) { return with_text(Kind::kString, text); }
  /// A string that `+` must not escape but whose other operand it must (Jinja's Markup).
  static Value markup(std::string_view text) {
    Value result = string(text);
    result.flag_ = 1;
    return result;
  }
  static Value big_integer(std::string_view digits) { return with_text(Kind::kBigInt, digits); }
  /// `name` appears in the error of whoever uses the value; `owner` is the kind that lacked it, or
  /// kMissing for a plain variable.
  static Value undefined(std::string_view name, Kind owner = Kind::kMissing) {
    Value result = with_text(Kind::kUndefined, name);
    result.flag_ = static_cast<uint8_t>(owner);
    return result;
  }
  static Value sequence(Kind kind, ListData* list) {
    Value result(kind);
    result.payload_.list = list;
    return result;
  }
  /// A generator that fails with the text in `reason` when something takes its elements.
  static Value failed_generator(ListData* reason) {
    Value result = sequence(Kind::kGenerator, reason);
    result.flag_ = 1;
    return result;
  }
  /// dict.items() and its like; `what` is "items", "keys" or "values", for printing.
  static Value view(ListData* list, std::string_view what) {
    Value result = sequence(Kind::kView, list);
    result.flag_ = static_cast<uint8_t>(what.front());
    return result;
  }
  std::string_view view_name() const {
    return flag_ == 'i' ? "dict_items" : flag_ == 'k' ? "dict_keys" : "dict_values";
  }
  /// A pair of groupby: a tuple whose elements are also .grouper and .list.
  static Value group(ListData* pair) {
    Value result = sequence(Kind::kTuple, pair);
    result.flag_ = 1;
    return result;
  }
  static Value list(ListData* list) { return sequence(Kind::kList, list); }
  static Value dict(DictData* dict) {
    Value result(Kind::kDict);
    result.payload_.dict = dict;
    return result;
  }
  static Value object(Object* object) {
    Value result(Kind::kObject);
    result.payload_.object = object;
    return result;
  }

  /// Reads JSON exactly: key order kept (a repeated key keeps its first place and last value),
  /// integers of any width kept, strings without escapes alias `json`. NaN, Infinity and -Infinity
  /// are numbers, as in Python; a lone surrogate escape becomes U+FFFD. Nesting deeper than 128,
  /// invalid UTF-8, trailing text: kInvalidArgument with the byte offset. Arena full: kTooLarge.
  static Result<Value> from_json(std::string_view json, Arena& arena);
  /// As Python's json.dumps(value, ensure_ascii=False). For trees made by from_json.
  std::string to_python_json() const;

  Kind kind() const { return kind_; }
  bool is_missing() const { return kind_ == Kind::kMissing; }
  bool is_undefined() const { return kind_ == Kind::kUndefined; }
  bool is_none() const { return kind_ == Kind::kNone; }
  bool is_bool() const { return kind_ == Kind::kBool; }
  bool is_int() const { return kind_ == Kind::kInt; }
  bool is_string() const { return kind_ == Kind::kString; }
  /// A string equal to `text`.
  bool is_text(std::string_view text) const {
    return length_ == text.size() && kind_ == Kind::kString &&
           same_text({payload_.text, length_}, text);
  }
  bool is_markup() const { return kind_ == Kind::kString && flag_ == 1; }
  bool is_failed_generator() const { return kind_ == Kind::kGenerator && flag_ == 1; }
  bool is_group() const { return kind_ == Kind::kTuple && flag_ == 1; }
  bool is_list() const { return kind_ == Kind::kList; }
  bool is_dict() const { return kind_ == Kind::kDict; }
  bool is_object() const { return kind_ == Kind::kObject; }
  /// list, tuple, view or generator: has a ListData.
  bool has_list() const { return kind_ >= Kind::kList && kind_ <= Kind::kGenerator; }

  /// Accessors require the kind they name.
  bool as_bool() const { return payload_.integer != 0; }
  int64_t as_int() const { return payload_.integer; }
  double as_double() const { return payload_.real; }
  /// kString, kBigInt, and the name of a kUndefined.
  std::string_view text() const { return {payload_.text, length_}; }
  Kind undefined_owner() const { return static_cast<Kind>(flag_); }
  ListData& as_list() const { return *payload_.list; }
  DictData& as_dict() const { return *payload_.dict; }
  Object& as_object() const { return *payload_.object; }

  /// Python's truth value.
  bool truthy() const {
    if (kind_ == Kind::kBool || kind_ == Kind::kInt) {
      return payload_.integer != 0;
    }
    return kind_ == Kind::kString ? length_ != 0 : truthy_other();
  }
  /// Member of a dict by string key, or null: for conversation trees.
  const Value* find(std::string_view key) const;

 private:
  explicit Value(Kind kind) : kind_(kind) { payload_.integer = 0; }
  bool truthy_other() const;
  static Value with_text(Kind kind, std::string_view text) {
    Value result(kind);
    result.length_ = static_cast<uint32_t>(text.size());
    result.payload_.text = text.data();
    return result;
  }

  Kind kind_;
  uint8_t flag_ = 0;
  uint32_t length_ = 0;
  union {
    int64_t integer;
    double real;
    const char* text;
    ListData* list;
    DictData* dict;
    Object* object;
  } payload_;
};
static_assert(sizeof(Value) == 16 && std::is_trivially_copyable_v<Value>);

/// A growable array in an arena.
struct ListData {
  Value* items = nullptr;
  uint32_t size = 0;
  uint32_t capacity = 0;

  static ListData* make(Arena& arena, size_t capacity);
  void push(Arena& arena, Value value);
  void insert(Arena& arena, size_t index, Value value);
  void erase(size_t index);
  std::span<Value> values() const { return {items, size}; }
};

/// Insertion-ordered map. Linear search while small, an open-addressing index beyond that. Clients
/// choose the keys: the hash is keyed per process, entries are compared only where 32 more bits of
/// it agree, and every place looked at in vain is charged to the arena's meter.
struct DictData {
  struct Entry {
    Value key;
    Value value;
  };
  struct Slot {
    uint32_t entry;  // number + 1; 0 = free
    uint32_t tag;    // the hash's upper half; the lower one says where the slot is
  };
  Entry* entries = nullptr;
  Slot* index = nullptr;   // null while size <= kLinearMax
  Meter* meter = nullptr;  // of the arena that the index is in
  uint32_t size = 0;
  uint32_t capacity = 0;
  uint32_t index_mask = 0;
  static constexpr uint32_t kLinearMax = 8;

  static DictData* make(Arena& arena, size_t capacity);
  /// Null when absent. Unhashable keys are never found.
  Value* find(Value key) const;
  Value* find(std::string_view key) const {
    if (index != nullptr) {
      return find_indexed(key);
    }
    for (Entry *entry = entries, *end = entries + size; entry != end; ++entry) {
      if (entry->key.is_text(key)) {
        return &entry->value;
      }
    }
    return nullptr;
  }
  /// Inserts or overwrites; an overwritten key keeps its place.
  void set(Arena& arena, Value key, Value value);
  /// The same for a plain text key.
  void set_text(Arena& arena, std::string_view key, Value value) {
    if (index != nullptr) {
      set_indexed(arena, Value::string(key), value);
    } else if (Value* present = find(key)) {
      *present = value;
    } else if (size < capacity && size < kLinearMax) {
      entries[size++] = Entry{Value::string(key), value};
    } else {
      append(arena, Value::string(key), value);
    }
  }
  /// False when absent. Linear time.
  bool erase(Arena& arena, Value key);
  /// All entries for which `unwanted(entry)`, in linear time.
  template <typename Unwanted>
  void erase_if(Arena& arena, Unwanted unwanted) {
    const auto* kept = std::remove_if(entries, entries + size, unwanted);
    if (kept != entries + size) {
      size = static_cast<uint32_t>(kept - entries);
      reindex(arena);
    }
  }
  std::span<Entry> items() const { return {entries, size}; }

 private:
  Value* find_indexed(std::string_view key) const;
  void set_indexed(Arena& arena, Value key, Value value);
  void append(Arena& arena, Value key, Value value);
  void append_entry(Arena& arena, Value key, Value value);
  void append_indexed(Arena& arena, Value key, Value value, uint64_t hash);
  uint32_t find_entry(Value key, uint64_t hash) const;
  void place(uint64_t hash, uint32_t entry);
  void charge(uint64_t steps) const;
  void reindex(Arena& arena);
};

/// Python's == (1 == 1.0 == true; containers by content). Recursion stops at 200 levels as unequal.
bool equals(const Value& left, const Value& right);
/// Equal values hash equal, in this process only. Containers other than tuples have no hash:
/// `hashable` tells.
uint64_t hash_of(const Value& value);
bool hashable(const Value& value);

}  // namespace stator::chat_template
