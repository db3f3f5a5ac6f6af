// SPDX-License-Identifier: Apache-2.0
#include "stator/chat_template/detail/strings.h"

#include <algorithm>

#include "stator/chat_template/detail/format.h"
#include "stator/chat_template/detail/interpreter.h"
#include "stator/chat_template/detail/library.h"
#include "stator/chat_template/detail/operators.h"
#include "stator/chat_template/detail/text.h"
#include "stator/text/utf8.h"

namespace stator::chat_template::detail {
namespace {

using Args = const CallArguments&;

template <Side kSide>
Value method_strip(Interpreter& interpreter, Value self, Args arguments) {
  interpreter.charge(1);
  const Value* characters = arguments.get(0, "chars");
  if (characters == nullptr || characters->is_none()) {
    return Value::string(strip(self.text(), kSide));
  }
  return Value::string(strip(self.text(), arguments.get_text(0, "chars", ""), kSide));
}

/// Splits at runs of white space; `limit` < 0 means no limit. From the right when `from_right`.
ListData* split_at_space(Interpreter& interpreter, std::string_view text, int64_t limit,
                         bool from_right) {
  auto* parts = ListData::make(interpreter.arena(), 4);
  const Side near = from_right ? Side::kRight : Side::kLeft;
  text = strip(text, near);
  while (!text.empty()) {
    if (limit >= 0 && static_cast<int64_t>(parts->size) == limit) {
      parts->push(interpreter.arena(), Value::string(text));
      break;
    }
    size_t end = text.size();
    size_t word_start = 0;
    for (size_t at = 0; at < text.size();) {
      const size_t before = at;
      if (is_space(next_code_point(text, at))) {
        end = from_right ? end : before;
        word_start = at;
        if (!from_right) {
          break;
        }
      }
    }
    if (from_right) {
      parts->push(interpreter.arena(), Value::string(text.substr(word_start)));
      text = strip(text.substr(0, word_start), near);
    } else {
      parts->push(interpreter.arena(), Value::string(text.substr(0, end)));
      text = strip(text.substr(end), near);
    }
    interpreter.charge(1 + (from_right ? text.size() / 16 : 0));
  }
  if (from_right) {
    std::ranges::reverse(parts->values());
  }
  return parts;
}

ListData* split_at(Interpreter& interpreter, std::string_view text, std::string_view separator,
                   int64_t limit, bool from_right) {
  if (separator.empty()) {
    fail("empty separator");
  }
  auto* parts = ListData::make(interpreter.arena(), 4);
  while (limit < 0 || static_cast<int64_t>(parts->size) < limit) {
    const size_t found = from_right ? find_last_text(text, separator) : find_text(text, separator);
    if (found == std::string_view::npos) {
      break;
    }
    const size_t after = found + separator.size();
    parts->push(interpreter.arena(),
                Value::string(from_right ? text.substr(after) : text.substr(0, found)));
    text = from_right ? text.substr(0, found) : text.substr(after);
  }
  parts->push(interpreter.arena(), Value::string(text));
  if (from_right) {
    std::ranges::reverse(parts->values());
  }
  return parts;
}

template <bool kFromRight>
Value method_split(Interpreter& interpreter, Value self, Args arguments) {
  const Value* separator = arguments.get(0, "sep");
  const int64_t limit = arguments.get_int(1, "maxsplit", -1);
  interpreter.charge(self.text().size() / 16);
  if (separator == nullptr || separator->is_none()) {
    return Value::list(split_at_space(interpreter, self.text(), limit, kFromRight));
  }
  return Value::list(
      split_at(interpreter, self.text(), arguments.get_text(0, "sep", " "), limit, kFromRight));
}

Value method_splitlines(Interpreter& interpreter, Value self, Args arguments) {
  const bool keep_ends = arguments.get_bool(0, "keepends", false);
  return Value::list(split_lines(interpreter, self.text(), keep_ends));
}

template <bool kFromRight>
Value method_partition(Interpreter& interpreter, Value self, Args arguments) {
  const std::string_view text = self.text();
  const std::string_view separator = arguments.get_text(0, "sep", "");
  if (separator.empty()) {
    fail("empty separator");
  }
  const size_t found = kFromRight ? find_last_text(text, separator) : find_text(text, separator);
  Arena& arena = interpreter.arena();
  auto* parts = ListData::make(arena, 3);
  if (found == std::string_view::npos) {
    parts->push(arena, Value::string(kFromRight ? "" : text));
    parts->push(arena, Value::string(""));
    parts->push(arena, Value::string(kFromRight ? text : ""));
  } else {
    parts->push(arena, Value::string(text.substr(0, found)));
    parts->push(arena, Value::string(separator));
    parts->push(arena, Value::string(text.substr(found + separator.size())));
  }
  return Value::sequence(Kind::kTuple, parts);
}

/// The part of `self` that the optional start and end arguments leave.
std::string_view sub_range(Value self, Args arguments) {
  const Value* start = arguments.get(1, "start");
  const Value* end = arguments.get(2, "end");
  if (start == nullptr && end == nullptr) {
    return self.text();
  }
  const auto length = static_cast<int64_t>(count_code_points(self.text()));
  const SliceRange range =
      resolve_slice(start == nullptr ? Value::none() : *start,
                    end == nullptr ? Value::none() : *end, Value::none(), length);
  const std::string_view rest =
      self.text().substr(byte_offset(self.text(), static_cast<size_t>(range.start)));
  return rest.substr(0, byte_offset(rest, static_cast<size_t>(range.count)));
}

template <bool kEnd>
Value method_affix(Interpreter& interpreter, Value self, Args arguments) {
  const Value& wanted = arguments.require(0, "prefix", kEnd ? "endswith" : "startswith");
  const std::string_view text = sub_range(self, arguments);
  const auto matches = [&](const Value& affix) {
    if (!affix.is_string()) {
      fail_operand("startswith and endswith need str or a tuple of str, not", affix);
    }
    return kEnd ? text.ends_with(affix.text()) : text.starts_with(affix.text());
  };
  interpreter.charge(1);
  if (wanted.kind() == Kind::kTuple) {
    return Value::boolean(std::ranges::any_of(wanted.as_list().values(), matches));
  }
  return Value::boolean(matches(wanted));
}

template <bool kFromRight, bool kMustFind>
Value method_find(Interpreter& interpreter, Value self, Args arguments) {
  const std::string_view text = sub_range(self, arguments);
  const std::string_view wanted = arguments.get_text(0, "sub", "");
  interpreter.charge(text.size() / 32);
  const size_t found = kFromRight ? find_last_text(text, wanted) : find_text(text, wanted);
  if (found == std::string_view::npos) {
    if (kMustFind) {
      fail("substring not found");
    }
    return Value::integer(-1);
  }
  const auto before = static_cast<size_t>(text.data() - self.text().data()) + found;
  return Value::integer(static_cast<int64_t>(count_code_points(self.text().substr(0, before))));
}

Value method_count(Interpreter& interpreter, Value self, Args arguments) {
  const std::string_view text = sub_range(self, arguments);
  const std::string_view wanted = arguments.get_text(0, "sub", "");
  interpreter.charge(text.size() / 32);
  if (wanted.empty()) {
    return Value::integer(static_cast<int64_t>(count_code_points(text)) + 1);
  }
  int64_t count = 0;
  for (size_t at = find_text(text, wanted); at != std::string_view::npos;
       at = find_text(text, wanted, at + wanted.size())) {
    ++count;
  }
  return Value::integer(count);
}

Value method_replace(Interpreter& interpreter, Value self, Args arguments) {
  const Value& from = arguments.require(0, "old", "replace");
  const Value& to = arguments.require(1, "new", "replace");
  if (!from.is_string() || !to.is_string()) {
    fail_operand("replace() argument must be str, not", from.is_string() ? to : from);
  }
  interpreter.charge(self.text().size() / 32);
  return interpreter.make_string(
      replace_all(self.text(), from.text(), to.text(), arguments.get_int(2, "count", -1)));
}

Value method_join(Interpreter& interpreter, Value self, Args arguments) {
  std::string out;
  bool first = true;
  const ListData& items = *interpreter.iterate(arguments.require(0, "iterable", "join"));
  for (const Value& item : items.values()) {
    if (!item.is_string()) {
      fail_operand("sequence item: expected str instance, got", item);
    }
    if (!std::exchange(first, false)) {
      out += self.text();
    }
    out += item.text();
    check_text_size(out);
  }
  interpreter.charge(items.size + out.size() / 64);
  return interpreter.make_string(out);
}

template <std::string (*kConvert)(std::string_view)>
Value method_convert(Interpreter& interpreter, Value self, Args) {
  interpreter.charge(self.text().size() / 16);
  return interpreter.make_string(kConvert(self.text()));
}

/// `kWhenEmpty`: the answer for the empty text.
template <bool (*kPredicate)(char32_t), bool kWhenEmpty = false>
Value method_all(Interpreter& interpreter, Value self, Args) {
  const std::string_view text = self.text();
  interpreter.charge(text.size() / 16);
  for (size_t at = 0; at < text.size();) {
    if (!kPredicate(next_code_point(text, at))) {
      return Value::boolean(false);
    }
  }
  return Value::boolean(!text.empty() || kWhenEmpty);
}

bool is_ascii(char32_t point) {
  return point < 0x80;
}

template <bool kUpper>
Value method_is_cased(Interpreter& interpreter, Value self, Args arguments) {
  return Value::boolean((*find_test(kUpper ? "upper" : "lower"))(interpreter, self, arguments));
}

/// Upper or title case starts every word, and lower case only goes on in words.
Value method_is_title(Interpreter& interpreter, Value self, Args) {
  interpreter.charge(self.text().size() / 16);
  bool any = false;
  bool in_word = false;
  for (size_t at = 0; at < self.text().size();) {
    const char32_t point = next_code_point(self.text(), at);
    const bool starts = is_upper(point) || is_title_letter(point);
    if ((starts && in_word) || (is_lower(point) && !in_word)) {
      return Value::boolean(false);
    }
    in_word = starts || is_lower(point);
    any = any || in_word;
  }
  return Value::boolean(any);
}

Value method_is_identifier(Interpreter& interpreter, Value self, Args) {
  interpreter.charge(self.text().size() / 16);
  bool first = true;
  for (size_t at = 0; at < self.text().size(); first = false) {
    const char32_t point = next_code_point(self.text(), at);
    if (!is_word(point) || (first && is_numeric(point))) {
      return Value::boolean(false);
    }
  }
  return Value::boolean(!first);
}

Value method_expand_tabs(Interpreter& interpreter, Value self, Args arguments) {
  const int64_t size = arguments.get_int(0, "tabsize", 8);
  if (size > 1000) {
    fail("expandtabs needs a tabsize of at most 1000");
  }
  std::string out;
  int64_t column = 0;
  for (size_t at = 0; at < self.text().size();) {
    const size_t start = at;
    const char32_t point = next_code_point(self.text(), at);
    if (point != U'\t') {
      out += self.text().substr(start, at - start);
      column = point == U'\n' || point == U'\r' ? 0 : column + 1;
      continue;
    }
    const int64_t spaces = size > 0 ? size - column % size : 0;
    out.append(static_cast<size_t>(spaces), ' ');
    column += spaces;
    check_text_size(out);
  }
  interpreter.charge(out.size() / 16);
  return interpreter.make_string(out);
}

/// translate({code point: replacement text, code point or None})
Value method_translate(Interpreter& interpreter, Value self, Args arguments) {
  const Value& table = arguments.require(0, "table", "translate");
  if (!table.is_dict()) {
    fail_operand("translate needs a mapping, not", table);
  }
  std::string out;
  for (size_t at = 0; at < self.text().size();) {
    const size_t start = at;
    const char32_t point = next_code_point(self.text(), at);
    const Value* found = table.as_dict().find(Value::integer(static_cast<int64_t>(point)));
    if (found == nullptr) {
      out += self.text().substr(start, at - start);
    } else if (found->is_string()) {
      out += found->text();
    } else if (found->is_int() && found->as_int() >= 0 && found->as_int() <= 0x10FFFF) {
      text::append_utf8(out, static_cast<char32_t>(found->as_int()));
    } else if (!found->is_none()) {
      fail("character mapping must return integer, None or str");
    }
    check_text_size(out);
  }
  interpreter.charge(self.text().size() / 4);
  return interpreter.make_string(out);
}

Value method_remove_prefix(Interpreter&, Value self, Args arguments) {
  const std::string_view prefix = arguments.get_text(0, "prefix", "");
  return Value::string(self.text().substr(self.text().starts_with(prefix) ? prefix.size() : 0));
}

Value method_remove_suffix(Interpreter&, Value self, Args arguments) {
  const std::string_view suffix = arguments.get_text(0, "suffix", "");
  const size_t cut = self.text().ends_with(suffix) ? suffix.size() : 0;
  return Value::string(self.text().substr(0, self.text().size() - cut));
}

/// ljust, rjust, center: shares of the padding that go left, in halves.
template <int kLeftHalves>
Value method_pad(Interpreter& interpreter, Value self, Args arguments) {
  const int64_t width = arguments.get_int(0, "width", 0);
  const std::string_view fill = arguments.get_text(1, "fillchar", " ");
  if (width > 100'000 || count_code_points(fill) != 1) {
    fail("padding needs a width of at most 100000 and one fill character");
  }
  const int64_t space = width - static_cast<int64_t>(count_code_points(self.text()));
  if (space <= 0) {
    return self;
  }
  int64_t left = kLeftHalves == 2 ? space : 0;
  if (kLeftHalves == 1) {
    left = space / 2 + (space & width & 1);
  }
  std::string out;
  for (int64_t i = 0; i < space; ++i) {
    out += i == left ? self.text() : std::string_view();
    out += fill;
  }
  out += left == space ? self.text() : std::string_view();
  interpreter.charge(out.size() / 16);
  return interpreter.make_string(out);
}

Value method_zfill(Interpreter& interpreter, Value self, Args arguments) {
  const int64_t width = arguments.get_int(0, "width", 0);
  const int64_t space = width - static_cast<int64_t>(count_code_points(self.text()));
  if (space <= 0) {
    return self;
  }
  if (space > 100'000) {
    fail("zfill needs a width of at most 100000");
  }
  std::string out(self.text());
  const size_t sign = out.starts_with('-') || out.starts_with('+') ? 1 : 0;
  out.insert(sign, static_cast<size_t>(space), '0');
  return interpreter.make_string(out);
}

Value method_format(Interpreter& interpreter, Value self, Args arguments) {
  return interpreter.make_string(format_braces(interpreter, self.text(), arguments));
}

constexpr Method kMethods[] = {
    {"strip", method_strip<Side::kBoth>, "chars= /"},
    {"lstrip", method_strip<Side::kLeft>, "chars= /"},
    {"rstrip", method_strip<Side::kRight>, "chars= /"},
    {"split", method_split<false>, "sep= maxsplit="},
    {"rsplit", method_split<true>, "sep= maxsplit="},
    {"splitlines", method_splitlines, "keepends="},
    {"partition", method_partition<false>, "sep /"},
    {"rpartition", method_partition<true>, "sep /"},
    {"startswith", method_affix<false>, "prefix start= end= /"},
    {"endswith", method_affix<true>, "prefix start= end= /"},
    {"find", method_find<false, false>, "sub start= end= /"},
    {"rfind", method_find<true, false>, "sub start= end= /"},
    {"index", method_find<false, true>, "sub start= end= /"},
    {"rindex", method_find<true, true>, "sub start= end= /"},
    {"count", method_count, "sub start= end= /"},
    {"replace", method_replace, "old new count= /"},
    {"join", method_join, "iterable /"},
    {"upper", method_convert<to_upper>},
    {"lower", method_convert<to_lower>},
    {"casefold", method_convert<to_folded_case>},
    {"title", method_convert<to_title>},
    {"capitalize", method_convert<to_capitalized>},
    {"isdigit", method_all<is_digit>},
    {"isdecimal", method_all<is_decimal>},
    {"isnumeric", method_all<is_numeric>},
    {"isalpha", method_all<is_alpha>},
    {"isalnum", method_all<is_alphanumeric>},
    {"isascii", method_all<is_ascii, true>},
    {"isprintable", method_all<is_printable, true>},
    {"istitle", method_is_title},
    {"isidentifier", method_is_identifier},
    {"swapcase", method_convert<to_swapped_case>},
    {"expandtabs", method_expand_tabs, "tabsize="},
    {"translate", method_translate, "table /"},
    {"isspace", method_all<is_space>},
    {"isupper", method_is_cased<true>},
    {"islower", method_is_cased<false>},
    {"removeprefix", method_remove_prefix, "prefix /"},
    {"removesuffix", method_remove_suffix, "suffix /"},
    {"ljust", method_pad<0>, "width fillchar= /"},
    {"center", method_pad<1>, "width fillchar= /"},
    {"rjust", method_pad<2>, "width fillchar= /"},
    {"zfill", method_zfill, "width /"},
    {"format", method_format, "*args **kwargs"},
};

}  // namespace

std::span<const Method> string_methods() {
  return kMethods;
}

ListData* split_lines(Interpreter& interpreter, std::string_view text, bool keep_ends) {
  auto* lines = ListData::make(interpreter.arena(), 4);
  interpreter.charge(text.size() / 16);
  size_t start = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = at;
    const char32_t point = next_code_point(text, at);
    const bool ends_line = (point >= 0x0A && point <= 0x0D) || (point >= 0x1C && point <= 0x1E) ||
                           point == 0x85 || point == 0x2028 || point == 0x2029;
    if (!ends_line) {
      continue;
    }
    if (point == U'\r' && at < text.size() && text[at] == '\n') {
      ++at;
    }
    lines->push(interpreter.arena(),
                Value::string(text.substr(start, (keep_ends ? at : end) - start)));
    start = at;
  }
  if (start < text.size()) {
    lines->push(interpreter.arena(), Value::string(text.substr(start)));
  }
  return lines;
}

void check_text_size(const std::string& text) {
  if (text.size() > kTextBytesMax) {
    fail("a text is longer than " + std::to_string(kTextBytesMax) + " bytes", Code::kTooLarge);
  }
}

std::string replace_all(std::string_view text, std::string_view from, std::string_view to,
                        int64_t limit) {
  std::string out;
  size_t at = 0;
  while (limit != 0 && at <= text.size()) {
    const size_t found = find_text(text, from, at);
    if (found == std::string_view::npos) {
      break;
    }
    out += text.substr(at, found - at);
    out += to;
    at = found + from.size();
    if (from.empty()) {  // between all characters
      if (at >= text.size()) {
        at = text.size() + 1;
        break;
      }
      const size_t start = at;
      next_code_point(text, at);
      out += text.substr(start, at - start);
    }
    check_text_size(out);
    limit -= limit > 0 ? 1 : 0;
  }
  if (at < text.size()) {
    out += text.substr(at);
  }
  check_text_size(out);
  return out;
}

}  // namespace stator::chat_template::detail
