// SPDX-License-Identifier: Apache-2.0
#include "stator/json/value.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "stator/core/assert.h"
#include "stator/json/writer.h"

namespace stator::json {
namespace {

template <typename Number>
std::optional<Number> read_whole(std::string_view spelling) {
  Number number{};
  const char* end = spelling.data() + spelling.size();
  const auto [stop, error] = std::from_chars(spelling.data(), end, number);
  return error == std::errc() && stop == end ? std::optional(number) : std::nullopt;
}

std::string unescape_pointer(std::string_view token) {
  std::string out;
  for (size_t i = 0; i < token.size(); ++i) {
    const bool escaped = token[i] == '~' && i + 1 < token.size();
    out.push_back(!escaped ? token[i] : token[++i] == '1' ? '/' : '~');
  }
  return out;
}

void append_indent(std::string& out, size_t level) {
  out.push_back('\n');
  out.append(2 * level, ' ');
}

void append_pretty(std::string& out, const Value& value, size_t level) {
  if (value.size() == 0) {
    out += to_text(value);
    return;
  }
  const bool object = value.is_object();
  out.push_back(object ? '{' : '[');
  bool first = true;
  const auto begin_item = [&] {
    out.append(first ? "" : ",");
    first = false;
    append_indent(out, level + 1);
  };
  for (const Member& member : value.members()) {
    begin_item();
    append_string(out, member.key);
    out += ": ";
    append_pretty(out, member.value, level + 1);
  }
  for (const Value& element : value.elements()) {
    begin_item();
    append_pretty(out, element, level + 1);
  }
  append_indent(out, level);
  out.push_back(object ? '}' : ']');
}

}  // namespace

Value::Value() noexcept = default;
Value::Value(const Value& other) = default;
Value::Value(Value&& other) noexcept = default;
Value& Value::operator=(const Value& other) = default;
Value& Value::operator=(Value&& other) noexcept = default;
Value::~Value() = default;

Value::Value(BoolTag /*tag*/, bool flag) : data_(flag) {}
Value::Value(std::string text) : data_(std::move(text)) {}

Value::Value(double number) {
  if (!std::isfinite(number)) {
    return;
  }
  std::array<char, 32> digits;
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), number).ptr;
  data_ = Number(digits.data(), end);
}

Value::Value(std::initializer_list<Member> members) : data_(Object(members)) {}

Value Value::array() {
  return array(Array());
}

Value Value::array(Array elements) {
  Value value;
  value.data_ = std::move(elements);
  return value;
}

Value Value::object() {
  Value value;
  value.data_ = Object();
  return value;
}

Value Value::number(std::string_view spelling) {
  Value value;
  value.data_ = Number(spelling.begin(), spelling.end());
  return value;
}

Kind Value::kind() const {
  static constexpr std::array kKinds = {Kind::kNull,   Kind::kBool,  Kind::kNumber,
                                        Kind::kString, Kind::kArray, Kind::kObject};
  static_assert(std::variant_size_v<decltype(data_)> == kKinds.size());
  return kKinds[data_.index()];
}

std::optional<bool> Value::as_bool() const {
  const bool* flag = std::get_if<bool>(&data_);
  return flag != nullptr ? std::optional(*flag) : std::nullopt;
}

std::optional<int64_t> Value::as_int64() const {
  return is_number() ? read_whole<int64_t>(text()) : std::nullopt;
}

std::optional<uint64_t> Value::as_uint64() const {
  return is_number() ? read_whole<uint64_t>(text()) : std::nullopt;
}

std::optional<double> Value::as_double() const {
  return is_number() ? read_whole<double>(text()) : std::nullopt;
}

std::optional<std::string_view> Value::as_string() const {
  return is_string() ? std::optional(text()) : std::nullopt;
}

std::string_view Value::text() const {
  if (const auto* string = std::get_if<std::string>(&data_)) {
    return *string;
  }
  const auto* number = std::get_if<Number>(&data_);
  return number != nullptr ? std::string_view(number->data(), number->size()) : std::string_view();
}

const Value::Array& Value::elements() const {
  static const Array kNone;
  const auto* array = std::get_if<Array>(&data_);
  return array != nullptr ? *array : kNone;
}

const Value::Object& Value::members() const {
  static const Object kNone;
  const auto* object = std::get_if<Object>(&data_);
  return object != nullptr ? *object : kNone;
}

size_t Value::size() const {
  return is_object() ? members().size() : elements().size();
}

const Value* Value::find(std::string_view key) const {
  const Object& all = members();
  const auto found = std::ranges::find(all, key, &Member::key);
  return found != all.end() ? &found->value : nullptr;
}

Value* Value::find(std::string_view key) {
  return const_cast<Value*>(std::as_const(*this).find(key));
}

const Value* Value::find_at(std::initializer_list<std::string_view> path) const {
  const Value* at = this;
  for (auto key = path.begin(); at != nullptr && key != path.end(); ++key) {
    at = at->find(*key);
  }
  return at;
}

const Value& Value::at(std::string_view key) const {
  static const Value kNull;
  const Value* found = find(key);
  return found != nullptr ? *found : kNull;
}

const Value& Value::at(size_t index) const {
  static const Value kNull;
  return index < elements().size() ? elements()[index] : kNull;
}

const Value* Value::find_pointer(std::string_view pointer) const {
  const Value* at = this;
  while (at != nullptr && !pointer.empty()) {
    if (!pointer.starts_with('/')) {
      return nullptr;
    }
    const size_t end = std::min(pointer.find('/', 1), pointer.size());
    const std::string key = unescape_pointer(pointer.substr(1, end - 1));
    pointer.remove_prefix(end);
    if (!at->is_array()) {
      at = at->find(key);
      continue;
    }
    const auto index =
        key.empty() || (key.size() > 1 && key[0] == '0') ? std::nullopt : read_whole<size_t>(key);
    at = index && *index < at->size() ? &at->elements()[*index] : nullptr;
  }
  return at;
}

std::string_view Value::text_at(std::initializer_list<std::string_view> path) const {
  const Value* found = find_at(path);
  return found != nullptr && found->is_string() ? found->text() : std::string_view();
}

Value& Value::operator[](std::string_view key) {
  if (is_null()) {
    data_ = Object();
  }
  auto* object = std::get_if<Object>(&data_);
  STATOR_ASSERT(object != nullptr, "only an object has members");
  if (Value* found = find(key)) {
    return *found;
  }
  return object->emplace_back(Member{std::string(key), Value()}).value;
}

Value& Value::push_back(Value element) {
  if (is_null()) {
    data_ = Array();
  }
  auto* array = std::get_if<Array>(&data_);
  STATOR_ASSERT(array != nullptr, "only an array has elements");
  return array->emplace_back(std::move(element));
}

bool Value::erase(std::string_view key) {
  auto* object = std::get_if<Object>(&data_);
  return object != nullptr &&
         std::erase_if(*object, [&](const Member& member) { return member.key == key; }) > 0;
}

bool Value::operator==(const Value& other) const {
  return data_ == other.data_;
}

void write(Writer& out, const Value& value) {
  switch (value.kind()) {
    case Kind::kObject:
      out.begin_object();
      for (const Member& member : value.members()) {
        out.key_escaped(member.key);
        write(out, member.value);
      }
      out.end_object();
      return;
    case Kind::kArray:
      out.begin_array();
      for (const Value& element : value.elements()) {
        write(out, element);
      }
      out.end_array();
      return;
    case Kind::kString:
      out.value(value.text());
      return;
    case Kind::kNumber:
      out.raw(value.text());
      return;
    case Kind::kBool:
      out.value(*value.as_bool());
      return;
    default:
      out.null();
  }
}

std::string to_text(const Value& value) {
  std::string text;
  Writer out(text);
  write(out, value);
  return text;
}

std::string to_pretty_text(const Value& value) {
  std::string text;
  append_pretty(text, value, 0);
  return text;
}

}  // namespace stator::json
