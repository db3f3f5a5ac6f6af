// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "stator/core/ids.h"
#include "stator/tokenizer/tokenizer.h"

namespace stator::tokenizer {

class TokenTables;

/// Where the stream stands. Some decoders (Llama-2 style) drop one leading space, but only at the
/// very start of a text: what is generated after a prompt keeps it.
enum class StreamStart : uint8_t { kAfterPrompt, kStartOfText };

/// Token ids of one choice to text, as they arrive.
///
///   IncrementalDetokenizer detokenizer(tokenizer, SkipSpecial::kYes);
///   for (TokenId id : ids) detokenizer.step(id, text);   // text is complete UTF-8 after each step
///   detokenizer.finish(text);
///
/// I1: what all steps and finish() append equals Tokenizer::decode of all ids (with kStartOfText).
/// I2: every appended text is valid UTF-8; at most 3 bytes are held back: the incomplete last
/// character. Decoders that treat the end apart hold more: the last token's difference, or the
/// characters that may be stripped. O(bytes of the token) per step: a table lookup. The tokenizer
/// must outlive it. Not thread-safe.
class IncrementalDetokenizer {
 public:
  IncrementalDetokenizer(const Tokenizer& tokenizer, SkipSpecial skip,
                         StreamStart start = StreamStart::kAfterPrompt);

  /// Appends the text that became complete with `id`; nothing for skipped or unknown ids.
  void step(TokenId id, std::string& out);

  /// Appends what was held back as it stands at the end: the incomplete character as one U+FFFD.
  /// The stream may go on afterwards.
  void finish(std::string& out);

  /// Bytes waiting for the rest of their character: 0 to 3.
  uint32_t held_bytes() const { return held_count_; }

 private:
  void step_slowly(TokenId id, std::string& out);
  bool is_plain() const;
  void hold_end_of(TokenId id, std::string_view spelled, bool is_first, std::string& out);
  void append(std::string_view bytes, std::string& out);
  void finish_character(std::string& out);
  void append_text(std::string_view text, std::string& out);

  const TokenTables* tables_;
  std::string_view middle_rest_;  // of the last token, if another one follows …
  std::string_view end_rest_;     // … and if none does; views of the tokenizer
  TokenId previous_ = UINT32_MAX;
  char held_[3] = {};
  uint8_t held_count_ = 0;
  uint8_t strip_left_ = 0;  // leading strip characters still to be dropped
  uint8_t strip_end_max_ = 0;
  uint8_t strip_end_held_ = 0;  // strip characters that are not written yet
  char strip_char_ = ' ';
  bool skip_special_;
  bool space_between_;
  bool drops_repeats_;
  bool last_is_special_;
  bool at_start_ = true;
  bool is_plain_ = false;  // complete tokens go straight to the text
};

static_assert(sizeof(IncrementalDetokenizer) <= 64, "tens of thousands of streams live at once");

}  // namespace stator::tokenizer
