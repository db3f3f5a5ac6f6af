// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "stator/tokenizer/general_category.h"

namespace stator::tokenizer {

/// A set of Unicode scalar values, for reasoning about regular expressions; not for matching.
class CodePointSet {
 public:
  static CodePointSet of(char32_t first, char32_t last);
  static CodePointSet of(CategorySet categories);
  /// By the bits of UnicodeTable (unicode.h).
  static CodePointSet of_class(uint32_t unicode_classes);

  CodePointSet united(const CodePointSet& other) const;
  CodePointSet complement() const;
  CodePointSet intersected(const CodePointSet& other) const;
  CodePointSet without(const CodePointSet& other) const { return intersected(other.complement()); }

  bool empty() const { return ranges_.empty(); }
  bool contains(char32_t c) const;
  /// The members in order, unless there are more than `most`.
  std::optional<std::vector<char32_t>> members(size_t most) const;
  /// Equal sets append equal bytes, and from them the end of the set is known.
  void append_form(std::string& out) const;

 private:
  struct Range {
    char32_t first;
    char32_t last;
  };
  static CodePointSet of_sorted(std::vector<Range> ranges);
  std::vector<Range> ranges_;  // sorted, not touching, free of surrogates
};

/// Appends `value` in 7-bit groups.
void append_varint(std::string& out, uint64_t value);

}  // namespace stator::tokenizer
