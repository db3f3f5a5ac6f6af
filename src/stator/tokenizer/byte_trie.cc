// SPDX-License-Identifier: Apache-2.0
#include "stator/tokenizer/byte_trie.h"

#include <algorithm>

namespace stator::tokenizer {
namespace {

using Entry = std::pair<std::string_view, uint32_t>;

/// Sorted, of equal keys only the last, no empty one.
void tidy(std::vector<Entry>& entries) {
  struct Ordered {
    Entry entry;
    size_t position;
  };
  std::vector<Ordered> ordered;
  ordered.reserve(entries.size());
  for (const Entry& entry : entries) {
    if (!entry.first.empty()) {
      ordered.push_back({entry, ordered.size()});
    }
  }
  std::ranges::sort(ordered, [](const Ordered& a, const Ordered& b) {
    return std::pair(a.entry.first, a.position) < std::pair(b.entry.first, b.position);
  });
  entries.clear();
  for (const Ordered& next : ordered) {
    if (!entries.empty() && entries.back().first == next.entry.first) {
      entries.back() = next.entry;
    } else {
      entries.push_back(next.entry);
    }
  }
}

unsigned char byte_at(const Entry& entry, size_t depth) {
  return static_cast<unsigned char>(entry.first[depth]);
}

}  // namespace

ByteTrie::ByteTrie(std::vector<std::pair<std::string_view, uint32_t>> entries) : nodes_(1) {
  tidy(entries);
  // Nodes whose children are still to be made, with the entries that pass through them. A list, not
  // recursion: keys may be long.
  struct Open {
    uint32_t node;
    size_t begin;
    size_t end;
    size_t depth;
  };
  std::vector<Open> open{{0, 0, entries.size(), 0}};
  while (!open.empty()) {
    const Open at = open.back();
    open.pop_back();
    size_t begin = at.begin;
    if (begin < at.end && entries[begin].first.size() == at.depth) {
      nodes_[at.node].value = entries[begin].second;
      ++begin;
    }
    nodes_[at.node].first_child = static_cast<uint32_t>(nodes_.size());
    while (begin < at.end) {
      const unsigned char byte = byte_at(entries[begin], at.depth);
      size_t end = begin + 1;
      while (end < at.end && byte_at(entries[end], at.depth) == byte) {
        ++end;
      }
      open.push_back({static_cast<uint32_t>(nodes_.size()), begin, end, at.depth + 1});
      nodes_.push_back({.byte = byte});
      ++nodes_[at.node].child_count;
      begin = end;
    }
  }
  const Node& root = nodes_[0];
  for (uint32_t i = 0; i < root.child_count; ++i) {
    root_children_[nodes_[root.first_child + i].byte] = root.first_child + i;
  }
}

uint32_t ByteTrie::child(uint32_t node, unsigned char byte) const {
  if (node == 0) {
    return root_children_[byte];
  }
  const Node& parent = nodes_[node];
  const auto begin = nodes_.begin() + parent.first_child;
  const auto end = begin + parent.child_count;
  const auto found = std::ranges::lower_bound(begin, end, byte, {}, &Node::byte);
  return found != end && found->byte == byte ? static_cast<uint32_t>(found - nodes_.begin())
                                             : kNoNode;
}

}  // namespace stator::tokenizer
