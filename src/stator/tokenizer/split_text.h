// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "stator/tokenizer/byte_trie.h"
#include "stator/tokenizer/tokenizer.h"

namespace stator::tokenizer {

/// Where a text may be cut so that the ids of the parts, one after the other, are the ids of the
/// whole: what makes it possible to cache prefixes and to encode parts of a text in parallel.
///
///   for (size_t at = 0; at < text.size(); at = end) {
///     end = cuts.find(text, at + 2048, special);   // encode text[at, end) by itself
///   }
///
/// Three kinds of places, each only where the tokenizer's data proves it:
///
/// - Before a special token (parsed as such). It is cut out of the text before anything else looks,
///   so the steps behind never see across it. Needs: no added token can cover the place, none looks
///   at what is before it (lstrip, single_word). True for any model, normalizer and pre-tokenizer.
/// - Before a space behind an ASCII letter. In the split expressions listed in split_text.cc every
///   piece that holds the letter ends with it, every run of white space starts behind it, and
///   matching restarts without memory. A space never composes with what is before it.
/// - Before a letter behind a line feed, in those expressions where white space never runs on
///   behind its last line feed (not GPT-2's, which gives the last character to the next word).
///
/// A place is recognized by the bytes around it alone, so texts with a common prefix are cut at the
/// same places in it. Immutable.
class SafeCuts {
 public:
  /// Nowhere.
  SafeCuts() = default;
  /// What the data of `pipeline` proves.
  static SafeCuts find_all(const Pipeline& pipeline);

  /// The first safe place at `from` or behind, before the end; text.size() if there is none. Any
  /// bytes. `from` ≥ 1. About 1 ns per byte passed over.
  size_t find(std::string_view text, size_t from, SpecialTokens special) const;

  bool before_special_tokens() const { return before_tokens_; }
  bool before_spaces() const { return before_spaces_; }
  bool after_lines() const { return after_lines_; }

 private:
  bool starts_token(std::string_view rest) const;

  ByteTrie tokens_;  // special tokens to cut before
  bool before_tokens_ = false;
  bool before_spaces_ = false;
  bool after_lines_ = false;
};

/// Encodes samples whole and cut. True if their ids agree, as the proof says: for load time, where
/// a mistake in it would otherwise become wrong prompts. Tens of microseconds.
bool probe_safe_cuts(const Tokenizer& tokenizer, const SafeCuts& cuts);

}  // namespace stator::tokenizer
