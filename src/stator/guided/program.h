// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "stator/core/result.h"
#include "stator/guided/vocabulary.h"
#include "stator/structured/rule_set.h"

namespace stator::guided {

using NodeId = uint32_t;
using RuleId = uint32_t;

inline constexpr size_t kProgramEdgesMax = 1U << 20U;

/// The rules of a grammar as one nondeterministic automaton: a part for each rule, in which edges
/// read a byte, a token, nothing, or the text of another rule. Immutable, shared by threads.
///
/// I1  Every node that is kept leads to the end of its rule over rules that can end.
/// I2  Rules that may begin with each other have an order: begins_before(a) < begins_before(b) if a
///     may begin with b.
class Program {
 public:
  struct Edge {
    enum class Kind : uint8_t { kNothing, kBytes, kCall, kTokens };
    Kind kind = Kind::kNothing;
    uint8_t first = 0;
    uint8_t last = 0;
    uint32_t index = 0;  ///< rule, or set of tokens
    NodeId to = 0;
  };
  struct RuleNodes {
    NodeId begin = 0;
    NodeId end = 0;
    uint32_t rank = 0;  ///< see I2
    bool nullable = false;
    bool used = false;
  };

  /// kInvalidArgument for tokens the vocabulary does not have and for a grammar that can never end,
  /// kTooLarge beyond kProgramEdgesMax.
  static Result<Program> make(const structured::RuleSet& rules, const Vocabulary& vocabulary);

  size_t node_count() const { return edge_begins_.size() - 1; }
  std::span<const Edge> edges(NodeId node) const {
    return std::span(edges_).subspan(edge_begins_[node],
                                     edge_begins_[node + 1] - edge_begins_[node]);
  }
  std::span<const RuleNodes> rules() const { return rules_; }
  RuleId root() const { return root_; }
  /// The rule that ends at this node, or UINT32_MAX.
  bool is_end(NodeId node) const { return ends_[node]; }
  const std::vector<TokenSet>& token_sets() const { return token_sets_; }
  /// Bytes (a token that is no text counts as one) of the shortest text from a node to the end of
  /// its rule, and of the longest such text of a whole rule.
  uint32_t bytes_to_end(NodeId node) const { return bytes_to_end_[node]; }
  uint32_t shortest_text_max() const { return shortest_text_max_; }

  /// Bytes that all edges treat alike have one class.
  uint8_t class_of(uint8_t byte) const { return classes_[byte]; }
  uint32_t class_count() const { return class_count_; }
  size_t bytes() const;

 private:
  friend class ProgramBuilder;
  std::vector<uint32_t> edge_begins_;
  std::vector<Edge> edges_;
  std::vector<RuleNodes> rules_;
  std::vector<bool> ends_;
  std::vector<TokenSet> token_sets_;
  std::vector<uint32_t> bytes_to_end_;
  uint32_t shortest_text_max_ = 0;
  RuleId root_ = 0;
  std::array<uint8_t, 256> classes_{};
  uint32_t class_count_ = 0;
};

}  // namespace stator::guided
