// SPDX-License-Identifier: Apache-2.0
#include "stator/tokenizer/detail/code_point_set.h"

#include "stator/tokenizer/unicode.h"

#include <algorithm>
#include <utility>

namespace stator::tokenizer {
namespace {

constexpr char32_t kEnd = 0x110000;
constexpr char32_t kSurrogatesBegin = 0xD800;
constexpr char32_t kSurrogatesEnd = 0xE000;

}  // namespace

/// `ranges` are sorted by their starts; they may overlap, touch and hold surrogates.
CodePointSet CodePointSet::of_sorted(std::vector<Range> ranges) {
  CodePointSet set;
  const auto add = [&set](char32_t first, char32_t last) {
    if (first > last) {
      return;
    }
    if (!set.ranges_.empty() && first <= set.ranges_.back().last + 1) {
      set.ranges_.back().last = std::max(set.ranges_.back().last, last);
    } else {
      set.ranges_.push_back({first, last});
    }
  };
  for (const Range& range : ranges) {
    if (range.first < kSurrogatesBegin) {
      add(range.first, std::min<char32_t>(range.last, kSurrogatesBegin - 1));
    }
    if (range.last >= kSurrogatesEnd) {
      add(std::max(range.first, kSurrogatesEnd), range.last);
    }
  }
  return set;
}

CodePointSet CodePointSet::of(char32_t first, char32_t last) {
  return of_sorted({{first, last}});
}

CodePointSet CodePointSet::of(CategorySet categories) {
  std::vector<Range> ranges;
  const auto runs = category_runs();
  for (size_t i = 0; i < runs.size(); ++i) {
    if ((as_set(runs[i].category) & categories) != 0) {
      ranges.push_back({runs[i].first, (i + 1 < runs.size() ? runs[i + 1].first : kEnd) - 1});
    }
  }
  return of_sorted(std::move(ranges));
}

CodePointSet CodePointSet::of_class(uint32_t unicode_classes) {
  std::vector<Range> ranges;
  const UnicodeTable& table = UnicodeTable::get();
  for (char32_t c = 0; c < kEnd; ++c) {
    if ((table.flags(c) & unicode_classes) != 0) {
      if (!ranges.empty() && ranges.back().last + 1 == c) {
        ranges.back().last = c;
      } else {
        ranges.push_back({c, c});
      }
    }
  }
  return of_sorted(std::move(ranges));
}

CodePointSet CodePointSet::united(const CodePointSet& other) const {
  std::vector<Range> ranges(ranges_.size() + other.ranges_.size());
  std::ranges::merge(ranges_, other.ranges_, ranges.begin(), {}, &Range::first, &Range::first);
  return of_sorted(std::move(ranges));
}

CodePointSet CodePointSet::complement() const {
  std::vector<Range> ranges;
  char32_t next = 0;
  for (const Range& range : ranges_) {
    if (range.first > next) {
      ranges.push_back({next, range.first - 1});
    }
    next = range.last + 1;
  }
  if (next < kEnd) {
    ranges.push_back({next, kEnd - 1});
  }
  return of_sorted(std::move(ranges));
}

CodePointSet CodePointSet::intersected(const CodePointSet& other) const {
  return complement().united(other.complement()).complement();
}

bool CodePointSet::contains(char32_t c) const {
  return std::ranges::any_of(
      ranges_, [c](const Range& range) { return range.first <= c && c <= range.last; });
}

std::optional<std::vector<char32_t>> CodePointSet::members(size_t most) const {
  std::vector<char32_t> all;
  for (const Range& range : ranges_) {
    if (range.last - range.first >= most || all.size() + (range.last - range.first + 1) > most) {
      return std::nullopt;
    }
    for (char32_t c = range.first; c <= range.last; ++c) {
      all.push_back(c);
    }
  }
  return all;
}

void append_varint(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7U) {
    out.push_back(static_cast<char>(value | 0x80U));
  }
  out.push_back(static_cast<char>(value));
}

void CodePointSet::append_form(std::string& out) const {
  append_varint(out, ranges_.size());
  char32_t next = 0;
  for (const Range& range : ranges_) {
    append_varint(out, range.first - next);
    append_varint(out, range.last - range.first);
    next = range.last;
  }
}

}  // namespace stator::tokenizer
