// SPDX-License-Identifier: Apache-2.0
#include "stator/tokenizer/scanner.h"

#include "stator/tokenizer/unicode.h"

#include <array>
#include <utility>

namespace stator::tokenizer {
namespace {

constexpr std::array kPatterns = {
    std::pair{ScannerFamily::kGpt2,
              std::string_view(
                  R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)")},
    std::pair{
        ScannerFamily::kCl100k,
        std::string_view(R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|)"
                         R"( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)")},
    std::pair{ScannerFamily::kQwen2,
              std::string_view(R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|)"
                               R"( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)")},
    std::pair{
        ScannerFamily::kQwen35,
        std::string_view(R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}|)"
                         R"( ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)")},
    std::pair{
        ScannerFamily::kO200k,
        std::string_view(R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*)"
                         R"([\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
                         R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+)"
                         R"([\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}|)"
                         R"( ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)")},
    std::pair{ScannerFamily::kTekken,
              std::string_view(R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*)"
                               R"([\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?)"
                               R"([\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|)"
                               R"(\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)")},
    std::pair{ScannerFamily::kKimiK2,
              std::string_view(
                  R"([\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*)"
                  R"([\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
                  R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+)"
                  R"([\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
                  R"(\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)")},
    std::pair{ScannerFamily::kKimiK2,  // without class intersections
              std::string_view(
                  R"([\p{Han}]+|[^\r\n\p{L}\p{N}]?(?:(?!\p{Han})[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])*)"
                  R"((?:(?!\p{Han})[\p{Ll}\p{Lm}\p{Lo}\p{M}])+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
                  R"([^\r\n\p{L}\p{N}]?(?:(?!\p{Han})[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])+)"
                  R"((?:(?!\p{Han})[\p{Ll}\p{Lm}\p{Lo}\p{M}])*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
                  R"(\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)")},
};

enum class Case : uint8_t { kSensitive, kInsensitive };

/// A position in valid UTF-8 text with the classes of the character there.
class Cursor {
 public:
  Cursor(std::string_view text, size_t at) : text_(text), at_(at) { load(); }

  bool done() const { return at_ >= text_.size(); }
  size_t at() const { return at_; }
  /// Classes of the current character; 0 at the end.
  uint32_t flags() const { return flags_; }
  /// Any of `mask`; false at the end.
  bool is(uint32_t mask) const { return (flags_ & mask) != 0; }
  /// None of `mask`; false at the end.
  bool is_not(uint32_t mask) const { return !done() && (flags_ & mask) == 0; }
  bool is_byte(char byte) const { return !done() && text_[at_] == byte; }

  void advance() {
    at_ += bytes_;
    load();
  }
  void skip_while(uint32_t mask) {
    while (is(mask)) {
      advance();
    }
  }
  void skip_while_not(uint32_t mask) {
    while (is_not(mask)) {
      advance();
    }
  }

 private:
  void load() {
    if (done()) {
      flags_ = 0;
      return;
    }
    const auto byte = static_cast<unsigned char>(text_[at_]);
    if (byte < 0x80) [[likely]] {
      bytes_ = 1;
      flags_ = table_.ascii_flags(byte);
      return;
    }
    const CodePoint code_point = decode_at(text_, at_);
    bytes_ = code_point.bytes;
    flags_ = table_.flags(code_point.value);
  }

  const UnicodeTable& table_ = UnicodeTable::get();
  std::string_view text_;
  size_t at_;
  uint32_t flags_ = 0;
  uint32_t bytes_ = 0;
};

/// Bytes of a contraction ('s 't 're 've 'm 'll 'd) at `at`, or 0. Ignoring case, U+017F is an s.
size_t contraction_bytes(std::string_view text, size_t at, Case sensitivity) {
  if (at + 1 >= text.size() || text[at] != '\'') {
    return 0;
  }
  const auto letter = [&](size_t i) {
    const char c = at + i < text.size() ? text[at + i] : '\0';
    const bool fold = sensitivity == Case::kInsensitive && c >= 'A' && c <= 'Z';
    return fold ? static_cast<char>(c + ('a' - 'A')) : c;
  };
  const char first = letter(1);
  if (first == 's' || first == 't' || first == 'm' || first == 'd') {
    return 2;
  }
  const char second = letter(2);
  if (((first == 'r' || first == 'v') && second == 'e') || (first == 'l' && second == 'l')) {
    return 3;
  }
  const bool long_s = sensitivity == Case::kInsensitive && text.substr(at + 1, 2) == "\xC5\xBF";
  return long_s ? 3 : 0;
}

/// `\s+(?!\S)|\s+`: a run of white space leaves its last character to the word that follows.
size_t scan_space(std::string_view text, size_t at) {
  Cursor cursor(text, at);
  cursor.skip_while(kSpace);
  if (cursor.done()) {
    return cursor.at();
  }
  const size_t last = previous_boundary(text, cursor.at());
  return last > at ? last : cursor.at();
}

/// `\s*[\r\n]+|\s+(?!\S)|\s+`: a run of white space ends after its last line break.
size_t scan_space_and_lines(std::string_view text, size_t at) {
  Cursor cursor(text, at);
  size_t after_line = 0;
  while (cursor.is(kSpace)) {
    const bool line = cursor.is(kNewline);
    cursor.advance();
    after_line = line ? cursor.at() : after_line;
  }
  if (after_line != 0) {
    return after_line;
  }
  if (cursor.done()) {
    return cursor.at();
  }
  const size_t last = previous_boundary(text, cursor.at());
  return last > at ? last : cursor.at();
}

size_t scan_gpt2(std::string_view text, size_t at) {
  if (const size_t bytes = contraction_bytes(text, at, Case::kSensitive)) {
    return at + bytes;
  }
  Cursor cursor(text, at);
  if (cursor.is_byte(' ')) {
    cursor.advance();
  }
  if (cursor.is(kLetter)) {
    cursor.skip_while(kLetter);
  } else if (cursor.is(kNumber)) {
    cursor.skip_while(kNumber);
  } else if (cursor.is_not(kSpace)) {
    cursor.skip_while_not(kSpace | kLetter | kNumber);
  } else {
    return scan_space(text, at);
  }
  return cursor.at();
}

size_t scan_digits(Cursor cursor, int digits_max) {
  for (int i = 0; i < digits_max && cursor.is(kNumber); ++i) {
    cursor.advance();
  }
  return cursor.at();
}

/// ` ?[^\s…]+[\r\n…]*`: returns `at` if there is no symbol. `slash` also swallows '/' in the tail.
size_t scan_symbols(std::string_view text, size_t at, uint32_t not_symbol, bool slash) {
  Cursor cursor(text, at);
  if (cursor.is_byte(' ')) {
    cursor.advance();
  }
  if (!cursor.is_not(not_symbol)) {
    return at;
  }
  cursor.skip_while_not(not_symbol);
  while (cursor.is(kNewline) || (slash && cursor.is_byte('/'))) {
    cursor.advance();
  }
  return cursor.at();
}

struct WordRules {
  uint32_t letter;      // classes of the characters of a word
  uint32_t not_symbol;  // classes that a run of symbols stops at
  int digits_max;
};

size_t scan_cl100k(std::string_view text, size_t at, const WordRules& rules) {
  if (const size_t bytes = contraction_bytes(text, at, Case::kInsensitive)) {
    return at + bytes;
  }
  Cursor cursor(text, at);
  if (cursor.is(rules.letter)) {
    cursor.skip_while(rules.letter);
    return cursor.at();
  }
  if (cursor.is(kNumber)) {
    return scan_digits(cursor, rules.digits_max);
  }
  if (!cursor.is(kNewline)) {
    Cursor word = cursor;
    word.advance();
    if (word.is(rules.letter)) {
      word.skip_while(rules.letter);
      return word.at();
    }
  }
  const size_t symbols_end = scan_symbols(text, at, rules.not_symbol, /*slash=*/false);
  return symbols_end != at ? symbols_end : scan_space_and_lines(text, at);
}

/// Ends of the two word alternatives of o200k; equal to the start where one does not match.
struct CasedWord {
  size_t ending_lower;  // upper* lower+
  size_t all_upper;     // upper+ lower*, asked for only where the first matches nowhere
};

/// Characters without case and marks belong to both the upper and the lower class, so `upper*` may
/// have to give some back to `lower+`.
CasedWord scan_cased_word(std::string_view text, size_t at, uint32_t not_letter) {
  const auto in_class = [not_letter](uint32_t flags, uint32_t other_case) {
    return (flags & not_letter) == 0 &&
           ((flags & kMark) != 0 || ((flags & kLetter) != 0 && (flags & other_case) == 0));
  };
  Cursor cursor(text, at);
  size_t both_end = at;  // end of the last character of the upper run that also counts as lower
  while (in_class(cursor.flags(), kLower)) {
    const bool both = in_class(cursor.flags(), kUpper);
    cursor.advance();
    both_end = both ? cursor.at() : both_end;
  }
  const size_t upper_end = cursor.at();
  while (in_class(cursor.flags(), kUpper)) {
    cursor.advance();
  }
  return {cursor.at() != upper_end ? cursor.at() : both_end, upper_end};
}

/// What tells the descendants of o200k apart.
struct CasedRules {
  bool contractions = true;  // after a word
  int digits_max = 3;
  bool slash = true;        // in the tail of symbols
  uint32_t not_letter = 0;  // classes that are in no word
};

/// `[^\r\n\p{L}\p{N}]?` and one of the word alternatives; `at` if there is no word here.
size_t scan_o200k_word(std::string_view text, size_t at, uint32_t not_letter) {
  Cursor next(text, at);
  const bool may_lead = next.is_not(kNewline | kLetter | kNumber);
  const CasedWord here = scan_cased_word(text, at, not_letter);
  if (!may_lead) {
    return here.ending_lower != at ? here.ending_lower : here.all_upper;
  }
  next.advance();
  const CasedWord led = scan_cased_word(text, next.at(), not_letter);
  if (led.ending_lower != next.at()) {
    return led.ending_lower;
  }
  if (here.ending_lower != at) {
    return here.ending_lower;
  }
  return led.all_upper != next.at() ? led.all_upper : here.all_upper;
}

size_t scan_o200k(std::string_view text, size_t at, const CasedRules& rules) {
  if (const size_t end = scan_o200k_word(text, at, rules.not_letter); end != at) {
    return end + (rules.contractions ? contraction_bytes(text, end, Case::kInsensitive) : 0);
  }
  const Cursor cursor(text, at);
  if (cursor.is(kNumber)) {
    return scan_digits(cursor, rules.digits_max);
  }
  const size_t symbols_end = scan_symbols(text, at, kSpace | kLetter | kNumber, rules.slash);
  return symbols_end != at ? symbols_end : scan_space_and_lines(text, at);
}

size_t scan_kimi_k2(std::string_view text, size_t at) {
  Cursor cursor(text, at);
  if (cursor.is(kHan)) {
    cursor.skip_while(kHan);
    return cursor.at();
  }
  return scan_o200k(text, at, {.slash = false, .not_letter = kHan});
}

}  // namespace

std::optional<ScannerFamily> find_scanner(std::string_view pattern) {
  for (const auto& [family, known] : kPatterns) {
    if (pattern == known) {
      return family;
    }
  }
  return std::nullopt;
}

size_t scan_piece(ScannerFamily family, std::string_view text, size_t at) {
  switch (family) {
    case ScannerFamily::kGpt2:
      return scan_gpt2(text, at);
    case ScannerFamily::kCl100k:
      return scan_cl100k(text, at, {kLetter, kSpace | kLetter | kNumber, 3});
    case ScannerFamily::kQwen2:
      return scan_cl100k(text, at, {kLetter, kSpace | kLetter | kNumber, 1});
    case ScannerFamily::kQwen35:
      return scan_cl100k(text, at, {kLetter | kMark, kSpace | kLetter | kMark | kNumber, 1});
    case ScannerFamily::kO200k:
      return scan_o200k(text, at, {});
    case ScannerFamily::kTekken:
      return scan_o200k(text, at, {.contractions = false, .digits_max = 1});
    case ScannerFamily::kKimiK2:
      return scan_kimi_k2(text, at);
  }
  return text.size();
}

}  // namespace stator::tokenizer
