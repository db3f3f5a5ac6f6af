// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "stator/core/flat_map.h"
#include "stator/guided/program.h"

namespace stator::guided {

/// A set of nodes of one rule, reached by the same bytes.
using StateId = uint32_t;

/// A Program made deterministic, state by state as they are reached (lazy subset construction). A
/// state knows its next state for each byte, which rules' text may come next and where the rule
/// goes on after them, and whether the rule may end here. Thread-safety: none.
class Automaton {
 public:
  static constexpr StateId kDead = UINT32_MAX;
  static constexpr StateId kUnknown = UINT32_MAX - 1;

  struct Call {
    RuleId rule = 0;
    StateId after = 0;
  };
  struct TokenStep {
    uint32_t set = 0;  ///< of Program::token_sets()
    StateId after = 0;
  };

  explicit Automaton(const Program& program);

  const Program& program() const { return program_; }
  StateId begin(RuleId rule);

  StateId next(StateId state, uint8_t byte) {
    const size_t at = size_t{state} * program_.class_count() + program_.class_of(byte);
    return table_[at] != kUnknown ? table_[at] : compute_next(state, byte);
  }
  /// Neither may its rule end here, nor may another rule's text come next: what follows depends on
  /// bytes alone.
  bool is_simple(StateId state) const { return states_[state].simple; }
  bool may_end(StateId state) const { return states_[state].ends; }
  bool reads_bytes(StateId state) const { return states_[state].bytes; }
  bool reads_tokens(StateId state) const { return states_[state].tokens; }
  /// As Program::bytes_to_end.
  uint32_t bytes_to_end(StateId state) const { return states_[state].bytes_to_end; }
  std::span<const Call> calls(StateId state);
  std::span<const TokenStep> token_steps(StateId state);

  /// How many plain characters (Vocabulary) may come next at least, whichever they are, with
  /// nothing but bytes deciding; at most `limit`.
  uint32_t plain_run(StateId state, uint32_t limit);
  /// The state behind so many of them.
  StateId after_plain(StateId state, uint32_t characters);
  /// Whether no plain character may come next.
  bool is_plain_over(StateId state);

  size_t state_count() const { return states_.size(); }
  size_t bytes() const { return bytes_; }

 private:
  struct State {
    std::vector<NodeId> nodes;  // sorted; only those that can read or end
    bool simple = true;
    bool ends = false;
    bool bytes = false;
    bool tokens = false;
    bool steps_known = false;
    uint32_t bytes_to_end = UINT32_MAX;
    std::vector<Call> calls;
    std::vector<TokenStep> token_steps;
  };

  StateId compute_next(StateId state, uint8_t byte);
  StateId close(std::vector<NodeId>& nodes);
  void compute_steps(StateId state);
  StateId after_any_plain(StateId state);
  bool all_lead_to(std::span<const StateId> from, uint8_t first, uint8_t last, StateId target);

  const Program& program_;
  std::vector<State> states_;
  std::vector<StateId> table_;  // [state][class]
  std::vector<StateId> begins_;
  FlatMap<std::vector<NodeId>, StateId> ids_;
  std::vector<uint32_t> visited_;
  uint32_t visit_ = 0;
  std::vector<NodeId> open_;
  std::vector<NodeId> closed_;
  size_t bytes_ = 0;
};

}  // namespace stator::guided
