// SPDX-License-Identifier: Apache-2.0
#include "stator/tokenizer/detail/deepseek_llm_scanner.h"

#include "stator/tokenizer/detail/split_expressions.h"
#include "stator/tokenizer/unicode.h"

#include <algorithm>
#include <array>

namespace stator::tokenizer {
namespace {

struct CodePointRange {
  char32_t first;
  char32_t last;
};

/// The ranges of kDeepseekLlmWords, in order.
constexpr auto kDeepseekLlmLetters = [] {
  std::array<CodePointRange, 87> ranges{};
  const std::string_view list =
      kDeepseekLlmWords.substr(4, kDeepseekLlmWords.size() - 6);  // in `\\s?[…]+`
  size_t count = 0;
  for (size_t at = 0; at < list.size();) {
    const CodePoint first = decode_at(list, at);
    at += first.bytes;
    CodePoint last = first;
    if (at < list.size() && list[at] == '-') {
      last = decode_at(list, at + 1);
      at += 1 + last.bytes;
    }
    ranges.at(count++) = {first.value, last.value};
  }
  return ranges;
}();
static_assert(kDeepseekLlmLetters.back().last == 0x1E943, "the list is as long as the array");

bool is_deepseek_llm_letter(char32_t c) {
  const auto* range = std::ranges::lower_bound(kDeepseekLlmLetters, c, {}, &CodePointRange::last);
  return range != kDeepseekLlmLetters.end() && c >= range->first;
}

/// `[!-/:-~！-／：-～‘-‟　-。]`
bool is_deepseek_llm_sign(char32_t c) {
  return is_in(c, '!', '/') || is_in(c, ':', '~') || is_in(c, 0xFF01, 0xFF0F) ||
         is_in(c, 0xFF1A, 0xFF5E) || is_in(c, 0x2018, 0x201F) || is_in(c, 0x3000, 0x3002);
}

/// DeepSeek-LLM's expressions: line breaks, words, signs, each with a space before it, then white
/// space at the end of what these have left, then stretches of eastern scripts in all of that, then
/// numbers are cut out one after the other. Letters of ASCII are signs, too, so words end where
/// they meet others; so is the ideographic space.
class DeepseekLlmScanner {
 public:
  DeepseekLlmScanner(std::string_view text, uint32_t numbers) : text_(text), numbers_(numbers) {}

  size_t scan(size_t at) const {
    const Character first = read(at);
    if (first.is_line) {
      return at + 1;
    }
    if (first.is_number) {
      return numbers_ == kDigit ? at + first.bytes : numbers_end(at, first);
    }
    const size_t next_at = at + first.bytes;
    const Character next = first.is_space ? read(next_at) : Character{};
    if (next.run != 0) {  // the space belongs to it even if it is cut off from it later
      const bool cut = next.is_eastern != first.is_eastern || first.value == kIdeographicSpace;
      return cut ? next_at : run_end(next_at, next);
    }
    return first.run != 0 ? run_end(at, first) : gap_end(at, first);
  }

 private:
  static constexpr char32_t kIdeographicSpace = 0x3000;
  static constexpr uint8_t kWordRun = 1;
  static constexpr uint8_t kSignRun = 2;

  struct Character {
    char32_t value = 0;
    uint32_t bytes = 0;  // 0: the end of the text
    uint8_t run = 0;     // words and signs are runs of equal ones; 0: in neither
    bool is_space = false;
    bool is_line = false;
    bool is_number = false;
    bool is_eastern = false;
  };

  /// Space that is in no run.
  struct Space {
    size_t last;  // where its last character starts
    size_t end;
    Character next;
  };

  Character classify(size_t at) const {
    if (at >= text_.size()) {
      return {};
    }
    const CodePoint c = decode_at(text_, at);
    const uint32_t flags = UnicodeTable::get().flags(c.value);
    const bool in_word = c.value < 0x80
                             ? (flags & kLetter) != 0
                             : (flags & (kUpper | kLower)) != 0 && is_deepseek_llm_letter(c.value);
    const int run = (in_word ? kWordRun : 0) | (is_deepseek_llm_sign(c.value) ? kSignRun : 0);
    return {.value = c.value,
            .bytes = c.bytes,
            .run = static_cast<uint8_t>(run),
            .is_space = run == 0 && (flags & kSpace) != 0,
            .is_line = (flags & kNewline) != 0,
            .is_number = (flags & numbers_) != 0,
            .is_eastern = is_east_of_arabic(c.value)};
  }

  Character read(size_t at) const {
    Character character = classify(at);
    if (character.value == kIdeographicSpace &&
        (classify(at + character.bytes).run & kWordRun) != 0) {
      character.run = 0;  // words come first
      character.is_space = true;
    }
    return character;
  }

  size_t numbers_end(size_t at, const Character& first) const {
    Character next = first;
    for (; next.is_number && next.is_eastern == first.is_eastern; next = read(at)) {
      at += next.bytes;
    }
    return at;
  }

  size_t run_end(size_t at, const Character& first) const {
    size_t end = at;
    size_t without_space = at;
    Character next = first;
    do {
      end += next.bytes;
      without_space = next.value == kIdeographicSpace ? without_space : end;
      next = read(end);
    } while (next.run == first.run && next.is_eastern == first.is_eastern);
    return next.run != first.run && without_space > at ? without_space : end;
  }

  enum class Reach : uint8_t { kStretch, kAll };

  Space find_space(size_t at, Reach reach) const {
    const Character first = read(at);
    Space space{at, at, first};
    do {
      space.last = space.end;
      space.end += space.next.bytes;
      space.next = read(space.end);
    } while (space.next.is_space && !space.next.is_line &&
             (reach == Reach::kAll || space.next.is_eastern == first.is_eastern));
    return space;
  }

  /// What stands between the runs.
  size_t gap_end(size_t at, const Character& first) const {
    size_t end = at;
    Character next = first;
    do {
      if (!next.is_space) {
        end += next.bytes;
        next = read(end);
        continue;
      }
      if (end > at) {
        const Character behind = find_space(end, Reach::kAll).next;
        if (behind.run != 0 || behind.is_line || behind.bytes == 0) {
          return end;
        }
      }
      const Space space = find_space(end, Reach::kStretch);
      if (space.next.run != 0) {
        return space.last;
      }
      end = space.end;
      next = space.next;
    } while (next.bytes != 0 && next.run == 0 && !next.is_line && !next.is_number &&
             next.is_eastern == first.is_eastern);
    return end;
  }

  std::string_view text_;
  uint32_t numbers_;  // classes
};

}  // namespace

size_t scan_deepseek_llm(std::string_view text, size_t at, uint32_t numbers) {
  return DeepseekLlmScanner(text, numbers).scan(at);
}

}  // namespace stator::tokenizer
