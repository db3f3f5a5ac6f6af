// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "stator/core/result.h"
#include "stator/guided/machine.h"
#include "stator/guided/program.h"
#include "stator/guided/vocabulary.h"

namespace stator::guided {

/// What one grammar may hold of masks, and of everything else it found out about itself.
inline constexpr size_t kMaskBytesMax = 16U << 20U;
inline constexpr size_t kGrammarBytesMax = 64U << 20U;

/// A constraint compiled for a vocabulary, shared by the requests that have it.
/// Thread-safety: compile() anywhere; everything else by one thread, the engine's.
class Grammar {
 public:
  /// `structured_outputs` as in inference::EngineRequest. Errors name what to change.
  static Result<std::shared_ptr<Grammar>> compile(std::string_view structured_outputs,
                                                  std::shared_ptr<const Vocabulary> vocabulary);
  /// For make_shared only.
  Grammar(std::shared_ptr<const Vocabulary> vocabulary, Program program);
  Grammar(const Grammar&) = delete;
  Grammar& operator=(const Grammar&) = delete;

  Machine& machine() { return *machine_; }
  const Vocabulary& vocabulary() const { return *vocabulary_; }
  /// Forgets masks, and if need be everything (then positions of before mean nothing, and age()
  /// changes), where there is more than the limits allow.
  void stay_within_limits();
  uint64_t age() const { return age_; }
  /// As of the last stay_within_limits(); from any thread.
  size_t bytes() const { return bytes_.load(std::memory_order_relaxed); }

 private:
  std::shared_ptr<const Vocabulary> vocabulary_;
  const Program program_;
  std::unique_ptr<Machine> machine_;
  uint64_t age_ = 0;
  std::atomic<size_t> bytes_ = 0;
};

/// One answer on its way through a grammar.
class Guide {
 public:
  struct Options {
    /// The grammar begins behind this text (the end of the model's reasoning); empty: at once.
    std::string begins_after;
    /// The token that opens the text before it. Not empty: an answer that does not begin with it
    /// follows the grammar from its first token, as does one of a vocabulary without such a token.
    std::string opened_by;
  };
  Guide(std::shared_ptr<Grammar> grammar, Options options);

  /// The tokens that may come next; null: any. Valid until a guide of the grammar is told
  /// stay_within_limits(). Ends of the text (EOS) are not among them.
  ///
  /// `tokens_left`: how many tokens the answer may still have. When they become few, only tokens
  /// are left over after which the text can be brought to its end with them, so that an answer is
  /// whole rather than cut off, if there ever was room for one.
  const TokenSet* mask(uint32_t tokens_left = UINT32_MAX);
  /// Whether the text may end here, and whether it must.
  bool may_end();
  bool must_end();
  /// False if the token was not allowed: then the guide stays where it was.
  bool accept(TokenId token);
  /// What follows tokens that are only guessed: which may come behind the first of them, behind the
  /// first two, and so on, as far as they are allowed. `mask` is null where `own` is the mask.
  struct Ahead {
    const TokenSet* mask = nullptr;
    TokenSet own;
    bool may_end = false;
    const TokenSet& tokens() const { return mask != nullptr ? *mask : own; }
  };
  /// The guide stays where it is. `tokens_left` as in mask(), before the first guess. Empty while
  /// the grammar has not begun. Valid as a mask is.
  std::vector<Ahead> look_ahead(std::span<const TokenId> guesses, uint32_t tokens_left);
  /// Between steps.
  void stay_within_limits() { grammar_->stay_within_limits(); }

 private:
  Position& position();
  bool accept_free(TokenId token);

  std::shared_ptr<Grammar> grammar_;
  std::string awaited_;            // empty: the grammar has begun
  std::optional<TokenId> opener_;  // it begins with the next token, unless that is this one
  std::string tail_;               // of the free text, shorter than `awaited_`
  Position position_;
  TokenSet last_tokens_;           // the latest mask, if it is no kept one
  uint64_t age_ = 0;               // of the grammar, when position_ was found
  std::vector<TokenId> accepted_;  // since the grammar began, to find the position again
};

/// The grammars of one engine, the latest used first.
/// Thread-safety: none.
class GrammarCache {
 public:
  GrammarCache(size_t grammars_max, size_t bytes_max)
      : grammars_max_(grammars_max), bytes_max_(bytes_max) {}

  /// Null if there is none.
  std::shared_ptr<Grammar> find(std::string_view structured_outputs);
  /// Drops those that nobody uses, the least recently used first, until the limits are kept.
  void add(std::string_view structured_outputs, std::shared_ptr<Grammar> grammar);
  void shrink();
  size_t size() const { return entries_.size(); }

 private:
  struct Entry {
    std::string text;
    std::shared_ptr<Grammar> grammar;
  };
  size_t grammars_max_;
  size_t bytes_max_;
  std::vector<Entry> entries_;  // latest last
};

}  // namespace stator::guided
