// SPDX-License-Identifier: Apache-2.0
#include "stator/structured/detail/schema_graph.h"

#include <algorithm>

namespace stator::structured {

void SchemaGraph::need_one_of(uint32_t schema, const std::vector<uint32_t>& targets,
                              bool same_value) {
  needs_.push_back({schema, targets});
  ++open_needs_[schema];
  if (same_value) {
    std::vector<uint32_t>& edges = same_value_[schema];
    edges.insert(edges.end(), targets.begin(), targets.end());
  }
}

// Depth-first with an explicit stack: chains of references may be as long as the document.
std::optional<uint32_t> SchemaGraph::find_loop() const {
  enum class State : uint8_t { kNew, kOpen, kDone };
  struct Step {
    uint32_t schema;
    size_t next_edge;
  };
  std::vector<State> states(same_value_.size(), State::kNew);
  std::vector<Step> path;
  for (uint32_t start = 0; start < same_value_.size(); ++start) {
    if (states[start] != State::kNew) {
      continue;
    }
    path.push_back({start, 0});
    states[start] = State::kOpen;
    while (!path.empty()) {
      Step& step = path.back();
      if (step.next_edge == same_value_[step.schema].size()) {
        states[step.schema] = State::kDone;
        path.pop_back();
        continue;
      }
      const uint32_t target = same_value_[step.schema][step.next_edge++];
      if (states[target] == State::kOpen) {
        return target;
      }
      if (states[target] == State::kNew) {
        states[target] = State::kOpen;
        path.push_back({target, 0});
      }
    }
  }
  return std::nullopt;
}

// A schema has finite values as soon as each of its needs has one target with finite values: the
// least fixed point, by unit propagation (Dowling and Gallier 1984), linear in the needs.
std::optional<uint32_t> SchemaGraph::find_endless() const {
  std::vector<uint32_t> open = open_needs_;
  std::vector<bool> met(needs_.size(), false);
  std::vector<std::vector<uint32_t>> waiting(open.size());  // by target: needs it would meet
  for (uint32_t need = 0; need < needs_.size(); ++need) {
    for (const uint32_t target : needs_[need].targets) {
      waiting[target].push_back(need);
    }
  }
  std::vector<uint32_t> finite;
  for (uint32_t schema = 0; schema < open.size(); ++schema) {
    if (open[schema] == 0) {
      finite.push_back(schema);
    }
  }
  while (!finite.empty()) {
    const uint32_t schema = finite.back();
    finite.pop_back();
    for (const uint32_t need : waiting[schema]) {
      if (!met[need]) {
        met[need] = true;
        if (--open[needs_[need].schema] == 0) {
          finite.push_back(needs_[need].schema);
        }
      }
    }
  }
  const auto endless = std::ranges::find_if(open, [](uint32_t needs) { return needs > 0; });
  if (endless == open.end()) {
    return std::nullopt;
  }
  return static_cast<uint32_t>(endless - open.begin());
}

}  // namespace stator::structured
