// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "stator/core/result.h"

namespace stator::parsers {

/// Finds stop strings in generated text without ever sending a byte of one and without holding back
/// a byte more than needed.
///
///   STATOR_TRY(auto stops, StopMatcher::create(request.stop));         // once per request
///   StopMatcher::State state;                                           // one per choice
///   if (auto match = stops->feed(state, delta, IncludeStop::kNo, out)) { … finish_reason stop … }
///   stops->flush(state, out);                                           // at any other end
///
/// Matching is on bytes. Earliest start wins, then the longest, then the order of the list.

/// Whether the matched stop string itself is part of the output.
enum class IncludeStop : uint8_t { kNo, kYes };

/// Whether text may begin a stop string; kNo for what is generated before `min_tokens`.
enum class Matchable : uint8_t { kNo, kYes };

/// Limits; beyond them `create` returns kInvalidArgument.
inline constexpr size_t kMaxStopStrings = 32;
inline constexpr size_t kMaxStopBytesTotal = 16384;

/// Aho–Corasick automaton over the stop strings of one request. Immutable, shared by its choices.
class StopMatcher {
 public:
  struct Match {
    size_t index;  ///< which stop string, position in the list given to `create`
    friend bool operator==(const Match&, const Match&) = default;
  };

  /// What one choice remembers: the held-back text. Invariants after each call without a match:
  /// S1: `held` is exactly the longest suffix of the text fed so far that a stop string may still
  ///     start in and continue (a proper prefix of one, or a match waiting for an earlier or longer
  ///     one).
  /// S2: output so far + held == all text fed so far.
  class State {
   public:
    size_t held_bytes() const { return held_.size(); }
    bool matched() const { return matched_; }

   private:
    friend class StopMatcher;
    struct Pending {  // the best complete match so far; offsets in held_
      size_t index;
      size_t begin;
      size_t end;
    };
    std::string held_;
    uint32_t node_ = 0;
    bool matched_ = false;
    std::optional<Pending> pending_;
  };

  /// kInvalidArgument: an empty stop string, too many, or too many bytes. An empty list matches
  /// nothing.
  static Result<std::shared_ptr<const StopMatcher>> create(std::span<const std::string> stops);

  /// Appends to `out` what is now certain not to belong to a stop string. On a match returns it,
  /// having released the text before it (and the stop string itself with kYes); text after it is
  /// dropped and the state is over: later calls append nothing and return nothing. A match that
  /// could still become an earlier-starting or longer one waits for the next byte, so the result
  /// never depends on how the text was cut. kNo text first ends the wait as `flush` does:
  /// min_tokens come first in a stream.
  std::optional<Match> feed(State& state, std::string_view text, IncludeStop include,
                            std::string& out, Matchable matchable = Matchable::kYes) const;

  /// The stream ended without a decision: a match that was waiting to grow is now final and
  /// returned, otherwise the held text is released.
  std::optional<Match> flush(State& state, IncludeStop include, std::string& out) const;

  bool empty() const { return stops_.empty(); }
  /// The stop string behind a match, for `stop_reason`.
  const std::string& stop(size_t index) const { return stops_[index]; }

 private:
  static constexpr uint32_t kRoot = 0;
  static constexpr uint32_t kNone = UINT32_MAX;
  /// Trie of the stop strings: children are a linked list of siblings, as most nodes have one.
  struct Node {
    unsigned char byte = 0;
    uint32_t first_child = kNone;
    uint32_t next_sibling = kNone;
    uint32_t depth = 0;
    uint32_t fail = kRoot;          // longest proper suffix that is in the trie
    uint32_t live_depth = 0;        // length of the longest suffix (or itself) that has children
    uint32_t longest_stop = kNone;  // longest stop string that ends here, as an index into stops_
    bool is_stop = false;
  };

  StopMatcher() = default;
  void add(size_t index);
  void link_failures();
  uint32_t find_child(uint32_t node, unsigned char byte) const;
  uint32_t advance(uint32_t node, unsigned char byte) const;
  void consider(State& state, size_t released) const;
  Match settle(State& state, size_t released, IncludeStop include, std::string& out) const;
  void release(State& state, std::string& out) const;

  std::vector<std::string> stops_;
  std::vector<Node> nodes_;
  std::array<bool, 256> starts_{};  // bytes that begin a stop string
};

}  // namespace stator::parsers
