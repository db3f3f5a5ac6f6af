// SPDX-License-Identifier: Apache-2.0
#include "stator/tokenizer/merge_table.h"

#include <bit>

namespace stator::tokenizer {

MergeTable::MergeTable(size_t merges) {
  const size_t slots = std::bit_ceil(merges + merges / 2 + 2);
  slots_.resize(slots);
  shift_ = 64 - std::countr_zero(slots);
}

void MergeTable::insert(TokenId left, TokenId right, MergeRule rule) {
  const uint64_t key = make_key(left, right);
  size_t i = slot_of(key);
  while (slots_[i].key != kEmpty && slots_[i].key != key) {
    i = (i + 1) & (slots_.size() - 1);
  }
  slots_[i] = {key, rule};
}

}  // namespace stator::tokenizer
