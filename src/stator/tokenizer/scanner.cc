// SPDX-License-Identifier: Apache-2.0
#include "stator/tokenizer/scanner.h"

#include "stator/tokenizer/detail/deepseek_llm_scanner.h"
#include "stator/tokenizer/unicode.h"

#include <algorithm>

namespace stator::tokenizer {
namespace {

enum class Case : uint8_t { kSensitive, kInsensitive };

/// The end of the text is the only end.
struct NoBounds {
  static bool ends(const UnicodeTable&, CodePoint, uint32_t) { return false; }
};

/// A position in valid UTF-8 text with the classes of the character there. The text is over where
/// `Bounds` says, as where an earlier expression has cut.
template <typename Bounds = NoBounds>
class Cursor {
 public:
  Cursor(std::string_view text, size_t at, Bounds bounds = {})
      : text_(text), at_(at), bounds_(bounds) {
    load();
  }

  bool done() const { return at_ >= text_.size(); }
  size_t at() const { return at_; }
  /// Classes of the current character; 0 at the end.
  uint32_t flags() const { return flags_; }
  /// Any of `mask`; false at the end.
  bool is(uint32_t mask) const { return (flags_ & mask) != 0; }
  /// None of `mask`; false at the end.
  bool is_not(uint32_t mask) const { return !done() && (flags_ & mask) == 0; }
  bool is_byte(char byte) const { return !done() && text_[at_] == byte; }
  bool is_ascii() const { return !done() && bytes_ == 1; }

  void advance() {
    at_ += bytes_;
    load();
  }
  [[gnu::always_inline]] void skip_while(uint32_t mask) {
    while (is(mask)) {
      advance();
    }
  }
  [[gnu::always_inline]] void skip_while_not(uint32_t mask) {
    while (is_not(mask)) {
      advance();
    }
  }
  Cursor next() const {
    Cursor next = *this;
    next.advance();
    return next;
  }

 private:
  [[gnu::always_inline]] void load() {
    if (done()) {
      flags_ = 0;
      return;
    }
    const auto byte = static_cast<unsigned char>(text_[at_]);
    CodePoint code_point{byte, 1};
    if (byte < 0x80) [[likely]] {
      flags_ = table_.ascii_flags(byte);
    } else {
      code_point = decode_at(text_, at_);
      flags_ = table_.flags(code_point.value);
    }
    bytes_ = code_point.bytes;
    if (bounds_.ends(table_, code_point, flags_)) {
      text_ = text_.substr(0, at_);
      flags_ = 0;
    }
  }

  const UnicodeTable& table_ = UnicodeTable::get();
  std::string_view text_;
  size_t at_;
  uint32_t flags_ = 0;
  uint32_t bytes_ = 0;
  [[no_unique_address]] Bounds bounds_;
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
template <typename Bounds>
size_t scan_space(std::string_view text, Cursor<Bounds> cursor) {
  const size_t at = cursor.at();
  cursor.skip_while(kSpace);
  if (cursor.done()) {
    return cursor.at();
  }
  const size_t last = previous_boundary(text, cursor.at());
  return last > at ? last : cursor.at();
}

/// `\s*[\r\n]+|\s+(?!\S)|\s+`: a run of white space ends after its last line break.
template <typename Bounds>
size_t scan_space_and_lines(std::string_view text, Cursor<Bounds> cursor) {
  const size_t at = cursor.at();
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

/// GPT-2's expression but for its contractions.
template <typename Bounds>
size_t scan_run(std::string_view text, Cursor<Bounds> cursor) {
  const Cursor<Bounds> start = cursor;
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
    return scan_space(text, start);
  }
  return cursor.at();
}

template <typename Bounds>
size_t scan_gpt2(std::string_view text, Cursor<Bounds> cursor) {
  const size_t bytes = contraction_bytes(text, cursor.at(), Case::kSensitive);
  return bytes != 0 ? cursor.at() + bytes : scan_run(text, cursor);
}

size_t scan_digits(Cursor<> cursor, int digits_max) {
  for (int i = 0; i < digits_max && cursor.is(kNumber); ++i) {
    cursor.advance();
  }
  return cursor.at();
}

/// What goes on with a run of symbols behind it.
enum class SymbolTail : uint8_t { kNone, kOneLine, kLines, kLinesAndSlashes };

/// ` ?[^\s…]+[\r\n…]*`: returns where `cursor` is if there is no symbol.
size_t scan_symbols(Cursor<> cursor, uint32_t not_symbol, SymbolTail tail) {
  const size_t at = cursor.at();
  if (cursor.is_byte(' ')) {
    cursor.advance();
  }
  if (!cursor.is_not(not_symbol)) {
    return at;
  }
  cursor.skip_while_not(not_symbol);
  if (tail == SymbolTail::kOneLine) {
    return cursor.is(kNewline) ? cursor.next().at() : cursor.at();
  }
  const uint32_t line = tail == SymbolTail::kNone ? 0U : kNewline;
  while (cursor.is(line) || (tail == SymbolTail::kLinesAndSlashes && cursor.is_byte('/'))) {
    cursor.advance();
  }
  return cursor.at();
}

struct WordRules {
  uint32_t letter;      // classes of the characters of a word
  uint32_t not_symbol;  // classes that a run of symbols stops at
  int digits_max;
  SymbolTail symbol_tail = SymbolTail::kLines;
  bool phrases = false;  // marks and single spaces before letters go on with a word
};

[[gnu::always_inline]] inline size_t scan_word(Cursor<> cursor, const WordRules& rules) {
  cursor.skip_while(rules.letter);
  while (rules.phrases && (cursor.is(rules.letter | kMark) ||
                           (cursor.is_byte(' ') && cursor.next().is(rules.letter)))) {
    cursor.advance();
  }
  return cursor.at();
}

[[gnu::always_inline]] inline size_t scan_cl100k(std::string_view text, size_t at,
                                                 const WordRules& rules) {
  if (const size_t bytes = contraction_bytes(text, at, Case::kInsensitive)) {
    return at + bytes;
  }
  const Cursor start(text, at);
  Cursor cursor = start;
  if (cursor.is(rules.letter)) {
    return scan_word(cursor, rules);
  }
  if (cursor.is(kNumber)) {
    return scan_digits(cursor, rules.digits_max);
  }
  if (!cursor.is(kNewline)) {
    cursor.advance();
    if (cursor.is(rules.letter)) {
      return scan_word(cursor, rules);
    }
  }
  const size_t symbols_end = scan_symbols(start, rules.not_symbol, rules.symbol_tail);
  return symbols_end != at ? symbols_end : scan_space_and_lines(text, start);
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
  const auto tail = rules.slash ? SymbolTail::kLinesAndSlashes : SymbolTail::kLines;
  const size_t symbols_end = scan_symbols(cursor, kSpace | kLetter | kNumber, tail);
  return symbols_end != at ? symbols_end : scan_space_and_lines(text, cursor);
}

size_t scan_kimi_k2(std::string_view text, size_t at) {
  Cursor cursor(text, at);
  if (cursor.is(kHan)) {
    cursor.skip_while(kHan);
    return cursor.at();
  }
  return scan_o200k(text, at, {.slash = false, .not_letter = kHan});
}

/// Digits are cut out one by one.
struct BetweenDigits {
  static bool ends(const UnicodeTable&, CodePoint, uint32_t flags) { return (flags & kDigit) != 0; }
};

size_t scan_starcoder(std::string_view text, size_t at) {
  const Cursor here(text, at);
  if (here.is(kDigit)) {
    return here.next().at();
  }
  return scan_gpt2(text, Cursor(text, at, BetweenDigits{}));
}

/// `[\p{P}\$\+<=>\^~\|]`, and with `kBacktick` that, too.
template <bool kBacktick>
bool is_sign(CodePoint code_point, uint32_t flags) {
  switch (code_point.value) {
    case '$':
    case '+':
    case '<':
    case '=':
    case '>':
    case '^':
    case '~':
    case '|':
      return true;
    case '`':
      return kBacktick;
    default:
      return (flags & kPunctuation) != 0;
  }
}

/// Runs of signs are set apart.
template <bool kBacktick>
struct SignStretch {
  bool apart;
  bool ends(const UnicodeTable&, CodePoint code_point, uint32_t flags) const {
    return is_sign<kBacktick>(code_point, flags) != apart;
  }
};

enum class Numbers : uint8_t { kAfterSpace, kApart };

/// Signs, GPT-2's expression, then numbers if they are apart, and last three digits at a time are
/// cut out of what the expressions before left. Apostrophes are signs: no contractions.
template <bool kBacktick, Numbers kNumbers>
size_t scan_falcon(std::string_view text, size_t at) {
  const CodePoint first = decode_at(text, at);
  const bool apart = is_sign<kBacktick>(first, UnicodeTable::get().flags(first.value));
  Cursor cursor(text, at, SignStretch<kBacktick>{apart});
  if (apart) {
    cursor.skip_while_not(0);
    return cursor.at();
  }
  const bool leads = cursor.is_byte(' ') && cursor.next().is(kNumber);
  if (!leads && !cursor.is(kNumber)) {
    return scan_run(text, cursor);
  }
  if (leads) {
    cursor.advance();
    if (kNumbers == Numbers::kApart) {
      return cursor.at();
    }
  }
  // Three digits end the piece before them; only as much is read, so that digits take linear time.
  size_t digits = 0;
  for (; cursor.is(kNumber) && digits < 3; cursor.advance()) {
    digits = cursor.is_ascii() ? digits + 1 : 0;
  }
  const bool cuts = digits == 3 && cursor.at() - digits > at;
  return cursor.at() - (cuts ? digits : 0);
}

/// Runs of what the Punctuation pre-tokenizer splits on are set apart.
struct PunctuationStretch {
  bool apart;
  bool ends(const UnicodeTable&, CodePoint, uint32_t flags) const {
    return ((flags & kPunctuationSplit) != 0) != apart;
  }
};

/// A number in the byte alphabet, which has ² ³ ¹ ¼ ½ ¾ for six of the bytes that are not ASCII.
bool is_number_byte(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return (byte >= '0' && byte <= '9') || byte == 0xB2 || byte == 0xB3 || byte == 0xB9 ||
         (byte >= 0xBC && byte <= 0xBE);
}

bool starts_three_digits(std::string_view text, size_t at) {
  const std::string_view three = text.substr(at, 3);
  return three.size() == 3 &&
         std::ranges::all_of(three, [](char c) { return c >= '0' && c <= '9'; });
}

/// Punctuation, GPT-2's expression, then runs of numbers and last three digits at a time are cut
/// out, the last two from bytes instead of characters. What a run of characters goes on with is
/// told by any of them, so that a piece may start within one.
size_t scan_falcon_bytes(std::string_view text, size_t at) {
  constexpr uint32_t kRuns = kLetter | kNumber | kSpace;
  const size_t start = previous_boundary(text, at + 1);
  const uint32_t flags = UnicodeTable::get().flags(decode_at(text, start).value);
  Cursor cursor(text, start, PunctuationStretch{(flags & kPunctuationSplit) != 0});
  if (cursor.is_byte(' ') && cursor.next().is_not(kSpace)) {
    cursor.advance();
  } else if (cursor.is(kSpace)) {
    return scan_space(text, cursor);  // no white space has a number among its bytes
  }
  const uint32_t run = cursor.flags() & kRuns;
  const bool numbers = is_number_byte(text[at]);
  size_t end = at;
  do {
    cursor.advance();
    for (; end < cursor.at(); ++end) {
      if (is_number_byte(text[end]) != numbers || (numbers && starts_three_digits(text, end))) {
        return end > at ? end : at + 3;
      }
    }
  } while (!cursor.done() && (cursor.flags() & kRuns) == run);
  return end;
}

/// Numbers are cut out and stretches of some script set apart, whatever they hold.
template <bool (*kIsApart)(char32_t), uint32_t kCut>
struct Stretch {
  bool apart;
  bool ends(const UnicodeTable&, CodePoint code_point, uint32_t flags) const {
    return (flags & kCut) != 0 || kIsApart(code_point.value) != apart;
  }
};

/// `[一-龥぀-ゟ゠-ヿ]`
bool is_chinese_or_kana(char32_t c) {
  return is_in(c, 0x4E00, 0x9FA5) || is_in(c, 0x3040, 0x30FF);
}

/// DeepSeek V3's third expression, in a stretch that the first two have cut out.
template <typename Bounds>
size_t scan_deepseek3_stretch(std::string_view text, Cursor<Bounds> cursor) {
  constexpr uint32_t kWordPart = kLetter | kMark;
  constexpr uint32_t kSign = kPunctuation | kSymbol;
  const Cursor<Bounds> start = cursor;
  if (cursor.is(kWordPart)) {
    cursor.skip_while(kWordPart);
    return cursor.at();
  }
  cursor.advance();
  if (start.is(kSign)) {
    const auto is_ascii_letter = [&] { return cursor.is_ascii() && cursor.is(kLetter); };
    if (start.is_ascii() && is_ascii_letter()) {
      while (is_ascii_letter()) {
        cursor.advance();
      }
      return cursor.at();
    }
  } else if (!start.is(kNewline) && cursor.is(kWordPart)) {
    cursor.skip_while(kWordPart);
    return cursor.at();
  }
  if (start.is(kSign) || (start.is_byte(' ') && cursor.is(kSign))) {
    cursor.skip_while(kSign);
    cursor.skip_while(kNewline);
    return cursor.at();
  }
  if (start.is(kSpace)) {
    return scan_space_and_lines(text, start);
  }
  // Nothing matches a control character unless it leads a word.
  while (cursor.is_not(kWordPart | kSign | kSpace) && !cursor.next().is(kWordPart)) {
    cursor.advance();
  }
  return cursor.at();
}

size_t scan_deepseek3(std::string_view text, size_t at) {
  const Cursor here(text, at);
  if (here.is(kNumber)) {
    return scan_digits(here, 3);
  }
  const Stretch<is_chinese_or_kana, kNumber> stretch{is_chinese_or_kana(decode_at(text, at).value)};
  return scan_deepseek3_stretch(text, Cursor(text, at, stretch));
}

/// Line breaks, then words, then punctuation, each with a space before it, then stretches of
/// eastern scripts in all of that, then digits are cut out one after the other.
size_t scan_deepseek_coder(std::string_view text, size_t at) {
  constexpr uint32_t kCut = kNewline | kDigit;
  const Cursor here(text, at);
  if (here.is(kCut)) {
    return here.next().at();
  }
  const Stretch<is_east_of_arabic, kCut> stretch{is_east_of_arabic(decode_at(text, at).value)};
  Cursor cursor(text, at, stretch);
  // The space belongs to what follows even if that is cut off from it later.
  const auto leads = [text](size_t from) {
    const Cursor space(text, from);
    return space.is(kSpace) && !space.is(kNewline) && space.next().is(kLetter | kPunctuation);
  };
  if (cursor.is(kLetter | kPunctuation) || leads(at)) {
    if (cursor.is(kSpace)) {
      cursor.advance();
    }
    cursor.skip_while(cursor.is(kLetter) ? kLetter : kPunctuation);
    return cursor.at();
  }
  do {
    cursor.advance();
  } while (cursor.is_not(kLetter | kPunctuation) && !leads(cursor.at()));
  return cursor.at();
}

/// `[(\s|.,!?…。，、।۔،)]`
bool is_pause(char32_t c, uint32_t flags) {
  switch (c) {
    case '(':
    case '|':
    case '.':
    case ',':
    case '!':
    case '?':
    case ')':
    case 0x2026:
    case 0x3002:
    case 0xFF0C:
    case 0x3001:
    case 0x0964:
    case 0x06D4:
    case 0x060C:
      return true;
    default:
      return (flags & kSpace) != 0;
  }
}

/// Pauses are set apart and characters of `kCut` cut out.
template <uint32_t kCut>
struct PauseStretch {
  bool apart;
  bool ends(const UnicodeTable&, CodePoint code_point, uint32_t flags) const {
    return (flags & kCut) != 0 || is_pause(code_point.value, flags) != apart;
  }
};

/// BLOOM's words, which take a space before them along.
template <uint32_t kCut>
size_t scan_bloom(std::string_view text, size_t at) {
  const Cursor here(text, at);
  if (here.is(kCut)) {
    return here.next().at();
  }
  const auto stretch_end = [text](size_t from) {
    const CodePoint first = decode_at(text, from);
    const bool apart = is_pause(first.value, UnicodeTable::get().flags(first.value));
    Cursor cursor(text, from, PauseStretch<kCut>{apart});
    cursor.skip_while_not(0);
    return cursor.at();
  };
  const size_t end = stretch_end(at);
  if (text[end - 1] != ' ' || end == text.size()) {
    return end;
  }
  return end - 1 > at ? end - 1 : stretch_end(end);
}

}  // namespace

size_t scan_piece(ScannerFamily family, std::string_view text, size_t at) {
  switch (family) {
    case ScannerFamily::kGpt2:
      return scan_gpt2(text, Cursor(text, at));
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
    case ScannerFamily::kStarcoder:
      return scan_starcoder(text, at);
    case ScannerFamily::kDeepseek3:
      return scan_deepseek3(text, at);
    case ScannerFamily::kDeepseekCoder:
      return scan_deepseek_coder(text, at);
    case ScannerFamily::kFalcon:
      return scan_falcon<true, Numbers::kAfterSpace>(text, at);
    case ScannerFamily::kSigns:
      return scan_falcon<false, Numbers::kApart>(text, at);
    case ScannerFamily::kSeedCoder:
      return scan_cl100k(text, at, {kLetter, kSpace | kLetter | kNumber, 1, SymbolTail::kNone});
    case ScannerFamily::kFalconBytes:
      return scan_falcon_bytes(text, at);
    case ScannerFamily::kDeepseekLlm:
      return scan_deepseek_llm(text, at, kDigit);
    case ScannerFamily::kDeepseekLlmNumbers:
      return scan_deepseek_llm(text, at, kNumber);
    case ScannerFamily::kBloom:
      return scan_bloom<0>(text, at);
    case ScannerFamily::kViking:
      return scan_bloom<kDigit>(text, at);
    case ScannerFamily::kExaoneMoe:
      return scan_cl100k(text, at,
                         {kLetter, kSpace | kLetter | kNumber, 1, SymbolTail::kOneLine, true});
  }
  return text.size();
}

}  // namespace stator::tokenizer
