// SPDX-License-Identifier: Apache-2.0
#include "stator/tokenizer/piece_scanner.h"

#include "stator/core/assert.h"
#include "stator/tokenizer/unicode.h"

#include <array>
#include <bit>

namespace stator::tokenizer {
namespace {

/// What tells the families apart as long as the text is ASCII.
struct BlockRules {
  enum class Contractions : uint8_t {
    kNone,
    kLowerFirst,  // "'s" is a piece; lower case only
    kFirst,       // "'s" is a piece
    kSuffix,      // "word's" is a piece
  };
  Contractions contractions;
  bool digits_in_threes = false;
  bool lines = true;          // line breaks end runs of white space, one symbol may lead a word
  bool cased = false;         // words end before a capital that follows a small letter
  bool slash = false;         // '/' goes on with the line breaks after symbols
  bool digits_apart = false;  // digits are cut out first, so that they end runs of white space
  enum class Tail : uint8_t { kNone, kOneLine, kLines };
  Tail tail = Tail::kLines;    // line breaks that go on with the symbols before them
  bool controls = true;        // control characters are symbols
  bool phrases = false;        // single spaces go on with the words around them
  bool symbols_apart = false;  // symbols are set apart first, so that they end runs of white space
};

/// The masks cut off before the first byte that the rules say nothing about, and what follows from
/// them.
struct Block {
  /// `stop`: bytes that the block ends before.
  Block(const AsciiMasks& masks, uint64_t stop)
      : bytes(static_cast<size_t>(std::countr_zero(stop))),
        valid(stop == 0 ? ~uint64_t{0} : (stop & (~stop + 1)) - 1),
        letter(masks.letter & valid),
        capital(masks.capital & valid),
        digit(masks.digit & valid),
        space(masks.space & valid),
        newline(masks.newline & valid),
        blank(masks.blank & valid),
        quote(masks.quote & valid),
        symbol(valid & ~(letter | digit | space)) {}

  /// Makes letters of single spaces between letters, and of one that the block ends with: whether a
  /// piece starts there is not certain.
  void join_words() {
    const uint64_t last = uint64_t{1} << (bytes - 1);
    const uint64_t joined = blank & (letter << 1) & (letter >> 1 | last);
    letter |= joined;
    space &= ~joined;
    blank &= ~joined;
  }

  size_t bytes;
  uint64_t valid;
  uint64_t letter;
  uint64_t capital;
  uint64_t digit;
  uint64_t space;
  uint64_t newline;
  uint64_t blank;
  uint64_t quote;
  uint64_t symbol;
};

uint64_t bit(size_t i) {
  return uint64_t{1} << i;
}

/// Bits below `i`, which may be 64.
uint64_t below(size_t i) {
  return i >= 64 ? ~uint64_t{0} : bit(i) - 1;
}

char lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c;
}

/// Bytes of the contraction whose quote is text[0], or 0; three bytes can be read.
template <bool kFold>
size_t contraction_bytes(const char* text) {
  const char first = kFold ? lower(text[1]) : text[1];
  if (first == 's' || first == 't' || first == 'm' || first == 'd') {
    return 2;
  }
  const char second = kFold ? lower(text[2]) : text[2];
  const bool three =
      ((first == 'r' || first == 'v') && second == 'e') || (first == 'l' && second == 'l');
  return three ? 3 : 0;
}

/// First digits of pieces of up to three.
uint64_t starts_of_threes(uint64_t digit) {
  const uint64_t in_threes = digit & (digit << 1) & (digit << 2) & (digit << 3);
  uint64_t starts = digit & ~(digit << 1);
  for (uint64_t next = (starts << 3) & in_threes; next != 0; next = (next << 3) & in_threes) {
    starts |= next;
  }
  return starts;
}

/// Starts within white space for `\s*[\r\n]+|\s+(?!\S)|\s+` after ` ?symbols+[\r\n]*`. `swallowed`
/// are the line breaks that belong to the symbols before them.
template <BlockRules kRules>
uint64_t starts_of_space_and_lines(const Block& block, uint64_t swallowed) {
  const uint64_t gap = block.space & ~block.newline;
  uint64_t first = block.space & ~(block.space << 1) & ~swallowed;
  if constexpr (kRules.tail == BlockRules::Tail::kOneLine) {
    first |= block.space & (swallowed << 1);
  }
  const uint64_t goes_on = kRules.digits_apart ? block.space | block.digit : block.space;
  const uint64_t last = gap & ~(goes_on >> 1);
  // White space after a line break is a piece of its own, unless another line break ends it.
  uint64_t indent = gap & ~(gap << 1) & (block.newline << 1);
  if ((gap & (block.newline >> 1)) != 0) [[unlikely]] {
    for (uint64_t left = indent & ~(swallowed << 1); left != 0; left &= left - 1) {
      const auto begin = static_cast<size_t>(std::countr_zero(left));
      const size_t end = begin + static_cast<size_t>(std::countr_one(gap >> begin));
      if (end < 64 && (block.newline & bit(end)) != 0) {
        indent &= ~bit(begin);
      }
    }
  }
  return first | last | indent;
}

/// "'s" and the like that stand alone, at quotes that lead letters: the letter after it starts a
/// piece. In expressions whose words a symbol may lead, it is the quote's piece that has to end.
template <bool kFold>
uint64_t cut_contractions(uint64_t starts, uint64_t quotes, const Block& block, const char* text) {
  for (; quotes != 0; quotes &= quotes - 1) {
    const auto at = static_cast<size_t>(std::countr_zero(quotes));
    if (const size_t bytes = contraction_bytes<kFold>(text + at); bytes != 0) {
      starts &= ~(below(at + bytes) & ~below(at + 1));
      starts |= at + bytes < 64 ? bit(at + bytes) & block.valid : 0;
    }
  }
  return starts;
}

/// "word's": the quote goes on with the word.
uint64_t join_contractions(uint64_t starts, const Block& block, const char* text) {
  size_t previous_end = 0;  // in "it's're" the second one is the next piece's
  for (uint64_t quotes = block.quote & (block.letter << 1); quotes != 0; quotes &= quotes - 1) {
    const auto at = static_cast<size_t>(std::countr_zero(quotes));
    if (at == previous_end) {
      continue;
    }
    if (at + 3 > block.bytes) {
      return starts & below(at);
    }
    if (const size_t bytes = contraction_bytes<true>(text + at); bytes != 0) {
      previous_end = at + bytes;
      starts &= ~(below(at + bytes) & ~below(at));
      starts |= at + bytes < 64 ? bit(at + bytes) & block.valid : 0;
    }
  }
  return starts;
}

/// Drops what depends on bytes behind the block.
uint64_t keep_certain(uint64_t starts, const Block& block) {
  if ((block.space & bit(block.bytes - 1)) != 0) {
    // Only the first of a run of white space is certain while its end is not in sight.
    const uint64_t rest = block.valid & ~block.space;
    starts &= below(64 - static_cast<size_t>(std::countl_zero(rest)) + 1);
  }
  return starts;
}

template <BlockRules kRules>
uint64_t find_starts_with_lines(const Block& block, const char* text) {
  using Contractions = BlockRules::Contractions;
  const uint64_t gap = block.space & ~block.newline;
  // A single symbol, not after a blank, leads the word behind it.
  const uint64_t leader = block.symbol & ~((block.symbol | block.blank) << 1) & (block.letter >> 1);
  const uint64_t after_symbol = block.newline & (block.symbol << 1);
  uint64_t swallowed = 0;
  if constexpr (kRules.tail == BlockRules::Tail::kOneLine) {
    swallowed = after_symbol;
  } else if constexpr (kRules.tail == BlockRules::Tail::kLines) {
    swallowed = block.newline & ~(block.newline + after_symbol);
  }
  uint64_t starts = block.letter & ~((block.letter | gap | leader) << 1);
  if constexpr (kRules.cased) {
    const uint64_t small = block.letter & ~block.capital;
    starts |= block.capital & (small << 1);
  }
  starts |= kRules.digits_in_threes ? starts_of_threes(block.digit) : block.digit;
  starts |= block.symbol & ~((block.symbol | block.blank) << 1);
  starts |= starts_of_space_and_lines<kRules>(block, swallowed);
  if constexpr (kRules.contractions == Contractions::kFirst) {
    // With one letter only behind the quote, the piece ends there anyway.
    const uint64_t quotes = block.quote & leader & (block.letter >> 2);
    starts = cut_contractions<true>(starts, quotes, block, text);
  }
  if constexpr (kRules.contractions == Contractions::kSuffix) {
    starts = join_contractions(starts, block, text);
  }
  if constexpr (kRules.slash) {
    if (const uint64_t next = block.symbol & (swallowed << 1); next != 0) {
      starts &= below(static_cast<size_t>(std::countr_zero(next)));
    }
  }
  return starts;
}

/// The expression of GPT-2.
template <BlockRules kRules>
uint64_t find_starts_without_lines(const Block& block, const char* text) {
  using Contractions = BlockRules::Contractions;
  const uint64_t blank = block.blank;
  uint64_t starts = block.letter & ~((block.letter | blank) << 1);
  if constexpr (kRules.digits_in_threes) {
    starts |= starts_of_threes(block.digit);
  } else {
    starts |= kRules.digits_apart ? block.digit : block.digit & ~((block.digit | blank) << 1);
  }
  const uint64_t leads_symbols = kRules.symbols_apart ? 0 : blank;
  const uint64_t symbols = block.symbol & ~((block.symbol | leads_symbols) << 1);
  starts |= symbols;
  uint64_t goes_on = block.space;
  goes_on |= kRules.digits_apart ? block.digit : 0;
  goes_on |= kRules.symbols_apart ? block.symbol : 0;
  starts |= block.space & ~((block.space << 1) & (goes_on >> 1));
  const uint64_t quotes =
      kRules.contractions == Contractions::kNone ? 0 : block.quote & symbols & (block.letter >> 1);
  if (quotes != 0) {
    // A contraction may reach behind the block.
    const uint64_t known = below(block.bytes < 3 ? 0 : block.bytes - 2);
    if ((quotes & ~known) != 0) {
      starts &= below(static_cast<size_t>(std::countr_zero(quotes & ~known)) + 1);
    }
    starts = cut_contractions<false>(starts, quotes & known, block, text);
  }
  return starts;
}

template <BlockRules kRules>
uint64_t find_starts(const AsciiMasks& masks, const char* text) {
  Block block(masks, kRules.controls ? masks.other : masks.other | masks.control);
  if (block.bytes == 0) {
    return 0;
  }
  if constexpr (kRules.phrases) {
    block.join_words();
  }
  uint64_t starts = 0;
  if constexpr (kRules.lines) {
    starts = find_starts_with_lines<kRules>(block, text);
  } else {
    starts = find_starts_without_lines<kRules>(block, text);
  }
  return keep_certain(starts, block) & ~uint64_t{1};
}

enum class Digits : uint8_t { kNotApart, kSingle, kRuns };

/// White space goes with the word or the signs behind it. Control characters are neither.
template <Digits kDigits>
uint64_t find_starts_of_deepseek_llm(const AsciiMasks& masks, const char* /*text*/) {
  const Block block(masks, masks.other | masks.control);
  if (block.bytes == 0) {
    return 0;
  }
  const uint64_t gap = block.space & ~block.newline;
  uint64_t starts = block.letter & ~((block.letter | gap) << 1);
  starts |= block.symbol & ~((block.symbol | gap) << 1);
  starts |= kDigits == Digits::kRuns ? block.digit & ~(block.digit << 1) : block.digit;
  starts |= block.newline;
  starts |= gap & (~(gap << 1) | (block.letter | block.symbol) >> 1);
  return keep_certain(starts, block) & ~uint64_t{1};
}

constexpr auto kIsAsciiPause = [] {
  std::array<bool, 256> table{};
  for (const char c : {'(', '|', '.', ',', '!', '?', ')'}) {
    table[static_cast<unsigned char>(c)] = true;
  }
  return table;
}();

template <Digits kDigits>
uint64_t find_starts_of_bloom(const AsciiMasks& masks, const char* text) {
  const Block block(masks, masks.other);
  if (block.bytes == 0) {
    return 0;
  }
  uint64_t pause = block.space;
  for (size_t i = 0; i < block.bytes; ++i) {
    pause |= uint64_t{kIsAsciiPause[static_cast<unsigned char>(text[i])]} << i;
  }
  const uint64_t digit = kDigits == Digits::kSingle ? block.digit : 0;
  const uint64_t word = block.valid & ~(pause | digit);
  uint64_t starts = word & ~((word | block.blank) << 1);
  starts |= digit;
  starts |= pause & ~(pause << 1);
  starts |= block.blank & (word | digit) >> 1;
  return starts & ~uint64_t{1};
}

/// Adds the letters that are not ASCII, up to the first character that is none, to the masks of the
/// block at `text`.
void add_letters(uint32_t letters, std::string_view text, AsciiMasks& masks) {
  constexpr char32_t kLongS = 0x17F;  // the second half of a contraction
  const UnicodeTable& table = UnicodeTable::get();
  while (masks.other != 0) {
    const auto at = static_cast<size_t>(std::countr_zero(masks.other));
    if (at + 4 > kMaskBytes) {
      return;
    }
    const CodePoint code_point = decode_at(text, at);
    const uint32_t flags = table.flags(code_point.value);
    if ((flags & letters) == 0 || code_point.value == kLongS) {
      return;
    }
    const uint64_t bytes = below(code_point.bytes) << at;
    masks.letter |= bytes;
    masks.capital |= (flags & kUpper) != 0 ? bytes : 0;
    masks.other &= ~bytes;
  }
}

/// Classes of the letters that a block may hold besides ASCII. Where case counts, letters without
/// one are left out: they go on with both.
uint32_t letters_of(ScannerFamily family) {
  switch (family) {
    case ScannerFamily::kGpt2:
    case ScannerFamily::kCl100k:
    case ScannerFamily::kQwen2:
    case ScannerFamily::kStarcoder:
    case ScannerFamily::kSeedCoder:
    case ScannerFamily::kExaoneMoe:
    case ScannerFamily::kBloom:
    case ScannerFamily::kViking:
      return kLetter;
    case ScannerFamily::kQwen35:
      return kLetter | kMark;
    case ScannerFamily::kO200k:
    case ScannerFamily::kTekken:
    case ScannerFamily::kKimiK2:
      return kUpper | kLower;
    case ScannerFamily::kDeepseek3:
    case ScannerFamily::kDeepseekCoder:
    case ScannerFamily::kFalcon:
    case ScannerFamily::kSigns:
    case ScannerFamily::kFalconBytes:
    case ScannerFamily::kDeepseekLlm:
    case ScannerFamily::kDeepseekLlmNumbers:
      break;
  }
  return 0;
}

/// Writes the places of the bits, counted from `at`, and perhaps something behind: in all at most
/// kEndsMin. Eight at a time, as there is no foretelling how many a block has (Langdale and Lemire,
/// "Parsing gigabytes of JSON per second", 2019).
void write_places(uint64_t bits, size_t at, uint32_t* places) {
  constexpr size_t kAtOnce = 8;
  constexpr uint64_t kLast = uint64_t{1} << 63;  // so that there is always one
  for (; bits != 0; places += kAtOnce) {
    for (size_t i = 0; i < kAtOnce; ++i) {
      places[i] = static_cast<uint32_t>(at + static_cast<size_t>(std::countr_zero(bits | kLast)));
      bits &= bits - 1;
    }
  }
}

bool is_ascii(char c) {
  return static_cast<unsigned char>(c) < 0x80;
}

}  // namespace

PieceScanner::FindStarts PieceScanner::starts_of(ScannerFamily family) {
  using Contractions = BlockRules::Contractions;
  switch (family) {
    case ScannerFamily::kGpt2:
      return find_starts<BlockRules{.contractions = Contractions::kLowerFirst, .lines = false}>;
    case ScannerFamily::kCl100k:
      return find_starts<BlockRules{.contractions = Contractions::kFirst,
                                    .digits_in_threes = true}>;
    case ScannerFamily::kQwen2:
    case ScannerFamily::kQwen35:
      return find_starts<BlockRules{.contractions = Contractions::kFirst}>;
    case ScannerFamily::kO200k:
      return find_starts<BlockRules{.contractions = Contractions::kSuffix,
                                    .digits_in_threes = true,
                                    .cased = true,
                                    .slash = true}>;
    case ScannerFamily::kTekken:
      return find_starts<BlockRules{
          .contractions = Contractions::kNone, .cased = true, .slash = true}>;
    case ScannerFamily::kKimiK2:
      return find_starts<BlockRules{
          .contractions = Contractions::kSuffix, .digits_in_threes = true, .cased = true}>;
    case ScannerFamily::kStarcoder:
      return find_starts<BlockRules{
          .contractions = Contractions::kLowerFirst, .lines = false, .digits_apart = true}>;
    case ScannerFamily::kDeepseek3:
      return find_starts<BlockRules{.contractions = Contractions::kNone,
                                    .digits_in_threes = true,
                                    .digits_apart = true,
                                    .controls = false}>;
    case ScannerFamily::kSeedCoder:
      return find_starts<BlockRules{.contractions = Contractions::kFirst,
                                    .tail = BlockRules::Tail::kNone}>;
    case ScannerFamily::kExaoneMoe:
      return find_starts<BlockRules{.contractions = Contractions::kFirst,
                                    .tail = BlockRules::Tail::kOneLine,
                                    .phrases = true}>;
    case ScannerFamily::kFalconBytes:
      return find_starts<BlockRules{.contractions = Contractions::kNone,
                                    .digits_in_threes = true,
                                    .lines = false,
                                    .controls = false,
                                    .symbols_apart = true}>;
    case ScannerFamily::kDeepseekLlm:
      return find_starts_of_deepseek_llm<Digits::kSingle>;
    case ScannerFamily::kDeepseekLlmNumbers:
      return find_starts_of_deepseek_llm<Digits::kRuns>;
    case ScannerFamily::kBloom:
      return find_starts_of_bloom<Digits::kNotApart>;
    case ScannerFamily::kViking:
      return find_starts_of_bloom<Digits::kSingle>;
    case ScannerFamily::kDeepseekCoder:
    case ScannerFamily::kFalcon:
    case ScannerFamily::kSigns:
      break;
  }
  return nullptr;
}

PieceScanner::PieceScanner(ScannerFamily family, SimdLevel level)
    : family_(family),
      letters_(letters_of(family)),
      classify_(ascii_classifier(level)),
      find_starts_(starts_of(family)) {}

size_t PieceScanner::scan(std::string_view text, size_t& at, std::span<uint32_t> ends) const {
  STATOR_ASSERT(ends.size() >= kEndsMin, "there is room for the pieces of a block");
  size_t count = 0;
  while (at < text.size() && count + kEndsMin <= ends.size()) {
    if (find_starts_ != nullptr && at + kMaskBytes <= text.size() && is_ascii(text[at])) {
      AsciiMasks masks;
      classify_(text.data() + at, masks);
      if (masks.other != 0 && letters_ != 0) {
        add_letters(letters_, text.substr(at), masks);
      }
      const uint64_t starts = find_starts_(masks, text.data() + at);
      if (starts != 0) {
        write_places(starts, at, ends.data() + count);
        count += static_cast<size_t>(std::popcount(starts));
        at = ends[count - 1];
        if (masks.other == 0) {
          continue;
        }
      }
    }
    // Text with other characters seldom has just one.
    do {
      at = scan_piece(family_, text, at);
      ends[count++] = static_cast<uint32_t>(at);
    } while (count < ends.size() && at + 1 < text.size() &&
             !(is_ascii(text[at]) && is_ascii(text[at + 1])));
  }
  return count;
}

}  // namespace stator::tokenizer
