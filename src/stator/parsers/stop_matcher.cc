// SPDX-License-Identifier: Apache-2.0
#include "stator/parsers/stop_matcher.h"

#include "stator/core/assert.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace stator::parsers {

Result<std::shared_ptr<const StopMatcher>> StopMatcher::create(std::span<const std::string> stops) {
  if (stops.size() > kMaxStopStrings) {
    return Error(Code::kInvalidArgument, fmt::format("stop has {} strings; at most {} are allowed",
                                                     stops.size(), kMaxStopStrings));
  }
  size_t bytes = 0;
  for (const std::string& stop : stops) {
    bytes += stop.size();
    if (stop.empty()) {
      return Error(Code::kInvalidArgument, "stop contains an empty string");
    }
  }
  if (bytes > kMaxStopBytesTotal) {
    return Error(Code::kInvalidArgument,
                 fmt::format("stop strings have {} bytes together; at most {} are allowed", bytes,
                             kMaxStopBytesTotal));
  }
  auto matcher = std::shared_ptr<StopMatcher>(new StopMatcher());  // NOLINT: private constructor
  matcher->stops_.assign(stops.begin(), stops.end());
  matcher->nodes_.reserve(bytes + 1);
  matcher->nodes_.emplace_back();
  for (size_t i = 0; i < stops.size(); ++i) {
    matcher->add(i);
  }
  matcher->link_failures();
  return std::shared_ptr<const StopMatcher>(std::move(matcher));
}

void StopMatcher::add(size_t index) {
  uint32_t node = kRoot;
  for (const char c : stops_[index]) {
    const auto byte = static_cast<unsigned char>(c);
    uint32_t child = find_child(node, byte);
    if (child == kNone) {
      child = static_cast<uint32_t>(nodes_.size());
      nodes_.push_back({.byte = byte,
                        .next_sibling = nodes_[node].first_child,
                        .depth = nodes_[node].depth + 1});
      nodes_[node].first_child = child;
    }
    node = child;
  }
  starts_[static_cast<unsigned char>(stops_[index][0])] = true;
  if (!nodes_[node].is_stop) {  // of equal strings the first in the list counts
    nodes_[node].is_stop = true;
    nodes_[node].longest_stop = static_cast<uint32_t>(index);
  }
}

/// Breadth first, so that the suffix of a node, which is shorter, is finished before it (Aho and
/// Corasick, 1975).
void StopMatcher::link_failures() {
  std::vector<uint32_t> order = {kRoot};
  order.reserve(nodes_.size());
  for (size_t i = 0; i < order.size(); ++i) {
    const uint32_t parent = order[i];
    for (uint32_t child = nodes_[parent].first_child; child != kNone;
         child = nodes_[child].next_sibling) {
      Node& node = nodes_[child];
      node.fail = parent == kRoot ? kRoot : advance(nodes_[parent].fail, node.byte);
      const Node& suffix = nodes_[node.fail];
      node.live_depth = node.first_child != kNone ? node.depth : suffix.live_depth;
      if (!node.is_stop) {
        node.longest_stop = suffix.longest_stop;
      }
      order.push_back(child);
    }
  }
}

uint32_t StopMatcher::find_child(uint32_t node, unsigned char byte) const {
  uint32_t child = nodes_[node].first_child;
  while (child != kNone && nodes_[child].byte != byte) {
    child = nodes_[child].next_sibling;
  }
  return child;
}

/// The node of the longest suffix of (text of `node` + byte) that begins a stop string.
uint32_t StopMatcher::advance(uint32_t node, unsigned char byte) const {
  while (true) {
    if (const uint32_t child = find_child(node, byte); child != kNone) {
      return child;
    }
    if (node == kRoot) {
      return kRoot;
    }
    node = nodes_[node].fail;
  }
}

/// Takes the longest stop string that ends at the last held byte if it beats the pending one.
/// Shorter ones that end there start later, so they never win.
void StopMatcher::consider(State& state, size_t released) const {
  const uint32_t index = nodes_[state.node_].longest_stop;
  if (index == kNone) {
    return;
  }
  const size_t end = state.held_.size();
  const size_t begin = end - stops_[index].size();
  STATOR_ASSERT(begin >= released, "S1: what may begin a stop string is held");
  if (!state.pending_ ||
      begin <= state.pending_->begin) {  // equal start: it ends later, so is longer
    state.pending_ = State::Pending{index, begin, end};
  }
}

std::optional<StopMatcher::Match> StopMatcher::feed(State& state, std::string_view text,
                                                    IncludeStop include, std::string& out,
                                                    Matchable matchable) const {
  if (state.matched_) {
    return std::nullopt;
  }
  if (stops_.empty() || matchable == Matchable::kNo) {
    const auto match = flush(state, include, out);
    if (!match) {
      out.append(text);
    }
    return match;
  }
  size_t released = 0;  // this many bytes of held_ are in `out` already; erased once, at the end
  for (size_t at = 0; at < text.size(); ++at) {
    if (state.node_ == kRoot && !state.pending_) {  // then nothing is held
      state.held_.clear();
      released = 0;
      const size_t begin = at;
      while (at < text.size() && !starts_[static_cast<unsigned char>(text[at])]) {
        ++at;
      }
      out.append(text.substr(begin, at - begin));
      if (at == text.size()) {
        break;
      }
    }
    state.held_.push_back(text[at]);
    state.node_ = advance(state.node_, static_cast<unsigned char>(text[at]));
    consider(state, released);
    const size_t live_begin = state.held_.size() - nodes_[state.node_].live_depth;
    if (state.pending_ && live_begin > state.pending_->begin) {
      return settle(state, released, include, out);
    }
    if (!state.pending_ && live_begin > released) {
      out.append(state.held_, released, live_begin - released);
      released = live_begin;
    }
  }
  state.held_.erase(0, released);
  if (state.pending_) {
    state.pending_->begin -= released;
    state.pending_->end -= released;
  }
  return std::nullopt;
}

std::optional<StopMatcher::Match> StopMatcher::flush(State& state, IncludeStop include,
                                                     std::string& out) const {
  if (state.matched_) {
    return std::nullopt;
  }
  if (state.pending_) {
    return settle(state, 0, include, out);
  }
  release(state, out);
  return std::nullopt;
}

StopMatcher::Match StopMatcher::settle(State& state, size_t released, IncludeStop include,
                                       std::string& out) const {
  const State::Pending match = *state.pending_;
  const size_t end = include == IncludeStop::kYes ? match.end : match.begin;
  out.append(state.held_, released, end - released);
  state = State();
  state.matched_ = true;
  return {match.index};
}

void StopMatcher::release(State& state, std::string& out) const {
  out.append(state.held_);
  state.held_.clear();
  state.node_ = kRoot;
}

}  // namespace stator::parsers
