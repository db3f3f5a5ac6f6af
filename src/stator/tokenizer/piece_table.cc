// SPDX-License-Identifier: Apache-2.0
#include "stator/tokenizer/piece_table.h"

#include "stator/core/assert.h"

#include <algorithm>
#include <bit>

namespace stator::tokenizer {
namespace {

uint64_t load_word(const char* at) {
  uint64_t word;
  std::memcpy(&word, at, sizeof(word));
  return word;
}

}  // namespace

PieceTable::PieceTable(std::span<Entry> entries) {
  size_t short_count = 0;
  size_t long_count = 0;
  for (const auto& [piece, id] : entries) {
    STATOR_ASSERT(!piece.empty() && id < 1U << (64 - kIdShift), "the id fits its bits");
    short_count += piece.size() <= kShortBytesMax ? 1 : 0;
    long_count += piece.size() > kShortBytesMax && piece.size() <= kBytesMax ? 1 : 0;
  }
  short_slots_.resize(std::bit_ceil(2 * short_count + 2));
  long_slots_.resize(std::bit_ceil(2 * long_count + 2));
  short_shift_ = 64 - std::countr_zero(short_slots_.size());
  long_shift_ = 64 - std::countr_zero(long_slots_.size());
  if (!std::ranges::is_sorted(entries, {}, &Entry::second)) {
    std::ranges::sort(entries, {}, &Entry::second);
  }
  for (const auto& [piece, id] : entries) {
    if (piece.size() <= kBytesMax) {
      insert(piece, id);
    }
  }
}

void PieceTable::insert(std::string_view piece, TokenId id) {
  if (piece.size() <= kShortBytesMax) {
    const ShortKey key = make_key(PieceKey::of(piece));
    size_t i = key.slot;
    while (short_slots_[i].tail != 0) {
      i = (i + 1) & (short_slots_.size() - 1);
    }
    short_slots_[i] = {key.low, key.tail | (static_cast<uint64_t>(id) << kIdShift)};
    return;
  }
  const LongKey key = make_long_key(piece);
  size_t i = key.slot;
  while (long_slots_[i].bytes != 0) {
    i = (i + 1) & (long_slots_.size() - 1);
  }
  long_slots_[i] = {
      {key.words[0], key.words[1], key.words[2]}, static_cast<uint32_t>(piece.size()), id};
}

/// Overlapping words that together with the length determine a piece of 13 to 24 bytes.
PieceTable::LongKey PieceTable::make_long_key(std::string_view piece) const {
  const char* end = piece.data() + piece.size();
  LongKey key{{load_word(piece.data()), load_word(piece.size() < 16 ? end - 8 : piece.data() + 8),
               load_word(end - 8)},
              0};
  uint64_t hash = (key.words[0] ^ std::rotl(key.words[1] * kMultiplier, 31)) * kMultiplier;
  hash = (hash ^ (hash >> 32) ^ key.words[2] ^ piece.size()) * kMultiplier;
  key.slot = static_cast<size_t>((hash ^ (hash >> 32)) * kMultiplier >> long_shift_);
  return key;
}

void PieceTable::prefetch_long(std::string_view piece) const {
  if (piece.size() <= kBytesMax) {
    __builtin_prefetch(&long_slots_[make_long_key(piece).slot]);
  }
}

TokenId PieceTable::find(std::string_view piece) const {
  if (piece.size() <= kShortBytesMax) {
    return find(make_key(PieceKey::of(piece)));
  }
  if (piece.size() > kBytesMax) {
    return kNone;
  }
  const LongKey key = make_long_key(piece);
  for (size_t i = key.slot;; i = (i + 1) & (long_slots_.size() - 1)) {
    const LongSlot& slot = long_slots_[i];
    if (slot.bytes == piece.size() && slot.words[0] == key.words[0] &&
        slot.words[1] == key.words[1] && slot.words[2] == key.words[2]) {
      return slot.id;
    }
    if (slot.bytes == 0) {
      return kNone;
    }
  }
}

}  // namespace stator::tokenizer
