// SPDX-License-Identifier: Apache-2.0
#include "stator/chat_template/detail/text.h"

#include <utf8proc.h>

#include <algorithm>

namespace stator::chat_template::detail {
namespace {

bool is_continuation(char byte) {
  return (static_cast<unsigned char>(byte) & 0xC0U) == 0x80U;
}

/// Start of the code point that ends before `end`.
size_t previous_start(std::string_view text, size_t end) {
  size_t start = end - 1;
  while (start > 0 && end - start < 4 && is_continuation(text[start])) {
    --start;
  }
  size_t at = start;
  next_code_point(text, at);
  return at == end ? start : end - 1;
}

utf8proc_category_t category(char32_t point) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(point));
}

template <typename Predicate>
std::string_view strip_if(std::string_view text, Side side, Predicate removed) {
  if (side != Side::kRight) {
    while (!text.empty()) {
      size_t at = 0;
      if (!removed(next_code_point(text, at))) {
        break;
      }
      text.remove_prefix(at);
    }
  }
  if (side != Side::kLeft) {
    while (!text.empty()) {
      const size_t start = previous_start(text, text.size());
      size_t at = start;
      if (!removed(next_code_point(text, at))) {
        break;
      }
      text = text.substr(0, start);
    }
  }
  return text;
}

void append_upper(std::string& out, char32_t point) {
  if (point == 0xDF) {  // the one full mapping seen in practice
    out += "SS";
    return;
  }
  append_code_point(out,
                    static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(point))));
}

void append_lower(std::string& out, char32_t point) {
  append_code_point(out,
                    static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(point))));
}

}  // namespace

char32_t next_code_point(std::string_view text, size_t& at) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(at);
  const size_t left = text.size() - at;
  if (lead < 0x80) {
    ++at;
    return lead;
  }
  size_t length = 0;
  char32_t point = 0;
  if (lead >= 0xC2 && lead < 0xE0) {
    length = 2;
    point = lead & 0x1FU;
  } else if (lead >= 0xE0 && lead < 0xF0) {
    length = 3;
    point = lead & 0x0FU;
  } else if (lead >= 0xF0 && lead < 0xF5) {
    length = 4;
    point = lead & 0x07U;
  }
  if (length == 0 || length > left) {
    ++at;
    return lead;
  }
  for (size_t i = 1; i < length; ++i) {
    if (!is_continuation(text[at + i])) {
      ++at;
      return lead;
    }
    point = (point << 6U) | (byte(at + i) & 0x3FU);
  }
  at += length;
  return point;
}

void append_code_point(std::string& out, char32_t point) {
  if (point < 0x80) {
    out += static_cast<char>(point);
  } else if (point < 0x800) {
    out += static_cast<char>(0xC0U | (point >> 6U));
    out += static_cast<char>(0x80U | (point & 0x3FU));
  } else if (point < 0x10000) {
    out += static_cast<char>(0xE0U | (point >> 12U));
    out += static_cast<char>(0x80U | ((point >> 6U) & 0x3FU));
    out += static_cast<char>(0x80U | (point & 0x3FU));
  } else {
    out += static_cast<char>(0xF0U | (point >> 18U));
    out += static_cast<char>(0x80U | ((point >> 12U) & 0x3FU));
    out += static_cast<char>(0x80U | ((point >> 6U) & 0x3FU));
    out += static_cast<char>(0x80U | (point & 0x3FU));
  }
}

size_t count_code_points(std::string_view text) {
  return static_cast<size_t>(
      std::ranges::count_if(text, [](char byte) { return !is_continuation(byte); }));
}

size_t byte_offset(std::string_view text, size_t index) {
  for (size_t at = 0; at < text.size(); ++at) {
    if (!is_continuation(text[at]) && index-- == 0) {
      return at;
    }
  }
  return text.size();
}

bool is_space(char32_t point) {
  if (point < 0x80) {
    return (point >= 0x09 && point <= 0x0D) || (point >= 0x1C && point <= 0x20);
  }
  return point == 0x85 || point == 0xA0 || point == 0x1680 ||
         (point >= 0x2000 && point <= 0x200A) || point == 0x2028 || point == 0x2029 ||
         point == 0x202F || point == 0x205F || point == 0x3000;
}

bool is_printable(char32_t point) {
  if (point < 0x7F) {
    return point >= 0x20;
  }
  switch (category(point)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS:
      return false;
    default:
      return true;
  }
}

bool is_alpha(char32_t point) {
  const auto kind = category(point);
  return kind >= UTF8PROC_CATEGORY_LU && kind <= UTF8PROC_CATEGORY_LO;
}

bool is_digit(char32_t point) {
  return category(point) == UTF8PROC_CATEGORY_ND;
}

bool is_upper(char32_t point) {
  return category(point) == UTF8PROC_CATEGORY_LU;
}

bool is_lower(char32_t point) {
  return category(point) == UTF8PROC_CATEGORY_LL;
}

std::string_view strip(std::string_view text, Side side) {
  return strip_if(text, side, is_space);
}

std::string_view strip(std::string_view text, std::string_view characters, Side side) {
  return strip_if(text, side, [characters](char32_t point) {
    for (size_t at = 0; at < characters.size();) {
      if (next_code_point(characters, at) == point) {
        return true;
      }
    }
    return false;
  });
}

std::string to_upper(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    append_upper(out, next_code_point(text, at));
  }
  return out;
}

std::string to_lower(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    append_lower(out, next_code_point(text, at));
  }
  return out;
}

std::string to_title(std::string_view text) {
  std::string out;
  bool in_word = false;
  for (size_t at = 0; at < text.size();) {
    const char32_t point = next_code_point(text, at);
    if (in_word) {
      append_lower(out, point);
    } else {
      append_upper(out, point);
    }
    in_word = is_alpha(point);
  }
  return out;
}

std::string to_capitalized(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const bool first = at == 0;
    const char32_t point = next_code_point(text, at);
    if (first) {
      append_upper(out, point);
    } else {
      append_lower(out, point);
    }
  }
  return out;
}

}  // namespace stator::chat_template::detail
