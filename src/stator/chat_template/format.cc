// SPDX-License-Identifier: Apache-2.0
#include "stator/chat_template/detail/format.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <vector>

#include "stator/chat_template/detail/ast.h"
#include "stator/chat_template/detail/failure.h"
#include "stator/chat_template/detail/json_scan.h"
#include "stator/chat_template/detail/object.h"
#include "stator/chat_template/detail/text.h"

namespace stator::chat_template::detail {
namespace {

constexpr int kDepthMax = 200;

[[noreturn]] void fail_bounds(const std::string& out, size_t bytes_max) {
  if (out.size() > bytes_max) {
    fail("the text is longer than " + std::to_string(bytes_max) + " bytes", Code::kTooLarge);
  }
  fail("a value is nested deeper than " + std::to_string(kDepthMax) + " levels");
}

void check_bounds(const std::string& out, size_t bytes_max, int depth) {
  if (out.size() > bytes_max || depth > kDepthMax) [[unlikely]] {
    fail_bounds(out, bytes_max);
  }
}

void write_int(int64_t value, std::string& out) {
  char buffer[24];
  const auto end = std::to_chars(buffer, buffer + sizeof(buffer), value).ptr;
  out.append(buffer, end);
}

void append_hex(std::string& out, std::string_view prefix, uint32_t value, int digits) {
  out += prefix;
  for (int shift = (digits - 1) * 4; shift >= 0; shift -= 4) {
    out += "0123456789abcdef"[(value >> static_cast<uint32_t>(shift)) & 15U];
  }
}

void write_string_repr(std::string_view text, std::string& out) {
  const bool has_single = text.find('\'') != std::string_view::npos;
  const char quote = has_single && text.find('"') == std::string_view::npos ? '"' : '\'';
  out += quote;
  for (size_t at = 0; at < text.size();) {
    const size_t start = at;
    const char32_t point = next_code_point(text, at);
    if (point == U'\\' || point == static_cast<char32_t>(quote)) {
      out += '\\';
      out += static_cast<char>(point);
    } else if (point == U'\n') {
      out += "\\n";
    } else if (point == U'\r') {
      out += "\\r";
    } else if (point == U'\t') {
      out += "\\t";
    } else if (is_printable(point)) {
      out += text.substr(start, at - start);
    } else if (point < 0x100) {
      append_hex(out, "\\x", point, 2);
    } else if (point < 0x10000) {
      append_hex(out, "\\u", point, 4);
    } else {
      append_hex(out, "\\U", point, 8);
    }
  }
  out += quote;
}

class ReprWriter {
 public:
  ReprWriter(std::string& out, size_t bytes_max, KeyOrder key_order = KeyOrder::kInserted)
      : out_(out), bytes_max_(bytes_max), key_order_(key_order) {}
  void write(const Value& value, int depth);

 private:
  void write_list(const ListData& list, std::string_view open, std::string_view close, int depth);
  void write_dict(const DictData& dict, int depth);
  void write_object(const Object& object, int depth);

  std::string& out_;
  size_t bytes_max_;
  KeyOrder key_order_;
};

void ReprWriter::write_list(const ListData& list, std::string_view open, std::string_view close,
                            int depth) {
  out_ += open;
  for (uint32_t i = 0; i < list.size; ++i) {
    if (i > 0) {
      out_ += ", ";
    }
    write(list.items[i], depth + 1);
  }
  out_ += close;
}

void ReprWriter::write_dict(const DictData& dict, int depth) {
  std::vector<DictData::Entry> entries(dict.items().begin(), dict.items().end());
  const bool all_text = std::ranges::all_of(
      entries, [](const DictData::Entry& entry) { return entry.key.is_string(); });
  if (key_order_ == KeyOrder::kSorted && all_text) {
    std::ranges::sort(entries, {}, [](const DictData::Entry& entry) { return entry.key.text(); });
  }
  out_ += '{';
  for (size_t i = 0; i < entries.size(); ++i) {
    if (i > 0) {
      out_ += ", ";
    }
    write(entries[i].key, depth + 1);
    out_ += ": ";
    write(entries[i].value, depth + 1);
  }
  out_ += '}';
}

void ReprWriter::write_object(const Object& object, int depth) {
  switch (object.type) {
    case Object::Type::kNamespace:
      out_ += "<Namespace ";
      write_dict(*static_cast<const NamespaceObject&>(object).attributes, depth);
      out_ += '>';
      break;
    case Object::Type::kLoop: {
      const auto& loop = static_cast<const LoopObject&>(object);
      out_ += "<LoopContext " + std::to_string(loop.index0 + 1) + "/" +
              std::to_string(loop.items->size) + ">";
      break;
    }
    case Object::Type::kMacro: {
      const std::string_view name = static_cast<const MacroObject&>(object).declaration->name;
      out_ += name.empty() ? "<Macro anonymous>" : "<Macro '" + std::string(name) + "'>";
      break;
    }
    case Object::Type::kRange: {
      const auto& range = static_cast<const RangeObject&>(object);
      out_ += "range(" + std::to_string(range.start) + ", " + std::to_string(range.stop) +
              (range.step == 1 ? ")" : ", " + std::to_string(range.step) + ")");
      break;
    }
    default:
      out_ += "<function>";
  }
}

void ReprWriter::write(const Value& value, int depth) {
  check_bounds(out_, bytes_max_, depth);
  switch (value.kind()) {
    case Kind::kMissing:
    case Kind::kUndefined:
      out_ += "Undefined";
      break;
    case Kind::kString:
      out_ += value.is_markup() ? "Markup(" : "";
      write_string_repr(value.text(), out_);
      out_ += value.is_markup() ? ")" : "";
      break;
    case Kind::kList:
      write_list(value.as_list(), "[", "]", depth);
      break;
    case Kind::kTuple:
      write_list(value.as_list(), "(", value.as_list().size == 1 ? ",)" : ")", depth);
      break;
    case Kind::kView:
      out_ += value.view_name();
      write_list(value.as_list(), "([", "])", depth);
      break;
    case Kind::kGenerator:
      out_ += "<generator object>";
      break;
    case Kind::kDict:
      write_dict(value.as_dict(), depth);
      break;
    case Kind::kObject:
      write_object(value.as_object(), depth);
      break;
    default:
      write_str(value, out_, bytes_max_);
  }
}

class JsonWriter {
 public:
  JsonWriter(const JsonStyle& style, std::string& out)
      : style_(style),
        out_(out),
        indent_is_spaces_(style.indent.find_first_not_of(' ') == std::string_view::npos) {}
  void write(const Value& value, int depth);

 private:
  void write_list(const ListData& list, int depth);
  void write_dict(const DictData& dict, int depth);
  void write_member(const DictData::Entry& entry, int depth);
  void write_key(const Value& key);
  void write_string(std::string_view text);
  size_t find_special(std::string_view text, size_t at) const;
  void write_escaped(std::string_view text, size_t& at);
  void new_line(int depth);

  const JsonStyle& style_;
  std::string& out_;
  bool indent_is_spaces_;
};

void JsonWriter::new_line(int depth) {
  if (!style_.indented) {
    return;
  }
  out_ += '\n';
  if (indent_is_spaces_) {
    out_.append(style_.indent.size() * static_cast<size_t>(depth), ' ');
    return;
  }
  for (int i = 0; i < depth; ++i) {
    out_ += style_.indent;
  }
}

void JsonWriter::write_escaped(std::string_view text, size_t& at) {
  const auto byte = static_cast<unsigned char>(text[at]);
  static constexpr std::string_view kShort = "\"\\\b\f\n\r\t";
  if (const size_t found = kShort.find(text[at]); found != std::string_view::npos) {
    out_ += '\\';
    out_ += "\"\\bfnrt"[found];
    ++at;
    return;
  }
  if (byte < 0x80) {
    append_hex(out_, "\\u", byte, 4);
    ++at;
    return;
  }
  const char32_t point = next_code_point(text, at);
  if (point < 0x10000) {
    append_hex(out_, "\\u", point, 4);
    return;
  }
  append_hex(out_, "\\u", 0xD800U + ((point - 0x10000U) >> 10U), 4);
  append_hex(out_, "\\u", 0xDC00U + ((point - 0x10000U) & 0x3FFU), 4);
}

void JsonWriter::write_string(std::string_view text) {
  out_ += '"';
  size_t start = 0;
  while (true) {
    const size_t end = find_special(text, start);
    out_ += text.substr(start, end - start);
    if (end == text.size()) {
      break;
    }
    start = end;
    write_escaped(text, start);
  }
  out_ += '"';
}

/// The first byte from `at` on that is not written as it is.
size_t JsonWriter::find_special(std::string_view text, size_t at) const {
  if (!style_.ensure_ascii) {
    return plain_run_end(text, at);
  }
  while (at < text.size() && !is_json_special(text[at]) &&
         static_cast<unsigned char>(text[at]) < 0x7F) {
    ++at;
  }
  return at;
}

void JsonWriter::write_list(const ListData& list, int depth) {
  if (list.size == 0) {
    out_ += "[]";
    return;
  }
  out_ += '[';
  for (uint32_t i = 0; i < list.size; ++i) {
    if (i > 0) {
      out_ += style_.item_separator;
    }
    new_line(depth + 1);
    write(list.items[i], depth + 1);
  }
  new_line(depth);
  out_ += ']';
}

void JsonWriter::write_key(const Value& key) {
  switch (key.kind()) {
    case Kind::kString:
      write_string(key.text());
      break;
    case Kind::kNone:
    case Kind::kBool:
    case Kind::kInt:
    case Kind::kBigInt:
    case Kind::kDouble:
      out_ += '"';
      write(key, 0);
      out_ += '"';
      break;
    default:
      fail("keys must be str, int, float, bool or None, not " + std::string(type_name(key)));
  }
}

void JsonWriter::write_member(const DictData::Entry& entry, int depth) {
  new_line(depth + 1);
  write_key(entry.key);
  out_ += style_.key_separator;
  write(entry.value, depth + 1);
}

void JsonWriter::write_dict(const DictData& dict, int depth) {
  if (dict.size == 0) {
    out_ += "{}";
    return;
  }
  std::vector<const DictData::Entry*> sorted;
  if (style_.sort_keys) {
    for (const auto& entry : dict.items()) {
      if (!entry.key.is_string()) {
        fail("sort_keys needs keys that are all strings");
      }
      sorted.push_back(&entry);
    }
    std::ranges::sort(sorted, {}, [](const auto* entry) { return entry->key.text(); });
  }
  out_ += '{';
  for (uint32_t i = 0; i < dict.size; ++i) {
    if (i > 0) {
      out_ += style_.item_separator;
    }
    write_member(style_.sort_keys ? *sorted[i] : dict.entries[i], depth);
  }
  new_line(depth);
  out_ += '}';
}

void JsonWriter::write(const Value& value, int depth) {
  check_bounds(out_, style_.bytes_max, depth);
  switch (value.kind()) {
    case Kind::kNone:
      out_ += "null";
      break;
    case Kind::kBool:
      out_ += value.as_bool() ? "true" : "false";
      break;
    case Kind::kInt:
      write_int(value.as_int(), out_);
      break;
    case Kind::kBigInt:
      out_ += value.text();
      break;
    case Kind::kDouble:
      if (std::isnan(value.as_double())) {
        out_ += "NaN";
      } else if (std::isinf(value.as_double())) {
        out_ += value.as_double() < 0 ? "-Infinity" : "Infinity";
      } else {
        write_double(value.as_double(), out_);
      }
      break;
    case Kind::kString:
      write_string(value.text());
      break;
    case Kind::kList:
    case Kind::kTuple:
      write_list(value.as_list(), depth);
      break;
    case Kind::kDict:
      write_dict(value.as_dict(), depth);
      break;
    default:
      fail("Object of type " + std::string(type_name(value)) + " is not JSON serializable");
  }
}

}  // namespace

void write_double(double value, std::string& out) {
  if (std::isnan(value)) {
    out += "nan";
    return;
  }
  if (std::isinf(value)) {
    out += value < 0 ? "-inf" : "inf";
    return;
  }
  char buffer[32];
  const auto* end =
      std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::scientific).ptr;
  const std::string_view scientific(buffer, static_cast<size_t>(end - buffer));
  const size_t e = scientific.find('e');
  int exponent = 0;
  const char* exponent_text = buffer + e + 1 + (buffer[e + 1] == '+' ? 1 : 0);
  std::from_chars(exponent_text, end, exponent);
  if (exponent < -4 || exponent >= 16) {
    out += scientific;
    return;
  }
  char fixed[64];
  const auto* fixed_end =
      std::to_chars(fixed, fixed + sizeof(fixed), value, std::chars_format::fixed).ptr;
  const std::string_view text(fixed, static_cast<size_t>(fixed_end - fixed));
  out += text;
  if (text.find('.') == std::string_view::npos) {
    out += ".0";
  }
}

void write_str(const Value& value, std::string& out, size_t bytes_max) {
  switch (value.kind()) {
    case Kind::kMissing:
    case Kind::kUndefined:
      break;
    case Kind::kNone:
      out += "None";
      break;
    case Kind::kBool:
      out += value.as_bool() ? "True" : "False";
      break;
    case Kind::kInt:
      write_int(value.as_int(), out);
      break;
    case Kind::kBigInt:
    case Kind::kString:
      out += value.text();
      break;
    case Kind::kDouble:
      write_double(value.as_double(), out);
      break;
    default:
      ReprWriter(out, bytes_max).write(value, 0);
  }
  check_bounds(out, bytes_max, 0);
}

void write_repr(const Value& value, std::string& out, size_t bytes_max, KeyOrder key_order) {
  ReprWriter(out, bytes_max, key_order).write(value, 0);
}

void write_json(const Value& value, const JsonStyle& style, std::string& out) {
  JsonWriter(style, out).write(value, 0);
  check_bounds(out, style.bytes_max, 0);
}

std::string_view type_name(Kind kind) {
  switch (kind) {
    case Kind::kMissing:
    case Kind::kUndefined:
      return "Undefined";
    case Kind::kNone:
      return "NoneType";
    case Kind::kBool:
      return "bool";
    case Kind::kInt:
    case Kind::kBigInt:
      return "int";
    case Kind::kDouble:
      return "float";
    case Kind::kString:
      return "str";
    case Kind::kList:
      return "list";
    case Kind::kTuple:
      return "tuple";
    case Kind::kView:
      return "dict view";
    case Kind::kGenerator:
      return "generator";
    case Kind::kDict:
      return "dict";
    case Kind::kObject:
      return "object";
  }
  return "object";
}

std::string_view type_name(const Value& value) {
  if (value.is_object() && value.as_object().type == Object::Type::kRange) {
    return "range";
  }
  return type_name(value.kind());
}

}  // namespace stator::chat_template::detail
