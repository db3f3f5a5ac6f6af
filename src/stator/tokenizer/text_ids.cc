// SPDX-License-Identifier: Apache-2.0
#include "stator/tokenizer/text_ids.h"

#include <bit>

#include "stator/core/assert.h"

namespace stator::tokenizer {

TextIds::TextIds(size_t texts, size_t bytes) {
  STATOR_ASSERT(texts < UINT32_MAX && bytes <= UINT32_MAX, "a vocabulary file has less");
  texts_.reserve(bytes);
  entries_.reserve(texts);
  slots_.resize(std::bit_ceil(2 * texts + 2));
}

size_t TextIds::slot_of(std::string_view text, uint64_t hash) const {
  for (size_t i = hash & mask();; i = (i + 1) & mask()) {
    const uint64_t slot = slots_[i];
    if (slot == 0 ||
        (((slot ^ hash) & kTagMask) == 0 && this->text(static_cast<uint32_t>(slot) - 1) == text)) {
      return i;
    }
  }
}

TokenId TextIds::find(std::string_view text, uint64_t hash) const {
  if (slots_.empty()) {
    return kNone;
  }
  const uint64_t slot = slots_[slot_of(text, hash)];
  return slot == 0 ? kNone : entries_[static_cast<uint32_t>(slot) - 1].id;
}

void TextIds::insert_or_assign(std::string_view text, TokenId id) {
  const uint64_t hash = hash_of(text);
  STATOR_ASSERT(!slots_.empty(), "room was asked for");
  uint64_t& slot = slots_[slot_of(text, hash)];
  if (slot != 0) {
    entries_[static_cast<uint32_t>(slot) - 1].id = id;
    return;
  }
  STATOR_ASSERT(
      entries_.size() < entries_.capacity() && texts_.size() + text.size() <= texts_.capacity(),
      "no more texts than were announced");
  entries_.push_back(
      {static_cast<uint32_t>(texts_.size()), static_cast<uint32_t>(text.size()), id});
  texts_.insert(texts_.end(), text.begin(), text.end());
  slot = (hash & kTagMask) | static_cast<uint32_t>(entries_.size());
}

}  // namespace stator::tokenizer
