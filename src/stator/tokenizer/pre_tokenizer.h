// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "stator/core/result.h"
#include "stator/tokenizer/regex.h"
#include "stator/tokenizer/scanner.h"

namespace stator::tokenizer {

/// How normalized text is cut into the pieces that the model sees one by one. Plain data: sequences
/// are flattened and the reference's pre-tokenizers broken into these primitive steps, for example
/// ByteLevel{add_prefix_space, use_regex} into AddPrefixSpace, Scan{kGpt2}, MapBytes.
struct PreTokenizer {
  /// What becomes of the stretches that a Split matches.
  enum class Behavior : uint8_t {
    kRemoved,
    kIsolated,
    kMergedWithPrevious,
    kMergedWithNext,
    kContiguous,
  };
  /// Each piece that does not start with a space gets one.
  struct AddPrefixSpace {};
  struct Scan {
    ScannerFamily family;
  };
  struct SplitText {
    std::string pattern;  // empty: matches nothing
  };
  /// Every character of one of the classes is a match of its own.
  struct SplitClass {
    uint32_t unicode_classes;
  };
  /// `\w+|[^\w\s]+` as the reference's Rust side defines it.
  struct SplitWords {};
  struct Split {
    std::variant<Regex, SplitText, SplitClass, SplitWords> pattern;
    Behavior behavior = Behavior::kIsolated;
    bool invert = false;  ///< matches and gaps change roles
  };
  /// Every byte to its character of the byte alphabet.
  struct MapBytes {};
  /// Spaces to `replacement`, which also goes before pieces that do not start with it.
  struct MapSpaces {
    enum class Prepend : uint8_t { kAlways, kFirst, kNever };  ///< kFirst: where the text starts
    std::string replacement;                                   ///< one character
    Prepend prepend;
  };
  /// Cuts where the script changes. What stands before the first character of any script is lost,
  /// as in the reference.
  struct SplitScripts {};
  struct SplitLength {
    size_t chars;  // at least 1
  };
  using Step =
      std::variant<AddPrefixSpace, Scan, Split, MapBytes, MapSpaces, SplitScripts, SplitLength>;

  std::vector<Step> steps;
};

/// Whether the text to cut is where the whole text starts: some steps treat the first word apart.
enum class TextStart : uint8_t { kNo, kYes };

/// A text and the pieces it is cut into, in order, none empty; reused between calls.
struct Pieces {
  struct Range {
    uint32_t begin;
    uint32_t end;
  };
  std::string_view text;
  std::vector<Range> ranges;
  TextStart start = TextStart::kNo;

  std::string_view operator[](size_t i) const {
    return text.substr(ranges[i].begin, ranges[i].end - ranges[i].begin);
  }

  // Working memory of the steps: the text after a rewriting step, and the ranges of the next one.
  std::string buffer;
  std::vector<Range> next_ranges;
};

/// Cuts valid UTF-8 `text` (at most kMaxNormalizedBytes) and leaves the result in `pieces`, which
/// views `text` or its own buffer. Linear, except for what a model's own regular expression costs.
/// Errors: kInvalidArgument (a regular expression gave up), kTooLarge (rewriting grew the text too
/// far).
Status pre_tokenize(const PreTokenizer& pre_tokenizer, std::string_view text, TextStart start,
                    Pieces& pieces);

}  // namespace stator::tokenizer
