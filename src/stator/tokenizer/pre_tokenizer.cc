// SPDX-License-Identifier: Apache-2.0
#include "stator/tokenizer/pre_tokenizer.h"

#include "stator/tokenizer/byte_alphabet.h"
#include "stator/tokenizer/normalizer.h"
#include "stator/tokenizer/unicode.h"

#include <algorithm>
#include <utility>

namespace stator::tokenizer {
namespace {

using Behavior = PreTokenizer::Behavior;
using Range = Pieces::Range;

/// Turns the alternating matches and gaps of one piece into pieces.
class SplitBuilder {
 public:
  SplitBuilder(const PreTokenizer::Split& split, std::vector<Range>& out)
      : behavior_(split.behavior), invert_(split.invert), out_(out), first_(out.size()) {}

  /// The next stretch, in text order. Empty stretches count for nothing.
  void add(size_t begin, size_t end, bool is_match) {
    if (begin == end) {
      return;
    }
    const Range range{static_cast<uint32_t>(begin), static_cast<uint32_t>(end)};
    const bool match = is_match != invert_;
    const bool has_previous = out_.size() > first_;
    switch (behavior_) {
      case Behavior::kRemoved:
        if (!match) {
          out_.push_back(range);
        }
        break;
      case Behavior::kIsolated:
        out_.push_back(range);
        break;
      case Behavior::kMergedWithPrevious:
        append(range, match && !previous_match_ && has_previous);
        break;
      case Behavior::kMergedWithNext:
        // A match joins what follows unless that is a match too.
        append(range, has_previous && previous_match_ && !match);
        break;
      case Behavior::kContiguous:
        append(range, has_previous && match == previous_match_);
        break;
    }
    previous_match_ = match;
  }

 private:
  void append(Range range, bool merge) {
    if (merge) {
      out_.back().end = range.end;
    } else {
      out_.push_back(range);
    }
  }

  Behavior behavior_;
  bool invert_;
  std::vector<Range>& out_;
  size_t first_;
  bool previous_match_ = false;
};

// split_one: all matches of one pattern in `text`, which starts at `base` of the whole.

Status split_one(const Regex& regex, std::string_view text, size_t base, SplitBuilder& builder) {
  size_t previous = 0;
  for (size_t from = 0; from <= text.size();) {
    const Regex::Found found = regex.find(text, from);
    if (found.outcome == Regex::Outcome::kGaveUp) {
      return Error(Code::kInvalidArgument,
                   "the pre-tokenizer's regular expression is too expensive for this text: " +
                       regex.pattern());
    }
    if (found.outcome == Regex::Outcome::kNoMatch) {
      break;
    }
    builder.add(base + previous, base + found.begin, false);
    builder.add(base + found.begin, base + found.end, true);
    previous = found.end;
    from = found.end;
    if (found.end == found.begin) {
      from += from < text.size() ? decode_at(text, from).bytes : 1;
    }
  }
  builder.add(base + previous, base + text.size(), false);
  return {};
}

Status split_one(const PreTokenizer::SplitText& pattern, std::string_view text, size_t base,
                 SplitBuilder& builder) {
  size_t previous = 0;
  size_t at = pattern.pattern.empty() ? std::string_view::npos : text.find(pattern.pattern);
  while (at != std::string_view::npos) {
    builder.add(base + previous, base + at, false);
    previous = at + pattern.pattern.size();
    builder.add(base + at, base + previous, true);
    at = text.find(pattern.pattern, previous);
  }
  builder.add(base + previous, base + text.size(), false);
  return {};
}

Status split_one(const PreTokenizer::SplitClass& pattern, std::string_view text, size_t base,
                 SplitBuilder& builder) {
  const UnicodeTable& table = UnicodeTable::get();
  size_t previous = 0;
  for (size_t at = 0; at < text.size();) {
    const CodePoint code_point = decode_at(text, at);
    const size_t end = at + code_point.bytes;
    if ((table.flags(code_point.value) & pattern.unicode_classes) != 0) {
      builder.add(base + previous, base + at, false);
      builder.add(base + at, base + end, true);
      previous = end;
    }
    at = end;
  }
  builder.add(base + previous, base + text.size(), false);
  return {};
}

Status split_one(const PreTokenizer::SplitWords&, std::string_view text, size_t base,
                 SplitBuilder& builder) {
  const UnicodeTable& table = UnicodeTable::get();
  size_t begin = 0;
  uint32_t kind = 0;  // of the current stretch: kWord, kSpace or 0
  for (size_t at = 0; at < text.size();) {
    const CodePoint code_point = decode_at(text, at);
    const uint32_t flags = table.flags(code_point.value);
    const uint32_t next = (flags & kWord) != 0 ? kWord : flags & kSpace;
    if (next != kind) {
      builder.add(base + begin, base + at, kind != kSpace);
      begin = at;
      kind = next;
    }
    at += code_point.bytes;
  }
  builder.add(base + begin, base + text.size(), kind != kSpace);
  return {};
}

// run: one step over all pieces. Ranges go to `next_ranges`.

Status run(const PreTokenizer::Scan& step, Pieces& pieces) {
  for (const Range range : pieces.ranges) {
    const std::string_view text = pieces.text.substr(0, range.end);
    for (size_t at = range.begin; at < range.end;) {
      const size_t end = scan_piece(step.family, text, at);
      pieces.next_ranges.push_back({static_cast<uint32_t>(at), static_cast<uint32_t>(end)});
      at = end;
    }
  }
  return {};
}

Status run(const PreTokenizer::Split& step, Pieces& pieces) {
  for (size_t i = 0; i < pieces.ranges.size(); ++i) {
    SplitBuilder builder(step, pieces.next_ranges);
    const size_t base = pieces.ranges[i].begin;
    STATOR_CHECK(std::visit(
        [&](const auto& pattern) { return split_one(pattern, pieces[i], base, builder); },
        step.pattern));
  }
  return {};
}

/// Writes each piece anew with `write(piece, out)`.
template <typename Write>
Status rewrite(Pieces& pieces, Write write) {
  if (!pieces.ranges.empty() && pieces.ranges[0].begin > 0) {
    pieces.start = TextStart::kNo;  // a step took the start away
  }
  std::string rewritten;
  rewritten.reserve(pieces.text.size() + pieces.ranges.size());
  for (size_t i = 0; i < pieces.ranges.size(); ++i) {
    const size_t begin = rewritten.size();
    write(pieces[i], rewritten);
    if (rewritten.size() > 2 * kMaxNormalizedBytes) {
      return Error(Code::kTooLarge,
                   "the text grows too long in the pre-tokenizer; send a shorter one");
    }
    pieces.next_ranges.push_back(
        {static_cast<uint32_t>(begin), static_cast<uint32_t>(rewritten.size())});
  }
  pieces.buffer = std::move(rewritten);
  pieces.text = pieces.buffer;
  return {};
}

Status run(const PreTokenizer::AddPrefixSpace&, Pieces& pieces) {
  return rewrite(pieces, [](std::string_view piece, std::string& out) {
    if (piece.front() != ' ') {
      out.push_back(' ');
    }
    out.append(piece);
  });
}

Status run(const PreTokenizer::MapSpaces& step, Pieces& pieces) {
  using Prepend = PreTokenizer::MapSpaces::Prepend;
  size_t index = 0;
  return rewrite(pieces, [&](std::string_view piece, std::string& out) {
    const bool is_start = index++ == 0 && pieces.start == TextStart::kYes;
    const bool may_prepend =
        step.prepend == Prepend::kAlways || (step.prepend == Prepend::kFirst && is_start);
    if (may_prepend && piece.front() != ' ' && !piece.starts_with(step.replacement)) {
      out.append(step.replacement);
    }
    for (size_t at = 0; at < piece.size();) {
      const size_t space = std::min(piece.find(' ', at), piece.size());
      out.append(piece.substr(at, space - at));
      if (space < piece.size()) {
        out.append(step.replacement);
      }
      at = space + 1;
    }
  });
}

Status run(const PreTokenizer::SplitScripts&, Pieces& pieces) {
  for (const Range range : pieces.ranges) {
    uint8_t script = kAnyScript;  // of the current piece; kAnyScript: there is none yet
    size_t begin = range.end;
    for (size_t at = range.begin; at < range.end;) {
      const CodePoint code_point = decode_at(pieces.text, at);
      const uint8_t next = script_of(code_point.value);
      if (next != kAnyScript && next != script) {
        if (script != kAnyScript) {
          pieces.next_ranges.push_back({static_cast<uint32_t>(begin), static_cast<uint32_t>(at)});
        }
        begin = at;
        script = next;
      }
      at += code_point.bytes;
    }
    if (begin < range.end) {
      pieces.next_ranges.push_back({static_cast<uint32_t>(begin), range.end});
    }
  }
  return {};
}

Status run(const PreTokenizer::SplitLength& step, Pieces& pieces) {
  for (const Range range : pieces.ranges) {
    for (size_t begin = range.begin; begin < range.end;) {
      size_t end = begin;
      for (size_t i = 0; i < step.chars && end < range.end; ++i) {
        end += decode_at(pieces.text, end).bytes;
      }
      pieces.next_ranges.push_back({static_cast<uint32_t>(begin), static_cast<uint32_t>(end)});
      begin = end;
    }
  }
  return {};
}

Status run(const PreTokenizer::MapBytes&, Pieces& pieces) {
  return rewrite(pieces, [](std::string_view piece, std::string& out) {
    ByteAlphabet::get().append_mapped(piece, out);
  });
}

}  // namespace

Status pre_tokenize(const PreTokenizer& pre_tokenizer, std::string_view text, TextStart start,
                    Pieces& pieces) {
  pieces.start = start;
  pieces.text = text;
  pieces.ranges.clear();
  if (text.empty()) {
    return {};
  }
  pieces.ranges.push_back({0, static_cast<uint32_t>(text.size())});
  for (const PreTokenizer::Step& step : pre_tokenizer.steps) {
    pieces.next_ranges.clear();
    STATOR_CHECK(std::visit([&](const auto& s) { return run(s, pieces); }, step));
    std::swap(pieces.ranges, pieces.next_ranges);
  }
  return {};
}

}  // namespace stator::tokenizer
