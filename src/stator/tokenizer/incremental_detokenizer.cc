// SPDX-License-Identifier: Apache-2.0
#include "stator/tokenizer/incremental_detokenizer.h"

#include "stator/tokenizer/decoder.h"
#include "stator/tokenizer/unicode.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace stator::tokenizer {
namespace {

using Kind = Utf8Prefix::Kind;

/// How many bytes at the end of `bytes` are the start of a character that is not complete: 0 to 3.
size_t incomplete_tail_bytes(std::string_view bytes) {
  for (size_t tail = 1; tail <= 3 && tail <= bytes.size(); ++tail) {
    const auto byte = static_cast<unsigned char>(bytes[bytes.size() - tail]);
    if (byte < 0x80) {
      return 0;
    }
    if (byte >= 0xC0) {
      return classify_utf8(bytes.substr(bytes.size() - tail)).kind == Kind::kIncomplete ? tail : 0;
    }
  }
  return 0;
}

}  // namespace

IncrementalDetokenizer::IncrementalDetokenizer(const Tokenizer& tokenizer, SkipSpecial skip,
                                               StreamStart start)
    : tables_(&tokenizer.token_tables()), skip_special_(skip == SkipSpecial::kYes) {
  const Tokenizer::DecodeRules rules = tokenizer.decode_rules();
  space_between_ = rules.space_between;
  drops_repeats_ = rules.drops_repeats;
  last_is_special_ = rules.last_is_special;
  at_start_ = start == StreamStart::kStartOfText;
  strip_char_ = rules.strip_char;
  strip_left_ = at_start_ ? rules.strip_count : uint8_t{0};
  strip_end_max_ = rules.strip_end_count;
  is_plain_ = is_plain();
}

/// Whether nothing is held and no rule looks at the neighbours or the place of the next token.
bool IncrementalDetokenizer::is_plain() const {
  return held_count_ == 0 && strip_left_ == 0 && strip_end_max_ == 0 && !at_start_ &&
         !space_between_ && !drops_repeats_ && !last_is_special_;
}

void IncrementalDetokenizer::step(TokenId id, std::string& out) {
  const TokenTable& table = tables_->middle();
  const uint32_t flags = table.flags(id);
  const bool is_shown = (flags & TokenTable::kSpecial) == 0 || !skip_special_;
  if (is_plain_ && (flags & TokenTable::kComplete) != 0 && is_shown) {
    out.append(table.bytes(id));
  } else if ((flags & TokenTable::kKnown) != 0 && is_shown &&
             !(drops_repeats_ && id == previous_)) {
    step_slowly(id, out);
    is_plain_ = is_plain();
  }
}

void IncrementalDetokenizer::step_slowly(TokenId id, std::string& out) {
  previous_ = id;
  const bool is_first = std::exchange(at_start_, false);
  if (space_between_ && !is_first) {
    append(" ", out);
  }
  const std::string_view spelled = tables_->bytes(id, {.is_first = is_first});
  if (last_is_special_) {
    append(std::exchange(middle_rest_, {}), out);
    hold_end_of(id, spelled, is_first, out);
  } else {
    append(spelled, out);
  }
}

/// Writes what the token has in common whether another one follows or not.
void IncrementalDetokenizer::hold_end_of(TokenId id, std::string_view spelled, bool is_first,
                                         std::string& out) {
  const std::string_view as_last = tables_->bytes(id, {.is_first = is_first, .is_last = true});
  const auto differs = std::ranges::mismatch(spelled, as_last).in1;
  const auto common = static_cast<size_t>(differs - spelled.begin());
  append(spelled.substr(0, common), out);
  middle_rest_ = spelled.substr(common);
  end_rest_ = as_last.substr(common);
}

void IncrementalDetokenizer::append(std::string_view bytes, std::string& out) {
  while (strip_left_ > 0 && !bytes.empty()) {
    if (bytes.front() != strip_char_) {
      strip_left_ = 0;
      break;
    }
    bytes.remove_prefix(1);
    --strip_left_;
  }
  while (held_count_ > 0 && !bytes.empty()) {
    char character[4];
    std::memcpy(character, held_, held_count_);
    character[held_count_] = bytes.front();
    const std::string_view candidate(character, held_count_ + size_t{1});
    const Kind kind = classify_utf8(candidate).kind;
    if (kind == Kind::kInvalid) {  // the new byte does not belong to what was held
      finish_character(out);
      break;
    }
    bytes.remove_prefix(1);
    if (kind == Kind::kCharacter) {
      append_text(candidate, out);
      held_count_ = 0;
    } else {
      held_[held_count_++] = candidate.back();
    }
  }
  const size_t tail = incomplete_tail_bytes(bytes);
  append_text(bytes.substr(0, bytes.size() - tail), out);
  if (tail > 0) {
    std::memcpy(held_, bytes.data() + bytes.size() - tail, tail);
    held_count_ = static_cast<uint8_t>(tail);
  }
}

/// Complete characters, or bytes that never become one.
void IncrementalDetokenizer::append_text(std::string_view text, std::string& out) {
  if (strip_end_max_ == 0) {
    append_lossy(out, text);
    return;
  }
  size_t end = text.size();
  while (end > 0 && text[end - 1] == strip_char_) {
    --end;
  }
  if (end > 0) {
    out.append(std::exchange(strip_end_held_, uint8_t{0}), strip_char_);
    append_lossy(out, text.substr(0, end));
  }
  const size_t at_end = strip_end_held_ + (text.size() - end);
  strip_end_held_ = static_cast<uint8_t>(std::min<size_t>(at_end, strip_end_max_));
  out.append(at_end - strip_end_held_, strip_char_);
}

void IncrementalDetokenizer::finish_character(std::string& out) {
  if (std::exchange(held_count_, uint8_t{0}) > 0) {
    append_text(kReplacementCharacter, out);
  }
}

void IncrementalDetokenizer::finish(std::string& out) {
  append(std::exchange(end_rest_, {}), out);
  middle_rest_ = {};
  finish_character(out);
  strip_end_held_ = 0;
  is_plain_ = is_plain();
}

}  // namespace stator::tokenizer
