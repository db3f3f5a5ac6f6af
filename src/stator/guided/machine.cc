// SPDX-License-Identifier: Apache-2.0
#include "stator/guided/machine.h"

#include <algorithm>
#include <optional>

#include "stator/core/assert.h"

namespace stator::guided {
namespace {

// Below, a walk over everything is as quick as what could be left out.
constexpr uint32_t kPlainRunMin = 4;
// Nodes of a trie that are worth a look at what their place does with every byte.
constexpr uint32_t kSubtreeMin = 6;

}  // namespace

Machine::Machine(const Program& program, const Vocabulary& vocabulary)
    : vocabulary_(vocabulary),
      automaton_(program),
      contexts_(2),
      context_bytes_(2, 0),
      path_(size_t{vocabulary.all().depth_max()} + 2) {}

Position Machine::begin() {
  // A caller in front of the root would have to be a state: the root's own is entered by hand.
  std::vector<Item> reached;
  const RuleId root = automaton_.program().root();
  const StateId first = automaton_.begin(root);
  reached.push_back({first, kWhole});
  Position at = settle(reached);
  // settle() takes a state that ends for a rule that has been read: so it is for an empty text.
  return at;
}

/// What settle() works on: items whose rules have not been looked into, and calls by rank.
struct Machine::Settling {
  struct Pending {
    uint32_t rank;
    RuleId rule;
    std::vector<Item> returns;
  };
  std::vector<Item> items;
  std::vector<Pending> calls;  // few: kept in order of rank
  size_t called = 0;           // items before this have made their calls
};

/// Follows ends of rules back to their callers and calls into other rules, until every item is
/// about to read.
Position Machine::settle(std::vector<Item>& reached) {
  Settling settling{.items = std::move(reached), .calls = {}};
  bool ends = false;
  bool leaves = false;
  std::vector<Item>& found = settling.items;
  std::ranges::sort(found);
  found.erase(std::ranges::unique(found).begin(), found.end());
  for (size_t i = 0; i < found.size(); ++i) {
    const Item item = found[i];
    if (!automaton_.may_end(item.state)) {
      continue;
    }
    leaves = leaves || item.context == kOutside;
    ends = ends || item.context == kWhole;
    for (const Item& caller : contexts_[item.context]) {
      if (std::ranges::find(found, caller) == found.end()) {
        found.push_back(caller);
      }
    }
  }
  enter_calls(settling);
  std::erase_if(found, [this](const Item& item) {
    return !automaton_.reads_bytes(item.state) && !automaton_.reads_tokens(item.state);
  });
  std::ranges::sort(found);
  return intern(found, ends, leaves);
}

void Machine::enter_calls(Settling& settling) {
  const std::span<const Program::RuleNodes> rules = automaton_.program().rules();
  const auto collect = [&] {
    for (; settling.called < settling.items.size(); ++settling.called) {
      const Item item = settling.items[settling.called];
      if (automaton_.is_simple(item.state)) {
        continue;
      }
      for (const Automaton::Call& call : automaton_.calls(item.state)) {
        auto at = std::ranges::find(settling.calls, call.rule, &Settling::Pending::rule);
        if (at == settling.calls.end()) {
          at = settling.calls.insert(at, {rules[call.rule].rank, call.rule, {}});
        }
        at->returns.push_back({call.after, item.context});
      }
    }
  };
  collect();
  while (!settling.calls.empty()) {
    // Whoever may still call a rule comes before it.
    const auto first = std::ranges::min_element(settling.calls, {}, &Settling::Pending::rank);
    const RuleId rule = first->rule;
    const ContextId context = intern_context(first->returns);
    settling.calls.erase(first);
    settling.items.push_back({automaton_.begin(rule), context});
    collect();
  }
}

ContextId Machine::intern_context(std::vector<Item>& returns) {
  std::ranges::sort(returns);
  returns.erase(std::ranges::unique(returns).begin(), returns.end());
  const auto [entry, added] =
      context_ids_.try_emplace(returns, static_cast<ContextId>(contexts_.size()));
  const ContextId id = entry->second;
  if (added) {
    contexts_.push_back(returns);
    uint32_t bytes = UINT32_MAX;
    for (const Item& caller : returns) {
      bytes =
          std::min(bytes, automaton_.bytes_to_end(caller.state) + context_bytes_[caller.context]);
    }
    context_bytes_.push_back(bytes);
    bytes_ += 96 + 2 * returns.size() * sizeof(Item);
  }
  return id;
}

Position Machine::intern(std::vector<Item>& items, bool ends, bool leaves) {
  if (!ends && !leaves && items.size() <= 1) {
    return items.empty() ? Position{} : Position{items.front().state, items.front().context};
  }
  items.push_back({UINT32_MAX, (ends ? 1U : 0U) | (leaves ? 2U : 0U)});
  const auto [entry, added] = set_ids_.try_emplace(items, static_cast<uint32_t>(sets_.size()));
  const uint32_t id = entry->second;
  if (added) {
    sets_.push_back({.begin = static_cast<uint32_t>(set_items_.size()),
                     .count = static_cast<uint32_t>(items.size() - 1),
                     .ends = ends,
                     .leaves = leaves});
    set_items_.insert(set_items_.end(), items.begin(), items.end() - 1);
    bytes_ += 96 + 2 * items.size() * sizeof(Item);
  }
  return {Position::kSet, id};
}

Position Machine::settle_one(StateId state, ContextId context) {
  const Item item{state, context};
  if (const auto known = settled_.find(item); known != settled_.end()) {
    return known->second;
  }
  std::vector<Item> reached{item};
  const Position at = settle(reached);
  settled_.emplace(item, at);
  bytes_ += sizeof(Item) + sizeof(Position) + 1;
  return at;
}

std::span<const Item> Machine::items(const Position& at, Item& one) const {
  if (at.is_nowhere()) {
    return {};
  }
  if (at.is_set()) {
    const Set& set = sets_[at.context];
    return std::span(set_items_).subspan(set.begin, set.count);
  }
  one = {at.state, at.context};
  return {&one, 1};
}

Position Machine::step(Position at, uint8_t byte) {
  if (!at.is_set()) {
    const StateId next = automaton_.next(at.state, byte);
    if (next == Automaton::kDead) {
      return {};
    }
    return automaton_.is_simple(next) ? Position{next, at.context} : settle_one(next, at.context);
  }
  const uint64_t key = uint64_t{at.context} << 8U | automaton_.program().class_of(byte);
  if (const auto known = set_steps_.find(key); known != set_steps_.end()) {
    return known->second;
  }
  std::vector<Item> reached;
  Item one;
  for (const Item& item : items(at, one)) {
    const StateId next = automaton_.next(item.state, byte);
    if (next != Automaton::kDead) {
      reached.push_back({next, item.context});
    }
  }
  const Position after = reached.empty() ? Position{} : settle(reached);
  set_steps_.emplace(key, after);
  bytes_ += sizeof(key) + sizeof(Position) + 1;
  return after;
}

uint64_t Machine::staying_groups(Position at) {
  if (const auto known = staying_.find(at); known != staying_.end()) {
    return known->second;
  }
  uint64_t groups = ~uint64_t{0};
  for (unsigned byte = 0; byte < 256; ++byte) {
    const auto value = static_cast<uint8_t>(byte);
    const uint64_t bit = uint64_t{1} << byte_group(value);
    if ((groups & bit) != 0 && step(at, value) != at) {
      groups &= ~bit;
    }
  }
  staying_.emplace(at, groups);
  bytes_ += sizeof(Position) + sizeof(uint64_t) + 1;
  return groups;
}

Position Machine::advance_bytes(Position at, std::string_view bytes) {
  for (const char c : bytes) {
    if (at.is_nowhere()) {
      break;
    }
    at = step(at, static_cast<uint8_t>(c));
  }
  return at;
}

Position Machine::advance(Position at, TokenId token) {
  std::vector<Item> reached;
  Item one;
  const std::vector<Item> before(items(at, one).begin(), items(at, one).end());
  for (const Item& item : before) {
    if (!automaton_.reads_tokens(item.state)) {
      continue;
    }
    const auto steps = automaton_.token_steps(item.state);
    for (const Automaton::TokenStep& step : std::vector(steps.begin(), steps.end())) {
      if (automaton_.program().token_sets()[step.set].test(token)) {
        reached.push_back({step.after, item.context});
      }
    }
  }
  const std::string_view bytes = vocabulary_.bytes(token);
  const Position by_bytes = bytes.empty() || before.empty() ? Position{} : advance_bytes(at, bytes);
  if (reached.empty()) {
    return by_bytes;
  }
  // Two ways to read it: what the bytes led to is settled already, but for whether the text ends.
  const Position by_token = settle(reached);
  if (by_bytes.is_nowhere()) {
    return by_token;
  }
  std::vector<Item> joined(items(by_token, one).begin(), items(by_token, one).end());
  const auto others = items(by_bytes, one);
  joined.insert(joined.end(), others.begin(), others.end());
  std::ranges::sort(joined);
  joined.erase(std::ranges::unique(joined).begin(), joined.end());
  return intern(joined, may_end(by_token) || may_end(by_bytes), false);
}

bool Machine::may_end(Position at) const {
  return at.is_set() && sets_[at.context].ends;
}

bool Machine::must_end(Position at) const {
  return may_end(at) && sets_[at.context].count == 0;
}

/// Where the callers of a context go on once their rule was read; nowhere if only the end follows.
Position Machine::after_return(ContextId context) {
  if (const auto known = returned_.find(context); known != returned_.end()) {
    return known->second;
  }
  std::vector<Item> reached = contexts_[context];
  const Position at = reached.empty() ? Position{} : settle(reached);
  returned_.emplace(context, at);
  return at;
}

// ---- masks

/// Of a walk that is at `at` behind them.
void Machine::add_tokens(const Walk& walk, std::span<const TokenId> tokens, Position at) const {
  if (walk.grades != nullptr) {
    walk.grades->add(tokens, bytes_needed(at));
    return;
  }
  for (const TokenId token : tokens) {
    walk.tokens->set(token);
  }
}

void Machine::walk(const Walk& walk) {
  const std::span<const TokenTrie::Node> nodes = walk.trie->nodes();
  path_[0] = walk.at;
  for (uint32_t i = walk.first; i < walk.end;) {
    const TokenTrie::Node& node = nodes[i];
    const auto depth = static_cast<size_t>(node.depth - walk.depth);
    const Position at = step(path_[depth - 1], node.byte);
    if (at.is_nowhere()) {
      i = node.end;
      continue;
    }
    path_[depth] = at;
    // Where all that a subtree has leads back here, its tokens need no look.
    if (at == path_[depth - 1] && node.end - i >= kSubtreeMin && !leaves(at) &&
        (walk.trie->groups_below(i) & ~staying_groups(at)) == 0) {
      add_tokens(walk, walk.trie->tokens_below(i), at);
      i = node.end;
      continue;
    }
    if (node.token_count > 0) {
      add_tokens(walk, walk.trie->tokens_at(node), at);
    }
    bool goes_on = true;
    if (at.is_set()) {
      const Set& set = sets_[at.context];
      if (set.leaves && walk.exits != nullptr) {
        walk.exits->push_back(i);
      }
      goes_on = set.count > 0;
    }
    i = goes_on ? i + 1 : node.end;
  }
}

/// Whether behind `run` plain characters no other may come, and tokens with more are all known.
bool Machine::is_bounded_plain(StateId state, uint32_t run) {
  return run > 0 && run < Vocabulary::kCharactersMax &&
         automaton_.is_plain_over(automaton_.after_plain(state, run));
}

/// Plain tokens where any `run` plain characters may come, without looking at each. False if what
/// comes after them may end the rule: then every token must be looked at.
bool Machine::add_plain(StateId state, uint32_t run, TokenSet& out) {
  out |= vocabulary_.plain_up_to(run);
  if (run == UINT16_MAX) {
    return true;
  }
  const uint32_t counted = std::min(run, Vocabulary::kCharactersMax - 1);
  if (is_bounded_plain(state, run)) {
    return true;
  }
  for (const TokenId token : vocabulary_.plain_above(counted)) {
    Position at{state, kOutside};
    for (const char c : vocabulary_.bytes(token)) {
      at = step(at, static_cast<uint8_t>(c));
      if (at.is_nowhere()) {
        break;
      }
      if (at.is_set() && sets_[at.context].leaves) {
        return false;
      }
    }
    if (at.is_nowhere()) {
      out.reset(token);
    } else {
      out.set(token);
    }
  }
  return true;
}

Machine::Local& Machine::local(StateId state) {
  if (const auto known = locals_.find(state); known != locals_.end()) {
    return *known->second;
  }
  auto out = std::make_unique<Local>();
  out->tokens = TokenSet(vocabulary_.size());
  out->trie = &vocabulary_.all();
  const uint32_t run = automaton_.is_simple(state) ? automaton_.plain_run(state, UINT16_MAX) : 0;
  if (run >= kPlainRunMin || is_bounded_plain(state, run)) {
    if (add_plain(state, run, out->tokens)) {
      out->trie = &vocabulary_.marked();
    } else {
      out->tokens = TokenSet(vocabulary_.size());
    }
  }
  walk({.trie = out->trie,
        .end = static_cast<uint32_t>(out->trie->nodes().size()),
        .at = {state, kOutside},
        .tokens = &out->tokens,
        .exits = &out->exits});
  masks_bytes_ += out->tokens.bytes() + out->exits.size() * sizeof(uint32_t) + 64;
  return *locals_.emplace(state, std::move(out)).first->second;
}

/// Where a token leaves the rule of `item`, its rest is read by the callers; `into` says what takes
/// the tokens.
void Machine::walk_behind_rule(const Item& item, const Local& own, Walk into) {
  if (own.exits.empty()) {
    return;
  }
  into.trie = own.trie;
  into.at = after_return(item.context);
  Item one;
  if (items(into.at, one).empty()) {
    return;
  }
  for (const uint32_t exit : own.exits) {
    const TokenTrie::Node& node = own.trie->nodes()[exit];
    into.first = exit + 1;
    into.end = node.end;
    into.depth = node.depth;
    walk(into);
  }
}

const TokenSet& Machine::item_mask(const Item& item) {
  if (const auto known = item_masks_.find(item); known != item_masks_.end()) {
    return *known->second;
  }
  const Local& own = local(item.state);
  auto out = std::make_unique<TokenSet>(own.tokens);
  walk_behind_rule(item, own, {.tokens = out.get()});
  if (automaton_.reads_tokens(item.state)) {
    for (const Automaton::TokenStep& step : automaton_.token_steps(item.state)) {
      *out |= automaton_.program().token_sets()[step.set];
    }
  }
  masks_bytes_ += out->bytes() + 64;
  return *item_masks_.emplace(item, std::move(out)).first->second;
}

const TokenSet& Machine::mask(Position at) {
  STATOR_ASSERT(!at.is_nowhere(), "a text that left its grammar has no next token");
  if (!at.is_set()) {
    return item_mask({at.state, at.context});
  }
  if (const auto known = set_masks_.find(at.context); known != set_masks_.end()) {
    return *known->second;
  }
  auto out = std::make_unique<TokenSet>(vocabulary_.size());
  Item one;
  for (const Item& item : std::vector<Item>(items(at, one).begin(), items(at, one).end())) {
    *out |= item_mask(item);
  }
  masks_bytes_ += out->bytes() + 64;
  return *set_masks_.emplace(at.context, std::move(out)).first->second;
}

uint32_t Machine::bytes_to_end(Position at) const {
  if (may_end(at)) {
    return 0;
  }
  uint32_t bytes = UINT32_MAX;
  Item one;
  for (const Item& item : items(at, one)) {
    bytes = std::min(bytes, automaton_.bytes_to_end(item.state) + context_bytes_[item.context]);
  }
  return bytes;
}

bool Machine::is_tight(Position at, uint32_t tokens_left) const {
  // A token may open what takes a whole rule to close.
  constexpr uint32_t kMargin = 64;
  return tokens_left <=
         uint64_t{bytes_to_end(at)} + automaton_.program().shortest_text_max() + kMargin;
}

/// To the end of the text or, where the callers are not looked at, of the rule.
uint32_t Machine::bytes_needed(Position at) const {
  return leaves(at) ? 0 : bytes_to_end(at);
}

/// The tokens of local(), by what the rule needs behind them.
const Grades& Machine::own_grades(StateId state) {
  Local& own = local(state);
  if (own.grades != nullptr) {
    return *own.grades;
  }
  auto grades = std::make_unique<Grades>();
  if (own.trie == &vocabulary_.marked()) {
    grade_plain(state, *grades);
  }
  walk({.trie = own.trie,
        .end = static_cast<uint32_t>(own.trie->nodes().size()),
        .at = {state, kOutside},
        .grades = grades.get()});
  grades->finish(vocabulary_.size());
  masks_bytes_ += grades->bytes() + 64;
  own.grades = std::move(grades);
  return *own.grades;
}

/// Plain tokens where local() takes them without looking at each: what is needed behind them
/// depends on how many characters they have.
void Machine::grade_plain(StateId state, Grades& out) {
  const uint32_t run = automaton_.plain_run(state, UINT16_MAX);
  const uint32_t counted = std::min(run, Vocabulary::kCharactersMax - 1);
  uint32_t first = 0;  // of those that need the same: behind so many characters
  StateId reached = automaton_.next(state, 'a');
  for (uint32_t characters = 1; characters <= counted; ++characters) {
    const StateId next = automaton_.next(reached, 'a');
    const uint32_t need = automaton_.bytes_to_end(reached);
    if (characters == counted || automaton_.bytes_to_end(next) != need) {
      out.add(vocabulary_.plain_up_to(characters), vocabulary_.plain_up_to(first), need);
      first = characters;
    }
    reached = next;
  }
  if (is_bounded_plain(state, run)) {
    return;
  }
  for (const TokenId token : vocabulary_.plain_above(counted)) {
    const Position at = advance_bytes({state, kOutside}, vocabulary_.bytes(token));
    if (!at.is_nowhere()) {
      out.add(token, bytes_needed(at));
    }
  }
}

/// The tokens that item_mask() adds behind the rule, by what the text needs behind them.
const Grades& Machine::callers_grades(const Item& item) {
  if (const auto known = callers_grades_.find(item); known != callers_grades_.end()) {
    return *known->second;
  }
  auto grades = std::make_unique<Grades>();
  const Local& own = local(item.state);
  walk_behind_rule(item, own, {.grades = grades.get()});
  if (automaton_.reads_tokens(item.state)) {
    for (const Automaton::TokenStep& step : automaton_.token_steps(item.state)) {
      grades->add(automaton_.program().token_sets()[step.set], TokenSet(vocabulary_.size()),
                  automaton_.bytes_to_end(step.after) + context_bytes_[item.context]);
    }
  }
  grades->finish(vocabulary_.size());
  masks_bytes_ += grades->bytes() + 64;
  return *callers_grades_.emplace(item, std::move(grades)).first->second;
}

const TokenSet& Machine::mask_within(Position at, uint32_t tokens_left, TokenSet& scratch) {
  const uint32_t bytes_max = tokens_left - 1;
  Item one;
  const std::vector<Item> places(items(at, one).begin(), items(at, one).end());
  const bool all = std::ranges::all_of(places, [&](const Item& item) {
    return uint64_t{own_grades(item.state).need_max()} + context_bytes_[item.context] <=
               bytes_max &&
           callers_grades(item).need_max() <= bytes_max;
  });
  if (all) {
    return mask(at);
  }
  scratch = TokenSet(vocabulary_.size());
  for (const Item& item : places) {
    if (context_bytes_[item.context] <= bytes_max) {
      own_grades(item.state).add_within(bytes_max - context_bytes_[item.context], scratch);
    }
    callers_grades(item).add_within(bytes_max, scratch);
  }
  return scratch.none() && !may_end(at) ? mask(at) : scratch;
}

void Machine::forget_masks() {
  locals_.clear();
  item_masks_.clear();
  set_masks_.clear();
  callers_grades_.clear();
  masks_bytes_ = 0;
}

}  // namespace stator::guided
