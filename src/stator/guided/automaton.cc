// SPDX-License-Identifier: Apache-2.0
#include "stator/guided/automaton.h"

#include <algorithm>

namespace stator::guided {
namespace {

using Kind = Program::Edge::Kind;

}  // namespace

Automaton::Automaton(const Program& program)
    : program_(program),
      begins_(program.rules().size(), kUnknown),
      visited_(program.node_count(), 0) {}

StateId Automaton::begin(RuleId rule) {
  if (begins_[rule] == kUnknown) {
    std::vector<NodeId> nodes{program_.rules()[rule].begin};
    const StateId made = close(nodes);
    begins_[rule] = made;
  }
  return begins_[rule];
}

/// The state of `nodes` and what is reached from them without reading.
StateId Automaton::close(std::vector<NodeId>& nodes) {
  ++visit_;
  open_.assign(nodes.begin(), nodes.end());
  closed_.clear();
  while (!open_.empty()) {
    const NodeId at = open_.back();
    open_.pop_back();
    if (std::exchange(visited_[at], visit_) == visit_) {
      continue;
    }
    bool reads = program_.is_end(at);
    for (const Program::Edge& edge : program_.edges(at)) {
      reads = reads || edge.kind != Kind::kNothing;
      if (edge.kind == Kind::kNothing ||
          (edge.kind == Kind::kCall && program_.rules()[edge.index].nullable)) {
        open_.push_back(edge.to);
      }
    }
    if (reads) {
      closed_.push_back(at);
    }
  }
  if (closed_.empty()) {
    return kDead;
  }
  std::ranges::sort(closed_);
  const auto [entry, added] = ids_.try_emplace(closed_, static_cast<StateId>(states_.size()));
  const StateId id = entry->second;
  if (added) {
    State state{.nodes = closed_};
    for (const NodeId node : closed_) {
      state.ends = state.ends || program_.is_end(node);
      state.bytes_to_end = std::min(state.bytes_to_end, program_.bytes_to_end(node));
      for (const Program::Edge& edge : program_.edges(node)) {
        state.bytes = state.bytes || edge.kind == Kind::kBytes;
        state.tokens = state.tokens || edge.kind == Kind::kTokens;
        state.simple = state.simple && edge.kind != Kind::kCall;
      }
    }
    state.simple = state.simple && !state.ends;
    table_.insert(table_.end(), program_.class_count(), kUnknown);
    bytes_ += sizeof(State) + 2 * closed_.size() * sizeof(NodeId) + 64 +
              program_.class_count() * sizeof(StateId);
    states_.push_back(std::move(state));
  }
  return id;
}

StateId Automaton::compute_next(StateId state, uint8_t byte) {
  std::vector<NodeId> targets;
  for (const NodeId node : states_[state].nodes) {
    for (const Program::Edge& edge : program_.edges(node)) {
      if (edge.kind == Kind::kBytes && edge.first <= byte && byte <= edge.last) {
        targets.push_back(edge.to);
      }
    }
  }
  const StateId to = targets.empty() ? kDead : close(targets);
  table_[size_t{state} * program_.class_count() + program_.class_of(byte)] = to;
  return to;
}

std::span<const Automaton::Call> Automaton::calls(StateId state) {
  compute_steps(state);
  return states_[state].calls;
}

std::span<const Automaton::TokenStep> Automaton::token_steps(StateId state) {
  compute_steps(state);
  return states_[state].token_steps;
}

void Automaton::compute_steps(StateId state) {
  if (states_[state].steps_known) {
    return;
  }
  struct Step {
    Kind kind;
    uint32_t index;
    NodeId to;
    auto operator<=>(const Step&) const = default;
  };
  std::vector<Step> steps;
  for (const NodeId node : states_[state].nodes) {
    for (const Program::Edge& edge : program_.edges(node)) {
      if (edge.kind == Kind::kCall || edge.kind == Kind::kTokens) {
        steps.push_back({edge.kind, edge.index, edge.to});
      }
    }
  }
  std::ranges::sort(steps);
  std::vector<Call> calls;
  std::vector<TokenStep> token_steps;
  for (size_t i = 0; i < steps.size();) {
    std::vector<NodeId> targets;
    const Step first = steps[i];
    for (; i < steps.size() && steps[i].kind == first.kind && steps[i].index == first.index; ++i) {
      targets.push_back(steps[i].to);
    }
    const StateId after = close(targets);
    if (first.kind == Kind::kCall) {
      calls.push_back({first.index, after});
    } else {
      token_steps.push_back({first.index, after});
    }
  }
  State& entry = states_[state];
  bytes_ += calls.size() * sizeof(Call) + token_steps.size() * sizeof(TokenStep);
  entry.calls = std::move(calls);
  entry.token_steps = std::move(token_steps);
  entry.steps_known = true;
}

bool Automaton::all_lead_to(std::span<const StateId> from, uint8_t first, uint8_t last,
                            StateId target) {
  for (const StateId state : from) {
    for (unsigned byte = first; byte <= last; ++byte) {
      if (next(state, static_cast<uint8_t>(byte)) != target) {
        return false;
      }
    }
  }
  return true;
}

/// The one simple state that every plain character leads to, or kDead.
StateId Automaton::after_any_plain(StateId state) {
  const StateId target = next(state, 'a');
  if (target == kDead || !is_simple(target)) {
    return kDead;
  }
  for (unsigned byte = 0x20; byte < 0x7F; ++byte) {
    if (byte != '"' && byte != '\\' && next(state, static_cast<uint8_t>(byte)) != target) {
      return kDead;
    }
  }
  // States that wait for one more continuation byte, and for two more.
  std::vector<StateId> one;
  std::vector<StateId> two;
  const auto add = [&](StateId from, unsigned first, unsigned last, std::vector<StateId>& to) {
    for (unsigned byte = first; byte <= last; ++byte) {
      const StateId reached = next(from, static_cast<uint8_t>(byte));
      if (reached == kDead || !is_simple(reached)) {
        return false;
      }
      if (std::ranges::find(to, reached) == to.end()) {
        to.push_back(reached);
      }
    }
    return true;
  };
  std::vector<StateId> lead;
  const auto add_after = [&](unsigned byte, unsigned first, unsigned last,
                             std::vector<StateId>& to) {
    lead.clear();
    return add(state, byte, byte, lead) && add(lead.front(), first, last, to);
  };
  bool good = add(state, 0xC2, 0xDF, one) && add_after(0xE0, 0xA0, 0xBF, one) &&
              add_after(0xED, 0x80, 0x9F, one) && add(state, 0xE1, 0xEC, two) &&
              add(state, 0xEE, 0xEF, two) && add_after(0xF0, 0x90, 0xBF, two) &&
              add_after(0xF4, 0x80, 0x8F, two);
  lead.clear();
  good = good && add(state, 0xF1, 0xF3, lead);
  for (size_t i = 0; good && i < lead.size(); ++i) {
    good = add(lead[i], 0x80, 0xBF, two);
  }
  for (size_t i = 0; good && i < two.size(); ++i) {
    good = add(two[i], 0x80, 0xBF, one);
  }
  return good && all_lead_to(one, 0x80, 0xBF, target) ? target : kDead;
}

StateId Automaton::after_plain(StateId state, uint32_t characters) {
  for (uint32_t i = 0; i < characters; ++i) {
    state = next(state, 'a');
  }
  return state;
}

bool Automaton::is_plain_over(StateId state) {
  for (unsigned byte = 0x20; byte <= 0xF4; ++byte) {
    const bool begins_none =
        byte == '"' || byte == '\\' || byte == 0x7F || (byte >= 0x80 && byte < 0xC2);
    if (!begins_none && next(state, static_cast<uint8_t>(byte)) != kDead) {
      return false;
    }
  }
  return true;
}

uint32_t Automaton::plain_run(StateId state, uint32_t limit) {
  uint32_t run = 0;
  while (run < limit) {
    const StateId after = after_any_plain(state);
    if (after == kDead) {
      return run;
    }
    if (after == state) {
      return limit;
    }
    state = after;
    ++run;
  }
  return run;
}

}  // namespace stator::guided
