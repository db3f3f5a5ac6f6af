// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace stator::tokenizer {

/// Strings to values, walked byte by byte: finds all keys that start a text in one pass. The nodes
/// lie in one array, children of a node side by side and sorted: 12 bytes per node. Immutable.
class ByteTrie {
 public:
  static constexpr uint32_t kNoValue = UINT32_MAX;
  static constexpr uint32_t kNoNode = 0;  // the root is nobody's child

  ByteTrie() : nodes_(1) {}

  /// Of equal keys the last wins. Empty keys are left out. Values are not kNoValue.
  explicit ByteTrie(std::vector<std::pair<std::string_view, uint32_t>> entries);

  /// The child of `node` (0: the root) along `byte`; kNoNode if there is none.
  uint32_t child(uint32_t node, unsigned char byte) const;

  /// Value of the key that ends at `node`, or kNoValue.
  uint32_t value(uint32_t node) const { return nodes_[node].value; }

 private:
  struct Node {
    uint32_t value = kNoValue;
    uint32_t first_child = 0;
    uint16_t child_count = 0;
    unsigned char byte = 0;  // on the edge to it
  };

  std::vector<Node> nodes_;
  std::array<uint32_t, 256> root_children_{};
};

}  // namespace stator::tokenizer
