// SPDX-License-Identifier: Apache-2.0
#include "stator/tokenizer/token_pairs.h"

#include "stator/core/assert.h"
#include "stator/tokenizer/token_trie.h"

#include <algorithm>
#include <bit>

namespace stator::tokenizer {
namespace {

/// Merging of one token's bytes, by the definition.
struct Replay {
  bool is_one = false;       // ended in a single token …
  TokenPairs::Merge last{};  // … by this merge
  bool in_order = true;      // ranks only grew
};

// Longer tokens are taken for unformed: no published vocabulary has one.
constexpr size_t kReplayBytesMax = 1024;

Replay replay(std::string_view bytes, const TokenPairs::Vocabulary& vocabulary) {
  Replay result;
  if (bytes.size() > kReplayBytesMax) {
    return result;
  }
  std::vector<TokenId> ids;
  for (const char byte : bytes) {
    ids.push_back(vocabulary.bytes[static_cast<unsigned char>(byte)]);
  }
  while (ids.size() > 1) {
    MergeRule best{kNoRank, 0};
    size_t position = 0;
    for (size_t i = 0; i + 1 < ids.size(); ++i) {
      const MergeRule rule = vocabulary.table.find(ids[i], ids[i + 1]);
      if (rule.rank < best.rank) {
        best = rule;
        position = i;
      }
    }
    if (best.rank == kNoRank) {
      return result;
    }
    result.in_order = result.in_order && best.rank >= result.last.rule.rank;
    result.last = {ids[position], ids[position + 1], best};
    ids[position] = best.merged;
    ids.erase(ids.begin() + static_cast<ptrdiff_t>(position) + 1);
  }
  result.is_one = true;
  return result;
}

bool contains_any(std::string_view bytes, const TokenTrie& trie) {
  for (size_t at = 0; at < bytes.size(); ++at) {
    if (trie.find_longest(bytes.substr(at)).bytes != 0) {
      return true;
    }
  }
  return false;
}

}  // namespace

TokenPairs::TokenPairs(const Vocabulary& vocabulary) {
  TokenId largest = 0;
  for (const auto& [bytes, token] : vocabulary.entries) {
    largest = std::max(largest, token);
  }
  for (const auto& [left, right, rule] : vocabulary.merges) {
    largest = std::max({largest, left, right, rule.merged});  // not all need to be entries
  }
  STATOR_ASSERT(largest < kTokensMax, "ids fit their bits");
  formations_.resize(largest + size_t{1});
  const size_t slots = std::bit_ceil(2 * vocabulary.entries.size() + 2);
  slots_.assign(slots, kEmptySlot);
  shift_ = 64 - std::countr_zero(slots);
  const size_t filter_words = std::bit_ceil(vocabulary.entries.size() / 8 + 2);
  filter_.assign(filter_words, 0);
  filter_shift_ = 64 - std::countr_zero(filter_words);
  for (const TokenId byte : vocabulary.bytes) {
    formations_[byte] = {byte, byte, kByteRank};
  }
}

std::optional<TokenPairs> TokenPairs::create(const Vocabulary& vocabulary) {
  TokenPairs pairs(vocabulary);
  MergeRule previous{kNoRank, 0};
  for (const auto& [left, right, rule] : vocabulary.merges) {
    if (rule.rank >= kRanksMax || pairs.formations_[rule.merged].rank == kByteRank ||
        (rule.rank == previous.rank && rule.merged != previous.merged)) {
      return std::nullopt;
    }
    previous = rule;
  }
  pairs.form_regular(vocabulary);
  pairs.form_irregular(vocabulary);
  return pairs;
}

/// In order of rank: when a merge's turn comes, all that could disturb it is in the table. What
/// contains an irregular token may come out wrong.
void TokenPairs::form_regular(const Vocabulary& vocabulary) {
  for (const auto& [left, right, rule] : vocabulary.merges) {
    // Of several merges of a pair the last in the file counts: the one in the table.
    if (is_formed(left) && is_formed(right) && !is_formed(rule.merged) &&
        vocabulary.table.find(left, right).rank == rule.rank && may_touch(left, right)) {
      formations_[rule.merged] = {left, right, rule.rank + 1};
      insert(left, right, rule.rank + 1);
    }
  }
}

/// The shortest irregular tokens are certain to be found among the unformed: one of their parts was
/// not there yet when their turn came. What contains one of them is judged by replaying.
void TokenPairs::form_irregular(const Vocabulary& vocabulary) {
  std::vector<TokenTrie::Entry> irregular;
  for (const auto& [bytes, token] : vocabulary.entries) {
    if (!is_formed(token) && replay(bytes, vocabulary).is_one) {
      irregular.emplace_back(bytes, token);
    }
  }
  if (irregular.empty()) {
    return;
  }
  const TokenTrie trie(irregular);
  for (const auto& [bytes, token] : vocabulary.entries) {
    if (!contains_any(bytes, trie)) {
      continue;
    }
    const Replay replayed = replay(bytes, vocabulary);
    formations_[token] = {};
    if (replayed.is_one) {
      const uint32_t rank = (replayed.last.rule.rank + 1) | (replayed.in_order ? 0 : kIrregular);
      formations_[token] = {replayed.last.left, replayed.last.right, rank};
    }
  }
  std::ranges::fill(slots_, kEmptySlot);
  std::ranges::fill(filter_, 0);
  for (const Formation& formation : formations_) {
    if (formation.rank != kByteRank && formation.rank != kUnformed) {
      insert(formation.left, formation.right, formation.rank & ~kIrregular);
    }
  }
  for (const Merge& merge : vocabulary.merges) {
    merged_.resize(merge.rule.rank + size_t{1});
    merged_.back() = merge.rule.merged;
  }
}

void TokenPairs::insert(TokenId left, TokenId right, uint32_t rank) {
  const uint64_t pair = (static_cast<uint64_t>(left) << kTokenBits) | right;
  const uint64_t hash = hash_of(left, right);
  auto i = static_cast<size_t>(hash >> shift_);
  while (slots_[i] != kEmptySlot) {
    i = (i + 1) & (slots_.size() - 1);
  }
  slots_[i] = (pair << kRankBits) | rank;
  filter_[hash >> filter_shift_] |= filter_bits(hash);
}

uint32_t TokenPairs::rank_of(TokenId left, TokenId right) const {
  const uint64_t hash = hash_of(left, right);
  const uint64_t bits = filter_bits(hash);
  if ((filter_[hash >> filter_shift_] & bits) != bits) [[likely]] {
    return kNoPair;
  }
  const uint64_t pair = (static_cast<uint64_t>(left) << kTokenBits) | right;
  for (auto i = static_cast<size_t>(hash >> shift_);; i = (i + 1) & (slots_.size() - 1)) {
    const uint64_t slot = slots_[i];
    if (slot >> kRankBits == pair) {
      return static_cast<uint32_t>(slot) & kNoPair;
    }
    if (slot == kEmptySlot) {
      return kNoPair;
    }
  }
}

bool TokenPairs::may_touch(TokenId left, TokenId right) const {
  if (((formations_[left].rank | formations_[right].rank) & kIrregular) != 0) [[unlikely]] {
    return may_touch_replayed(left, right);
  }
  // A merge across the border comes first if its rank is below `limit`: that of the merge inside
  // one of the tokens that ended the present state. Equal ranks: the leftmost comes first.
  uint32_t limit = kNoPair;
  while (true) {
    if (rank_of(left, right) < limit) {
      return false;
    }
    const Formation& of_left = formations_[left];
    const Formation& of_right = formations_[right];
    if ((of_left.rank | of_right.rank) == kByteRank) {
      return true;
    }
    const bool undo_left = of_left.rank > of_right.rank;
    limit = undo_left ? of_left.rank : of_right.rank + 1;
    left = undo_left ? of_left.right : left;
    right = undo_left ? right : of_right.left;
  }
}

std::vector<TokenPairs::Merge> TokenPairs::list_merges() const {
  std::vector<TokenId> tokens;
  for (TokenId token = 0; token < formations_.size(); ++token) {
    if (formations_[token].rank != kByteRank && is_formed(token)) {
      tokens.push_back(token);
    }
  }
  std::ranges::sort(tokens, {},
                    [this](TokenId token) { return formations_[token].rank & ~kIrregular; });
  std::vector<Merge> merges;
  merges.reserve(tokens.size());
  for (const TokenId token : tokens) {
    const Formation& formation = formations_[token];
    merges.push_back({formation.left, formation.right, {formation.rank & ~kIrregular, token}});
  }
  return merges;
}

void TokenPairs::append_bytes(TokenId token, std::vector<TokenId>& out) const {
  std::vector<TokenId> open = {token};
  while (!open.empty()) {
    const TokenId next = open.back();
    const Formation& formation = formations_[next];
    open.pop_back();
    if (formation.rank == kByteRank) {
      out.push_back(next);
    } else {
      open.push_back(formation.right);
      open.push_back(formation.left);
    }
  }
}

/// Merges until only the two tokens are left or one merge spans the border.
bool TokenPairs::may_touch_replayed(TokenId left, TokenId right) const {
  std::vector<TokenId> ids;
  append_bytes(left, ids);
  size_t border = ids.size();  // symbols before it belong to `left`
  append_bytes(right, ids);
  while (true) {
    uint32_t best = kNoPair;
    size_t position = 0;
    for (size_t i = 0; i + 1 < ids.size(); ++i) {
      const uint32_t rank = rank_of(ids[i], ids[i + 1]);
      if (rank < best) {
        best = rank;
        position = i;
      }
    }
    if (best == kNoPair) {
      return true;
    }
    if (position + 1 == border) {
      return false;
    }
    border -= position + 1 < border ? 1 : 0;
    ids[position] = merged_[best - 1];
    ids.erase(ids.begin() + static_cast<ptrdiff_t>(position) + 1);
  }
}

}  // namespace stator::tokenizer
