// SPDX-License-Identifier: Apache-2.0
#include "stator/tokenizer/incremental_detokenizer.h"

#include "stator/tokenizer/unicode.h"

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
    : tokenizer_(&tokenizer), skip_special_(skip == SkipSpecial::kYes) {
  const Tokenizer::DecodeRules rules = tokenizer.decode_rules();
  space_between_ = rules.space_between;
  at_start_ = start == StreamStart::kStartOfText;
  strip_char_ = rules.strip_char;
  strip_left_ = at_start_ ? rules.strip_count : uint8_t{0};
}

void IncrementalDetokenizer::step(TokenId id, std::string& out) {
  if (!tokenizer_->contains(id) || (skip_special_ && tokenizer_->is_special(id))) {
    return;
  }
  if (space_between_ && !std::exchange(at_start_, false)) {
    append(" ", out);
  }
  append(tokenizer_->token_bytes(id), out);
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
      finish(out);
      break;
    }
    bytes.remove_prefix(1);
    if (kind == Kind::kCharacter) {
      out.append(candidate);
      held_count_ = 0;
    } else {
      held_[held_count_++] = candidate.back();
    }
  }
  const size_t tail = incomplete_tail_bytes(bytes);
  append_lossy(bytes.substr(0, bytes.size() - tail), out);
  if (tail > 0) {
    std::memcpy(held_, bytes.data() + bytes.size() - tail, tail);
    held_count_ = static_cast<uint8_t>(tail);
  }
}

void IncrementalDetokenizer::finish(std::string& out) {
  if (std::exchange(held_count_, uint8_t{0}) > 0) {
    out.append(kReplacementCharacter);
  }
}

}  // namespace stator::tokenizer
