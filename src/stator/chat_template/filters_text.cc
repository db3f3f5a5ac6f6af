// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "stator/chat_template/detail/format.h"
#include "stator/chat_template/detail/interpreter.h"
#include "stator/chat_template/detail/library.h"
#include "stator/chat_template/detail/operators.h"
#include "stator/chat_template/detail/strings.h"
#include "stator/chat_template/detail/text.h"

namespace stator::chat_template::detail {
namespace {

using Args = const CallArguments&;

/// A result that is Markup when the input was.
Value like(const Value& input, Value text) {
  return input.is_markup() ? Value::markup(text.text()) : text;
}

Value filter_trim(Interpreter& interpreter, Value input, Args arguments) {
  const std::string_view text = interpreter.text_of(input);
  const Value* characters = arguments.get(0, "chars");
  const std::string_view stripped =
      characters == nullptr || characters->is_none()
          ? strip(text, Side::kBoth)
          : strip(text, arguments.get_text(0, "chars", ""), Side::kBoth);
  return like(input, Value::string(stripped));
}

Value filter_upper(Interpreter& interpreter, Value input, Args) {
  return like(input, interpreter.make_string(to_upper(interpreter.text_of(input))));
}

Value filter_lower(Interpreter& interpreter, Value input, Args) {
  return like(input, interpreter.make_string(to_lower(interpreter.text_of(input))));
}

Value filter_capitalize(Interpreter& interpreter, Value input, Args) {
  return like(input, interpreter.make_string(to_capitalized(interpreter.text_of(input))));
}

/// Jinja's title: words are split at white space, '-', and opening brackets.
Value filter_title(Interpreter& interpreter, Value input, Args) {
  const std::string_view text = interpreter.text_of(input);
  std::string out;
  size_t start = 0;
  const auto flush = [&](size_t end) {
    const std::string_view word = text.substr(start, end - start);
    size_t first = 0;
    if (!word.empty()) {
      next_code_point(word, first);
    }
    out += to_upper(word.substr(0, first)) + to_lower(word.substr(first));
    start = end;
  };
  for (size_t at = 0; at < text.size();) {
    const size_t before = at;
    const char32_t point = next_code_point(text, at);
    const bool separates = point == U'-' || point == U'(' || point == U'{' || point == U'[' ||
                           point == U'<' || is_space(point);
    if (separates) {
      flush(before);
      flush(at);
    }
  }
  flush(text.size());
  return like(input, interpreter.make_string(out));
}

Value filter_replace(Interpreter& interpreter, Value input, Args arguments) {
  const std::string_view text = interpreter.text_of(input);
  const std::string_view from = interpreter.text_of(arguments.require(0, "old", "replace"));
  const std::string_view to = interpreter.text_of(arguments.require(1, "new", "replace"));
  const Value* count = arguments.get(2, "count");
  const int64_t limit =
      count == nullptr || count->is_none() ? -1 : arguments.get_int(2, "count", -1);
  interpreter.charge(text.size() / 32);
  return like(input, interpreter.make_string(replace_all(text, from, to, limit)));
}

Value filter_join(Interpreter& interpreter, Value input, Args arguments) {
  const Value* separator_value = arguments.get(0, "d");
  const std::string_view separator =
      separator_value == nullptr ? "" : interpreter.text_of(*separator_value);
  const Value* attribute = arguments.get(1, "attribute");
  ListData* items = interpreter.iterate(input);  // once: a generator would be empty after that
  if (attribute != nullptr && !attribute->is_none()) {
    const std::string_view name = "attribute";
    const CallArguments by_name{{}, {&name, 1}, {attribute, 1}};
    items = interpreter.iterate((*find_filter("map"))(interpreter, Value::list(items), by_name));
  }
  std::string out;
  bool first = true;
  for (const Value& item : items->values()) {
    if (!std::exchange(first, false)) {
      out += separator;
    }
    write_str(item, out);
  }
  interpreter.charge(items->size + out.size() / 64);
  return interpreter.make_string(out);
}

Value filter_indent(Interpreter& interpreter, Value input, Args arguments) {
  std::string indention;
  const Value* width = arguments.get(0, "width");
  if (width != nullptr && width->is_string()) {
    indention = width->text();
  } else {
    const int64_t spaces = arguments.get_int(0, "width", 4);
    if (spaces > 10'000) {
      fail("indent needs a width of at most 10000");
    }
    indention.assign(static_cast<size_t>(std::max<int64_t>(spaces, 0)), ' ');
  }
  const bool first = arguments.get_bool(1, "first", false);
  const bool blank = arguments.get_bool(2, "blank", false);
  if (!input.is_string()) {
    fail_operand("indent needs a string, not", input);
  }
  const std::string with_end = std::string(input.text()) + "\n";
  const ListData& lines =
      *split_lines(interpreter, interpreter.arena().copy(std::string_view(with_end)));
  std::string out = first ? indention : "";
  for (uint32_t i = 0; i < lines.size; ++i) {
    const std::string_view line = lines.items[i].text();
    if (i > 0) {
      out += '\n';
      out += blank || !line.empty() ? std::string_view(indention) : std::string_view();
    }
    out += line;
    check_text_size(out);
  }
  return like(input, interpreter.make_string(out));
}

Value filter_wordwrap(Interpreter& interpreter, Value input, Args arguments) {
  if (!input.is_string()) {
    fail_operand("wordwrap needs a string, not", input);
  }
  const std::string_view text = input.text();
  const int64_t width = arguments.get_int(0, "width", 79);
  if (width <= 0) {
    fail("invalid width " + std::to_string(width) + " (must be > 0)");
  }
  const Value* given = arguments.get(2, "wrapstring");
  const std::string_view separator =
      given == nullptr || given->is_none() ? "\n" : arguments.get_text(2, "wrapstring", "");
  const WrapStyle style{static_cast<size_t>(width), arguments.get_bool(1, "break_long_words", true),
                        arguments.get_bool(3, "break_on_hyphens", true)};
  interpreter.charge(text.size() / 4);
  std::string out;
  bool first_line = true;
  for (const Value& line : split_lines(interpreter, text)->values()) {
    out += std::exchange(first_line, false) ? std::string_view() : separator;
    bool first_row = true;
    for (const std::string& row : wrap_line(line.text(), style)) {
      out += std::exchange(first_row, false) ? std::string_view() : separator;
      out += row;
    }
    check_text_size(out);
  }
  return interpreter.make_string(out);
}

Value filter_wordcount(Interpreter& interpreter, Value input, Args) {
  const std::string_view text = interpreter.text_of(input);
  int64_t words = 0;
  bool in_word = false;
  for (size_t at = 0; at < text.size();) {
    const char32_t point = next_code_point(text, at);
    const bool word = is_word(point);
    words += word && !in_word ? 1 : 0;
    in_word = word;
  }
  return Value::integer(words);
}

Value filter_truncate(Interpreter& interpreter, Value input, Args arguments) {
  const int64_t length = arguments.get_int(0, "length", 255);
  const bool kill_words = arguments.get_bool(1, "killwords", false);
  const std::string_view end = arguments.get_text(2, "end", "...");
  const Value* leeway_value = arguments.get(3, "leeway");
  const int64_t leeway =
      leeway_value == nullptr || leeway_value->is_none() ? 5 : arguments.get_int(3, "leeway", 5);
  const auto end_length = static_cast<int64_t>(count_code_points(end));
  if (length < end_length || leeway < 0 || length > INT64_MAX / 2 || leeway > INT64_MAX / 2) {
    fail("truncate needs a length of at least that of its end text");
  }
  // Anything with a length passes while it is short enough.
  const Value size = (*find_filter("length"))(interpreter, input, CallArguments{});
  if (size.as_int() <= length + leeway) {
    return input;
  }
  if (!input.is_string()) {
    fail_operand("truncate needs a string, not", input);
  }
  const std::string_view text = input.text();
  std::string_view kept =
      text.substr(0, byte_offset(text, static_cast<size_t>(length - end_length)));
  if (!kill_words) {
    kept = kept.substr(0, kept.rfind(' '));
  }
  return interpreter.make_string(std::string(kept) + std::string(end));
}

Value filter_urlencode(Interpreter& interpreter, Value input, Args) {
  // In a query "/" is escaped and a space is "+".
  const bool is_query = input.is_dict() || input.has_list() || input.is_object();
  const auto encode = [is_query](std::string_view text, std::string& out) {
    const std::string_view safe = is_query ? "_.-~" : "_.-~/";
    for (const char c : text) {
      const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                         (c >= '0' && c <= '9') || safe.find(c) != std::string_view::npos;
      if (plain) {
        out += c;
      } else if (is_query && c == ' ') {
        out += '+';
      } else {
        const auto byte = static_cast<unsigned char>(c);
        out += '%';
        out += "0123456789ABCDEF"[byte >> 4U];
        out += "0123456789ABCDEF"[byte & 15U];
      }
    }
  };
  std::string out;
  if (input.is_dict()) {
    for (const auto& entry : input.as_dict().items()) {
      out += out.empty() ? "" : "&";
      encode(interpreter.text_of(entry.key), out);
      out += '=';
      encode(interpreter.text_of(entry.value), out);
    }
  } else if (is_query) {
    for (const Value& pair : interpreter.iterate(input)->values()) {
      const ListData& parts = *interpreter.iterate(pair);
      if (parts.size != 2) {
        fail("urlencode needs pairs of a key and a value");
      }
      out += out.empty() ? "" : "&";
      encode(interpreter.text_of(parts.items[0]), out);
      out += '=';
      encode(interpreter.text_of(parts.items[1]), out);
    }
  } else {
    encode(interpreter.text_of(input), out);
  }
  return interpreter.make_string(out);
}

Value filter_format(Interpreter& interpreter, Value input, Args arguments) {
  const std::string_view format = interpreter.text_of(input);
  if (!arguments.named.empty() && !arguments.positional.empty()) {
    fail("can't handle positional and keyword arguments at the same time");
  }
  if (!arguments.named.empty()) {
    auto* named = DictData::make(interpreter.arena(), arguments.named.size());
    for (size_t i = 0; i < arguments.named.size(); ++i) {
      named->set(interpreter.arena(), Value::string(arguments.names[i]), arguments.named[i]);
    }
    return interpreter.make_string(format_percent(interpreter, format, Value::dict(named)));
  }
  auto* values = ListData::make(interpreter.arena(), arguments.positional.size());
  for (const Value& value : arguments.positional) {
    values->push(interpreter.arena(), value);
  }
  return interpreter.make_string(
      format_percent(interpreter, format, Value::sequence(Kind::kTuple, values)));
}

Value filter_center(Interpreter& interpreter, Value input, Args arguments) {
  const std::string_view text = interpreter.text_of(input);
  const int64_t width = arguments.get_int(0, "width", 80);
  if (width > 100'000) {
    fail("center needs a width of at most 100000");
  }
  const int64_t space = width - static_cast<int64_t>(count_code_points(text));
  if (space <= 0) {
    return Value::string(text);
  }
  const int64_t left = space / 2 + (space & width & 1);
  return interpreter.make_string(std::string(static_cast<size_t>(left), ' ') + std::string(text) +
                                 std::string(static_cast<size_t>(space - left), ' '));
}

constexpr Filter kFilters[] = {
    {"capitalize", filter_capitalize},
    {"center", filter_center, "width="},
    {"format", filter_format, "*args **kwargs"},
    {"indent", filter_indent, "width= first= blank="},
    {"join", filter_join, "d= attribute="},
    {"lower", filter_lower},
    {"replace", filter_replace, "old new count="},
    {"title", filter_title},
    {"trim", filter_trim, "chars="},
    {"truncate", filter_truncate, "length= killwords= end= leeway="},
    {"upper", filter_upper},
    {"urlencode", filter_urlencode},
    {"wordcount", filter_wordcount},
    {"wordwrap", filter_wordwrap, "width= break_long_words= wrapstring= break_on_hyphens="},
};

}  // namespace

std::span<const Filter> text_filters() {
  return kFilters;
}

}  // namespace stator::chat_template::detail
