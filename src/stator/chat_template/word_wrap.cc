// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "stator/chat_template/detail/strings.h"
#include "stator/chat_template/detail/text.h"
#include "stator/text/utf8.h"

namespace stator::chat_template::detail {
namespace {

// Python's textwrap with drop_whitespace, and without tab expansion or whitespace replacement.

using Points = std::u32string_view;

bool is_wrap_space(char32_t point) {  // textwrap knows ASCII white space only
  return (point >= 0x09 && point <= 0x0D) || point == U' ';
}
bool is_letter(char32_t point) {  // [^\d\W]
  return is_word(point) && !is_decimal(point);
}
bool is_word_or_mark(char32_t point) {
  return is_word(point) ||
         std::u32string_view(U"!\"'&.,?").find(point) != std::u32string_view::npos;
}

/// Cuts a line into words, runs of white space, and the halves of hyphenated words.
class Splitter {
 public:
  Splitter(Points text, bool at_hyphens) : text_(text), at_hyphens_(at_hyphens) {}

  std::vector<Points> run() {
    std::vector<Points> chunks;
    for (size_t at = 0; at < text_.size();) {
      const size_t end = chunk_end(at);
      chunks.push_back(text_.substr(at, end - at));
      at = end;
    }
    return chunks;
  }

 private:
  char32_t point(size_t at) const { return at < text_.size() ? text_[at] : U'\0'; }
  size_t dashes_end(size_t at) const {
    while (point(at) == U'-') {
      ++at;
    }
    return at;
  }
  /// "--" and more between words: a chunk of its own.
  bool is_long_dash(size_t at) const {
    if (at == 0 || !is_word_or_mark(text_[at - 1])) {  // first, so that a run is walked once
      return false;
    }
    const size_t end = dashes_end(at);
    return end >= at + 2 && end < text_.size() && is_word(text_[end]);
  }
  /// Whether a word may be cut behind the hyphen at `at`.
  bool is_break(size_t at) const {
    const bool before = at >= 2 && is_letter(text_[at - 1]) &&
                        (is_letter(text_[at - 2]) ||
                         (at >= 3 && text_[at - 2] == U'-' && is_letter(text_[at - 3])));
    const size_t after = at + 1;
    return before && is_letter(point(after)) &&
           (is_letter(point(after + 1)) ||
            (point(after + 1) == U'-' && is_letter(point(after + 2))));
  }
  size_t chunk_end(size_t start) const {
    size_t at = start;
    if (is_wrap_space(text_[at])) {
      while (at < text_.size() && is_wrap_space(text_[at])) {
        ++at;
      }
      return at;
    }
    if (at_hyphens_ && is_long_dash(at)) {
      return dashes_end(at);
    }
    for (++at; at < text_.size() && !is_wrap_space(text_[at]); ++at) {
      if (!at_hyphens_) {
        continue;
      }
      if (text_[at - 1] == U'-' && is_break(at - 1) && at - 1 > start) {
        return at;
      }
      if (is_long_dash(at)) {
        return at;
      }
    }
    return at;
  }

  Points text_;
  bool at_hyphens_;
};

/// Where to cut a word longer than a line: behind its last hyphen in there, if any.
size_t long_word_cut(Points word, size_t room, bool at_hyphens) {
  if (!at_hyphens || word.size() <= room || room == 0) {
    return room;
  }
  const size_t hyphen = word.rfind(U'-', room - 1);
  const bool usable = hyphen != Points::npos && hyphen > 0 &&
                      word.substr(0, hyphen).find_first_not_of(U'-') != Points::npos;
  return usable ? hyphen + 1 : room;
}

bool is_blank(Points chunk) {
  return std::ranges::all_of(chunk, is_space);
}

std::string to_text(const std::vector<Points>& chunks) {
  std::string text;
  for (const Points chunk : chunks) {
    for (const char32_t point : chunk) {
      text::append_utf8(text, point);
    }
  }
  return text;
}

}  // namespace

std::vector<std::string> wrap_line(std::string_view line, const WrapStyle& style) {
  std::u32string points;
  for (size_t at = 0; at < line.size();) {
    points += next_code_point(line, at);
  }
  std::vector<Points> chunks = Splitter(points, style.break_on_hyphens).run();
  std::ranges::reverse(chunks);
  std::vector<std::string> lines;
  while (!chunks.empty()) {
    std::vector<Points> row;
    size_t length = 0;
    if (!lines.empty() && is_blank(chunks.back())) {
      chunks.pop_back();
    }
    while (!chunks.empty() && length + chunks.back().size() <= style.width) {
      length += chunks.back().size();
      row.push_back(chunks.back());
      chunks.pop_back();
    }
    if (!chunks.empty() && chunks.back().size() > style.width) {
      if (style.break_long_words) {
        const size_t cut =
            long_word_cut(chunks.back(), style.width - length, style.break_on_hyphens);
        row.push_back(chunks.back().substr(0, cut));
        chunks.back().remove_prefix(cut);
      } else if (row.empty()) {
        row.push_back(chunks.back());
        chunks.pop_back();
      }
    }
    if (!row.empty() && is_blank(row.back())) {
      row.pop_back();
    }
    if (!row.empty()) {
      lines.push_back(to_text(row));
    }
  }
  return lines;
}

}  // namespace stator::chat_template::detail
