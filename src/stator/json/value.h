// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <absl/container/inlined_vector.h>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "stator/core/result.h"
#include "stator/json/cursor.h"

namespace stator::json {

struct Member;
class Writer;

/// One JSON value that owns what is in it, to look into and to change. Nothing is lost from parse
/// to write: members keep their order, numbers their spelling (30 digits, 1.0, 1e5), unknown fields
/// stay. A regular type: copies are deep, equality is structural (order of members and spelling of
/// numbers count).
///
///   STATOR_TRY(json::Value pod, json::parse(text), "reading the pod");
///   std::string_view phase = pod.text_at({"status", "phase"});
///   pod["metadata"]["labels"]["app"] = "frontend";
///   out = json::to_text(pod);
///
/// Look-ups walk an object's members one by one: right for configuration, API objects and messages,
/// not for tables of thousands of keys. Where a text is read once and each value goes somewhere,
/// Cursor is faster and allocates nothing.
class Value {
 public:
  using Array = std::vector<Value>;
  using Object = std::vector<Member>;

  // Defined in value.cc, where Member is complete.
  Value() noexcept;  ///< null
  Value(const Value& other);
  Value(Value&& other) noexcept;
  Value& operator=(const Value& other);
  Value& operator=(Value&& other) noexcept;
  ~Value();

  // NOLINTBEGIN(google-explicit-constructor): values must read naturally where JSON is built
  Value(std::nullptr_t) : Value() {}
  Value(std::same_as<bool> auto flag) : Value(BoolTag(), flag) {}
  Value(std::string text);
  Value(std::string_view text) : Value(std::string(text)) {}
  Value(const char* text) : Value(std::string(text)) {}
  Value(double number);  ///< NaN and infinities become null
  template <std::integral Integer>
    requires(!std::same_as<Integer, bool>)
  Value(Integer whole) : Value(number(std::to_string(whole))) {}
  Value(std::initializer_list<Member> members);  ///< an object
  // NOLINTEND(google-explicit-constructor)
  static Value array();
  static Value array(Array elements);
  static Value object();
  static Value object(std::initializer_list<Member> members) { return members; }
  /// A number as spelled; the text must be a JSON number.
  static Value number(std::string_view spelling);

  Kind kind() const;
  bool is_null() const { return std::holds_alternative<std::monostate>(data_); }
  bool is_object() const { return std::holds_alternative<Object>(data_); }
  bool is_array() const { return std::holds_alternative<Array>(data_); }
  bool is_string() const { return std::holds_alternative<std::string>(data_); }
  bool is_number() const { return std::holds_alternative<Number>(data_); }
  bool is_bool() const { return std::holds_alternative<bool>(data_); }

  // What the value is, or nothing if it is something else. Integers are exact: no fraction, no
  // exponent, in range.
  std::optional<bool> as_bool() const;
  std::optional<int64_t> as_int64() const;
  std::optional<uint64_t> as_uint64() const;
  std::optional<double> as_double() const;
  std::optional<std::string_view> as_string() const;
  /// A string's content or a number's spelling; empty for the rest.
  std::string_view text() const;

  /// Elements of an array, members of an object; empty for other kinds.
  const Array& elements() const;
  const Object& members() const;
  Array* mutable_elements() { return std::get_if<Array>(&data_); }
  Object* mutable_members() { return std::get_if<Object>(&data_); }
  /// Of an array or object; 0 for other kinds.
  size_t size() const;

  /// The member; null pointer if there is none or this is no object.
  const Value* find(std::string_view key) const;
  Value* find(std::string_view key);
  /// Down a path of keys; null pointer where it ends early.
  const Value* find_at(std::initializer_list<std::string_view> path) const;
  /// The member, or the element; a null where there is none, so that a chain ends in null.
  const Value& at(std::string_view key) const;
  const Value& at(size_t index) const;
  /// RFC 6901: "/a/0/b~1c", "" for this value; null pointer where it leads nowhere.
  const Value* find_pointer(std::string_view pointer) const;
  /// The string there; empty if there is none.
  std::string_view text_at(std::initializer_list<std::string_view> path) const;

  /// The member, added as null at the end if it was absent. A null becomes an object first; on
  /// other kinds a bug (asserts).
  Value& operator[](std::string_view key);
  /// Appends to an array; a null becomes an array first, other kinds are a bug (asserts).
  Value& push_back(Value element);
  /// Whether the member was there.
  bool erase(std::string_view key);

  bool operator==(const Value& other) const;

 private:
  struct BoolTag {};
  Value(BoolTag tag, bool flag);

  /// As spelled; what fits 64 bits needs no allocation.
  using Number = absl::InlinedVector<char, 24>;
  std::variant<std::monostate, bool, Number, std::string, Array, Object> data_;
};

struct Member {
  std::string key;
  Value value;
  bool operator==(const Member&) const = default;
};

struct ParseLimits {
  uint32_t depth_max = 128;
  /// Values in all; one takes 64 bytes and its text.
  size_t values_max = std::numeric_limits<size_t>::max();
};

/// The one value in `text` (RFC 8259, UTF-8, optional white space around it). Of members with the
/// same key the last one counts, at the place of the first. kInvalidArgument: "not valid JSON at
/// byte 17: …"; kTooLarge: a limit, which the message names.
Result<Value> parse(std::string_view text, const ParseLimits& limits = {});

/// Writes the value; numbers as spelled.
void write(Writer& out, const Value& value);
/// In one line, without spaces.
std::string to_text(const Value& value);
/// Two spaces per level, for people.
std::string to_pretty_text(const Value& value);

}  // namespace stator::json
