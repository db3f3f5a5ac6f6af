// SPDX-License-Identifier: Apache-2.0
#include "stator/chat_template/detail/text.h"
#include "stator/text/utf8.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstring>

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

char32_t next_code_point_before(std::string_view text, size_t end) {
  size_t at = previous_start(text, end);
  return next_code_point(text, at);
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

/// Letters whose upper or title case is more than one letter (Unicode's SpecialCasing).
struct SpecialCase {
  char32_t point;
  std::string_view upper;
  std::string_view title;
};
constexpr SpecialCase kSpecialCases[] = {
    {0x00DF, "SS", "Ss"},
    {0x0149, "\u02BCN", "\u02BCN"},
    {0x01F0, "J\u030C", "J\u030C"},
    {0x0390, "\u0399\u0308\u0301", "\u0399\u0308\u0301"},
    {0x03B0, "\u03A5\u0308\u0301", "\u03A5\u0308\u0301"},
    {0x0587, "\u0535\u0552", "\u0535\u0582"},
    {0x1E96, "H\u0331", "H\u0331"},
    {0x1E97, "T\u0308", "T\u0308"},
    {0x1E98, "W\u030A", "W\u030A"},
    {0x1E99, "Y\u030A", "Y\u030A"},
    {0x1E9A, "A\u02BE", "A\u02BE"},
    {0x1F50, "\u03A5\u0313", "\u03A5\u0313"},
    {0x1F52, "\u03A5\u0313\u0300", "\u03A5\u0313\u0300"},
    {0x1F54, "\u03A5\u0313\u0301", "\u03A5\u0313\u0301"},
    {0x1F56, "\u03A5\u0313\u0342", "\u03A5\u0313\u0342"},
    {0x1FB2, "\u1FBA\u0399", "\u1FBA\u0345"},
    {0x1FB3, "\u0391\u0399", "\u1FBC"},
    {0x1FB4, "\u0386\u0399", "\u0386\u0345"},
    {0x1FB6, "\u0391\u0342", "\u0391\u0342"},
    {0x1FB7, "\u0391\u0342\u0399", "\u0391\u0342\u0345"},
    {0x1FBC, "\u0391\u0399", "\u1FBC"},
    {0x1FC2, "\u1FCA\u0399", "\u1FCA\u0345"},
    {0x1FC3, "\u0397\u0399", "\u1FCC"},
    {0x1FC4, "\u0389\u0399", "\u0389\u0345"},
    {0x1FC6, "\u0397\u0342", "\u0397\u0342"},
    {0x1FC7, "\u0397\u0342\u0399", "\u0397\u0342\u0345"},
    {0x1FCC, "\u0397\u0399", "\u1FCC"},
    {0x1FD2, "\u0399\u0308\u0300", "\u0399\u0308\u0300"},
    {0x1FD3, "\u0399\u0308\u0301", "\u0399\u0308\u0301"},
    {0x1FD6, "\u0399\u0342", "\u0399\u0342"},
    {0x1FD7, "\u0399\u0308\u0342", "\u0399\u0308\u0342"},
    {0x1FE2, "\u03A5\u0308\u0300", "\u03A5\u0308\u0300"},
    {0x1FE3, "\u03A5\u0308\u0301", "\u03A5\u0308\u0301"},
    {0x1FE4, "\u03A1\u0313", "\u03A1\u0313"},
    {0x1FE6, "\u03A5\u0342", "\u03A5\u0342"},
    {0x1FE7, "\u03A5\u0308\u0342", "\u03A5\u0308\u0342"},
    {0x1FF2, "\u1FFA\u0399", "\u1FFA\u0345"},
    {0x1FF3, "\u03A9\u0399", "\u1FFC"},
    {0x1FF4, "\u038F\u0399", "\u038F\u0345"},
    {0x1FF6, "\u03A9\u0342", "\u03A9\u0342"},
    {0x1FF7, "\u03A9\u0342\u0399", "\u03A9\u0342\u0345"},
    {0x1FFC, "\u03A9\u0399", "\u1FFC"},
    {0xFB00, "FF", "Ff"},
    {0xFB01, "FI", "Fi"},
    {0xFB02, "FL", "Fl"},
    {0xFB03, "FFI", "Ffi"},
    {0xFB04, "FFL", "Ffl"},
    {0xFB05, "ST", "St"},
    {0xFB06, "ST", "St"},
    {0xFB13, "\u0544\u0546", "\u0544\u0576"},
    {0xFB14, "\u0544\u0535", "\u0544\u0565"},
    {0xFB15, "\u0544\u053B", "\u0544\u056B"},
    {0xFB16, "\u054E\u0546", "\u054E\u0576"},
    {0xFB17, "\u0544\u053D", "\u0544\u056D"},
};

static_assert(std::ranges::is_sorted(kSpecialCases, {}, &SpecialCase::point));

const SpecialCase* find_special_case(char32_t point) {
  const auto* found = std::ranges::lower_bound(kSpecialCases, point, {}, &SpecialCase::point);
  return found == std::end(kSpecialCases) || found->point != point ? nullptr : found;
}

/// Of a Greek vowel with an iota below, in three blocks of sixteen: the vowel; 0 for other letters.
/// In upper case the iota stands behind it.
char32_t upper_vowel_above_iota(char32_t point) {
  constexpr char32_t kVowels[] = {0x1F08, 0x1F28, 0x1F68};
  constexpr char32_t kFirst = 0x1F80;
  const bool is_one = point >= kFirst && point < kFirst + 3 * 16;
  return is_one ? kVowels[(point - kFirst) / 16] + (point & 7) : 0;
}

void append_upper(std::string& out, char32_t point) {
  constexpr char32_t kUpperIota = 0x0399;
  if (const char32_t vowel = upper_vowel_above_iota(point)) {
    text::append_utf8(out, vowel);
    text::append_utf8(out, kUpperIota);
    return;
  }
  if (const SpecialCase* special = find_special_case(point)) {
    out += special->upper;
    return;
  }
  text::append_utf8(out,
                    static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(point))));
}

void append_title(std::string& out, char32_t point) {
  if (const SpecialCase* special = find_special_case(point)) {
    out += special->title;
    return;
  }
  text::append_utf8(out,
                    static_cast<char32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(point))));
}

bool is_cased(char32_t point) {
  return is_upper(point) || is_lower(point) || is_title_letter(point);
}

/// A sigma that ends a word: behind a letter, and before none.
bool is_final_sigma(std::string_view text, size_t start, size_t end) {
  return start > 0 && is_cased(next_code_point_before(text, start)) &&
         (end == text.size() || !is_cased(next_code_point(text, end)));
}

/// The letter at `at` in lower case; `at` moves past it.
void append_lower(std::string& out, std::string_view text, size_t& at) {
  const size_t start = at;
  const char32_t point = next_code_point(text, at);
  if (point == 0x130) {
    out += "i\u0307";
    return;
  }
  if (point == 0x3A3 && is_final_sigma(text, start, at)) {
    out += "\u03C2";
    return;
  }
  text::append_utf8(out,
                    static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(point))));
}

}  // namespace

size_t find_text(std::string_view text, std::string_view wanted, size_t from) {
  if (from > text.size() || wanted.size() > text.size() - from) {
    return std::string_view::npos;
  }
  if (wanted.empty()) {
    return from;
  }
  const char* start = text.data() + from;
  const void* found = memmem(start, text.size() - from, wanted.data(), wanted.size());
  return found == nullptr ? std::string_view::npos
                          : static_cast<size_t>(static_cast<const char*>(found) - text.data());
}

size_t find_last_text(std::string_view text, std::string_view wanted) {
  constexpr size_t kShortBytes = 32;  // so few times the text's length is linear, too
  if (wanted.size() <= kShortBytes) {
    return text.rfind(wanted);
  }
  const std::string reversed_text(text.rbegin(), text.rend());
  const std::string reversed_wanted(wanted.rbegin(), wanted.rend());
  const size_t found = find_text(reversed_text, reversed_wanted);
  return found == std::string_view::npos ? found : text.size() - found - wanted.size();
}

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

bool is_decimal(char32_t point) {
  return category(point) == UTF8PROC_CATEGORY_ND;
}

std::string with_ascii_digits(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const size_t start = at;
    const char32_t point = next_code_point(text, at);
    if (point < 0x80 || !is_decimal(point)) {
      out += text.substr(start, at - start);
      continue;
    }
    // Digits stand in runs from 0 to 9; those of mathematics directly one behind the other.
    char32_t zero = point;
    while (is_decimal(zero - 1)) {
      --zero;
    }
    out += static_cast<char>('0' + (point - zero) % 10);
  }
  return out;
}

bool is_digit(char32_t point) {
  if (is_decimal(point)) {
    return true;
  }
  // Superscripts, subscripts and circled digits.
  return point == 0xB2 || point == 0xB3 || point == 0xB9 || point == 0x2070 ||
         (point >= 0x2074 && point <= 0x2079) || (point >= 0x2080 && point <= 0x2089) ||
         (point >= 0x2460 && point <= 0x2468);
}

bool is_numeric(char32_t point) {
  const auto kind = category(point);
  if (kind == UTF8PROC_CATEGORY_ND || kind == UTF8PROC_CATEGORY_NL ||
      kind == UTF8PROC_CATEGORY_NO) {
    return true;
  }
  static constexpr std::u32string_view kIdeographs =
      U"〇一二三四五六七八九十百千万亿億零壹贰叁肆伍陆柒捌玖拾佰仟萬两兩";
  return point >= 0x3000 && kIdeographs.find(point) != std::u32string_view::npos;
}

bool is_alphanumeric(char32_t point) {
  return is_alpha(point) || is_numeric(point);
}

bool is_word(char32_t point) {
  return point == U'_' || is_alphanumeric(point);
}

bool is_upper(char32_t point) {
  return category(point) == UTF8PROC_CATEGORY_LU || (point >= 0x2160 && point <= 0x216F) ||
         (point >= 0x24B6 && point <= 0x24CF);
}

bool is_lower(char32_t point) {
  return category(point) == UTF8PROC_CATEGORY_LL || point == 0xAA || point == 0xBA ||
         (point >= 0x2B0 && point <= 0x2B8) || (point >= 0x2170 && point <= 0x217F) ||
         (point >= 0x24D0 && point <= 0x24E9);
}

bool is_title_letter(char32_t point) {
  return category(point) == UTF8PROC_CATEGORY_LT;
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
    append_lower(out, text, at);
  }
  return out;
}

std::string to_title(std::string_view text) {
  std::string out;
  bool in_word = false;
  for (size_t at = 0; at < text.size();) {
    size_t end = at;
    const char32_t point = next_code_point(text, end);
    if (in_word) {
      append_lower(out, text, at);
    } else {
      append_title(out, point);
      at = end;
    }
    in_word = is_cased(point);
  }
  return out;
}

std::string to_capitalized(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    if (at == 0) {
      append_title(out, next_code_point(text, at));
    } else {
      append_lower(out, text, at);
    }
  }
  return out;
}

std::string to_swapped_case(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    size_t end = at;
    const char32_t point = next_code_point(text, end);
    if (is_upper(point)) {
      append_lower(out, text, at);
      continue;
    }
    if (is_lower(point)) {
      append_upper(out, point);
    } else {
      text::append_utf8(out, point);
    }
    at = end;
  }
  return out;
}

std::string to_folded_case(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const auto point = static_cast<utf8proc_int32_t>(next_code_point(text, at));
    utf8proc_int32_t folded[8];
    int boundary = 0;
    const auto count = utf8proc_decompose_char(point, folded, 8, UTF8PROC_CASEFOLD, &boundary);
    for (utf8proc_ssize_t i = 0; i < std::min<utf8proc_ssize_t>(count, 8); ++i) {
      text::append_utf8(out, static_cast<char32_t>(folded[i]));
    }
    if (count < 0) {
      text::append_utf8(out, static_cast<char32_t>(point));
    }
  }
  return out;
}

}  // namespace stator::chat_template::detail
