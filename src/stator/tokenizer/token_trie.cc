// SPDX-License-Identifier: Apache-2.0
#include "stator/tokenizer/token_trie.h"

#include "stator/core/assert.h"

#include <algorithm>
#include <array>
#include <bit>
#include <functional>

namespace stator::tokenizer {

/// Places the children of one node after the other, those of frequent tokens (low ids) first, so
/// that what most texts need is close together. Only the last few blocks of 256 units are searched
/// for room: older ones are as good as full.
class TokenTrie::Builder {
 public:
  Builder(std::span<const Entry> entries, HugeVector<Unit>& units)
      : entries_(entries), units_(units) {
    add_block();  // holds no unit, so that no base is 0
    add_block();
    used_bases_[kRootBase / 64] |= 1;
  }

  void build() {
    place_children({0, entries_.size(), 0, 0, 0}, kRootBase);
    while (!open_.empty()) {
      std::ranges::pop_heap(open_, std::greater<>(), &Node::first_token);
      const Node node = open_.back();
      open_.pop_back();
      collect_labels(node);
      const uint32_t base = claim_base();
      units_[node.unit].base = base & kBaseMask;
      place_children(node, base);
    }
  }

 private:
  static constexpr uint32_t kBaseMask = (1U << 23) - 1;
  static constexpr size_t kOpenBlocks = 8;

  /// Entries [begin, end) share their first `depth` bytes and are longer than that.
  struct Node {
    size_t begin;
    size_t end;
    uint32_t depth;
    uint32_t unit;
    TokenId first_token;  // the lowest id below
  };

  unsigned char label_of(size_t entry, uint32_t depth) const {
    return static_cast<unsigned char>(entries_[entry].first[depth]);
  }

  void add_block() {
    STATOR_ASSERT(units_.size() + kBlock <= kBaseMask, "a vocabulary has at most 2^22 tokens");
    units_.resize(units_.size() + kBlock, Unit{0, 0, 1, kNone});
    free_.resize(free_.size() + kBlock / 64, ~uint64_t{0});
    used_bases_.resize(used_bases_.size() + kBlock / 64, 0);
  }

  void collect_labels(const Node& node) {
    label_count_ = 0;
    for (size_t i = node.begin; i < node.end;) {
      const unsigned char label = label_of(i, node.depth);
      labels_[label_count_++] = label;
      i = group_end(i, node);
    }
  }

  size_t group_end(size_t i, const Node& node) const {
    const unsigned char label = label_of(i, node.depth);
    size_t end = i + 1;
    while (end < node.end && label_of(end, node.depth) == label) {
      ++end;
    }
    return end;
  }

  bool is_free(uint32_t unit) const { return (free_[unit / 64] >> (unit % 64) & 1) != 0; }

  /// A base that no other node has and whose units for all labels are free.
  uint32_t claim_base() {
    const size_t blocks = units_.size() / kBlock;
    for (size_t block = std::max<size_t>(1, blocks - std::min(blocks, kOpenBlocks)); block < blocks;
         ++block) {
      if (const uint32_t base = find_base(static_cast<uint32_t>(block * kBlock)); base != 0) {
        return base;
      }
    }
    const auto first = static_cast<uint32_t>(units_.size());
    add_block();
    return find_base(first);
  }

  uint32_t find_base(uint32_t block) {
    for (uint32_t word = block / 64; word < block / 64 + kBlock / 64; ++word) {
      for (uint64_t left = free_[word]; left != 0; left &= left - 1) {
        const uint32_t unit = word * 64 + static_cast<uint32_t>(std::countr_zero(left));
        const uint32_t base = unit ^ labels_[0];
        if (fits(base)) {
          used_bases_[base / 64] |= uint64_t{1} << (base % 64);
          return base;
        }
      }
    }
    return 0;
  }

  bool fits(uint32_t base) const {
    if ((used_bases_[base / 64] >> (base % 64) & 1) != 0) {
      return false;
    }
    for (size_t i = 1; i < label_count_; ++i) {
      if (!is_free(base ^ labels_[i])) {
        return false;
      }
    }
    return true;
  }

  void place_children(const Node& node, uint32_t base) {
    for (size_t i = node.begin; i < node.end;) {
      const unsigned char label = label_of(i, node.depth);
      const size_t end = group_end(i, node);
      const uint32_t unit = base ^ label;
      free_[unit / 64] &= ~(uint64_t{1} << (unit % 64));
      // The shortest of a sorted group comes first.
      const bool is_token = entries_[i].first.size() == node.depth + 1;
      units_[unit] = {0, label, 0, is_token ? entries_[i].second : kNone};
      i += is_token ? 1 : 0;
      if (i < end) {
        const auto below = entries_.subspan(i, end - i);
        const TokenId first = std::ranges::min(below, {}, &Entry::second).second;
        open_.push_back({i, end, node.depth + 1, unit, first});
        std::ranges::push_heap(open_, std::greater<>(), &Node::first_token);
      }
      i = end;
    }
  }

  std::span<const Entry> entries_;
  HugeVector<Unit>& units_;
  std::vector<uint64_t> free_;
  std::vector<uint64_t> used_bases_;
  std::vector<Node> open_;  // heap
  std::array<unsigned char, kBlock> labels_{};
  size_t label_count_ = 0;
};

TokenTrie::TokenTrie(std::span<Entry> entries) {
  std::ranges::sort(entries, {}, &Entry::first);
  units_.clear();
  Builder(entries, units_).build();
}

}  // namespace stator::tokenizer
