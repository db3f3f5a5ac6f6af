// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "stator/core/flat_map.h"
#include "stator/guided/automaton.h"
#include "stator/guided/grades.h"
#include "stator/guided/vocabulary.h"

namespace stator::guided {

/// Which callers wait for the text of a rule, interned: a set of (state to go on in, their own
/// callers).
using ContextId = uint32_t;

/// A place in a grammar: a state of the automaton and who waits for its rule.
struct Item {
  StateId state = 0;
  ContextId context = 0;
  friend constexpr auto operator<=>(const Item&, const Item&) = default;
  template <typename H>
  friend H AbslHashValue(H hash, const Item& item) {  // NOLINT(readability-identifier-naming)
    return H::combine(std::move(hash), item.state, item.context);
  }
};

/// All places a text may have reached: one item, or an interned set of them.
struct Position {
  static constexpr uint32_t kSet = UINT32_MAX - 2;
  static constexpr uint32_t kNowhere = UINT32_MAX;
  uint32_t state = kNowhere;  ///< or kSet: `context` is the index of a set
  uint32_t context = 0;

  bool is_nowhere() const { return state == kNowhere; }
  bool is_set() const { return state == kSet; }
  friend constexpr auto operator<=>(const Position&, const Position&) = default;
  template <typename H>
  friend H AbslHashValue(H hash, const Position& at) {  // NOLINT(readability-identifier-naming)
    return H::combine(std::move(hash), at.state, at.context);
  }
};

/// Follows one grammar through text and tells which tokens may come next. Callers that wait for a
/// rule at the same place are merged, as in generalised parsing (Tomita's graph-structured stack),
/// so that the places of any text are few: linear in the grammar, not exponential in the text.
///
/// A mask is put together from the part that depends on a state alone (tokens that stay within its
/// rule, and the places in the token trie where the rule ends) and what the callers add. Both
/// parts, and everything else found out, is kept; `bytes()` tells how much that is. Thread-safety:
/// none. `program` and `vocabulary` outlive it.
class Machine {
 public:
  Machine(const Program& program, const Vocabulary& vocabulary);

  Position begin();
  /// kNowhere if the token may not come next.
  Position advance(Position at, TokenId token);
  /// Whether the text may end here.
  bool may_end(Position at) const;
  /// Whether nothing but the end may come.
  bool must_end(Position at) const;
  /// The tokens that may come next. Valid until forget_masks().
  const TokenSet& mask(Position at);
  /// The shortest text from here to the end, in bytes.
  uint32_t bytes_to_end(Position at) const;
  /// Whether a mask for `tokens_left` tokens could differ from mask(): the end is near.
  bool is_tight(Position at, uint32_t tokens_left) const;
  /// Those of mask() after which the text can still end within tokens_left − 1 tokens, a byte each;
  /// all of them if none can. Put together in `scratch` where it differs from mask(): some ten
  /// microseconds once a state has been seen. Valid until forget_masks() and the next use of
  /// `scratch`.
  const TokenSet& mask_within(Position at, uint32_t tokens_left, TokenSet& scratch);

  size_t bytes() const { return bytes_ + masks_bytes_ + automaton_.bytes(); }
  /// Of masks alone, which can be forgotten without losing a Position.
  size_t mask_bytes() const { return masks_bytes_; }
  void forget_masks();

 private:
  static constexpr ContextId kOutside = 0;  // the caller is not looked at: the rule's own part
  static constexpr ContextId kWhole = 1;    // the end of the whole text

  struct Set {
    uint32_t begin = 0;
    uint32_t count = 0;
    bool ends = false;    // the whole text may end here
    bool leaves = false;  // the rule that is looked at alone may end here
  };
  /// What of a mask depends on the state alone.
  struct Local {
    TokenSet tokens;
    const TokenTrie* trie = nullptr;
    std::vector<uint32_t> exits;     // its nodes at which the rule may end
    std::unique_ptr<Grades> grades;  // of `tokens`, up to the end of the rule; null: not asked yet
  };
  struct Settling;
  /// A walk over a part of a trie.
  struct Walk {
    const TokenTrie* trie = nullptr;
    uint32_t first = 0;
    uint32_t end = 0;
    uint16_t depth = 0;  // of the node the walk starts below
    Position at;
    TokenSet* tokens = nullptr;
    std::vector<uint32_t>* exits = nullptr;
    Grades* grades = nullptr;  // instead of `tokens`
  };

  Position step(Position at, uint8_t byte);
  /// Groups of bytes (byte_group) whose every byte leads from a place to itself.
  uint64_t staying_groups(Position at);
  Position settle_one(StateId state, ContextId context);
  Position settle(std::vector<Item>& reached);
  void enter_calls(Settling& settling);
  ContextId intern_context(std::vector<Item>& returns);
  Position intern(std::vector<Item>& items, bool ends, bool leaves);
  Position after_return(ContextId context);
  bool leaves(Position at) const { return at.is_set() && sets_[at.context].leaves; }
  std::span<const Item> items(const Position& at, Item& one) const;
  Position advance_bytes(Position at, std::string_view bytes);

  Local& local(StateId state);
  bool is_bounded_plain(StateId state, uint32_t run);
  bool add_plain(StateId state, uint32_t run, TokenSet& out);
  const TokenSet& item_mask(const Item& item);
  uint32_t bytes_needed(Position at) const;
  const Grades& own_grades(StateId state);
  void grade_plain(StateId state, Grades& out);
  const Grades& callers_grades(const Item& item);
  void add_tokens(const Walk& walk, std::span<const TokenId> tokens, Position at) const;
  void walk(const Walk& walk);
  void walk_behind_rule(const Item& item, const Local& own, Walk into);

  const Vocabulary& vocabulary_;
  Automaton automaton_;
  std::vector<std::vector<Item>> contexts_;
  std::vector<uint32_t> context_bytes_;  // to the end of the text, from where callers go on
  FlatMap<std::vector<Item>, ContextId> context_ids_;
  std::vector<Item> set_items_;
  std::vector<Set> sets_;
  FlatMap<std::vector<Item>, uint32_t> set_ids_;  // items, then one that stands for the flags
  FlatMap<Item, Position> settled_;
  FlatMap<ContextId, Position> returned_;
  FlatMap<uint64_t, Position> set_steps_;  // set and byte class
  FlatMap<Position, uint64_t> staying_;
  FlatMap<StateId, std::unique_ptr<Local>> locals_;
  FlatMap<Item, std::unique_ptr<TokenSet>> item_masks_;
  FlatMap<uint32_t, std::unique_ptr<TokenSet>> set_masks_;
  FlatMap<Item, std::unique_ptr<Grades>> callers_grades_;  // of tokens that go on behind the rule
  std::vector<Position> path_;
  size_t bytes_ = 0;
  size_t masks_bytes_ = 0;
};

}  // namespace stator::guided
