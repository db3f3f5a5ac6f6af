// SPDX-License-Identifier: Apache-2.0
#include "stator/guided/grammar.h"

#include <algorithm>
#include <utility>

#include "stator/core/assert.h"
#include "stator/structured/read_request.h"
#include "stator/structured/rule_set.h"

namespace stator::guided {

Result<std::shared_ptr<Grammar>> Grammar::compile(std::string_view structured_outputs,
                                                  std::shared_ptr<const Vocabulary> vocabulary) {
  constexpr std::string_view kField = "structured_outputs";
  const structured::SourceField field{.name = kField, .json = structured_outputs};
  auto output = structured::read_structured_output({&field, 1});
  if (!output.has_value()) {
    return std::move(output.error()).to_error();
  }
  if (!output->has_value()) {
    return Error(Code::kInvalidArgument, "structured_outputs asks for nothing");
  }
  auto rules = structured::compile_rules(**output);
  if (!rules.has_value()) {
    return std::move(rules.error()).to_error();
  }
  STATOR_TRY(Program program, Program::make(*rules, *vocabulary), (**output).field);
  return std::make_shared<Grammar>(std::move(vocabulary), std::move(program));
}

Grammar::Grammar(std::shared_ptr<const Vocabulary> vocabulary, Program program)
    : vocabulary_(std::move(vocabulary)),
      program_(std::move(program)),
      machine_(std::make_unique<Machine>(program_, *vocabulary_)),
      bytes_(program_.bytes()) {}

void Grammar::stay_within_limits() {
  if (machine_->mask_bytes() > kMaskBytesMax) {
    machine_->forget_masks();
  }
  if (machine_->bytes() > kGrammarBytesMax) {
    machine_ = std::make_unique<Machine>(program_, *vocabulary_);
    ++age_;
  }
  bytes_.store(program_.bytes() + machine_->bytes(), std::memory_order_relaxed);
}

Guide::Guide(std::shared_ptr<Grammar> grammar, Options options)
    : grammar_(std::move(grammar)), awaited_(std::move(options.begins_after)) {
  if (!options.opened_by.empty()) {
    opener_ = grammar_->vocabulary().find_token(options.opened_by);
    if (!opener_) {
      awaited_.clear();
    }
  }
  age_ = grammar_->age();
  position_ = grammar_->machine().begin();
}

Position& Guide::position() {
  if (age_ != grammar_->age()) {
    Machine& machine = grammar_->machine();
    position_ = machine.begin();
    for (const TokenId token : accepted_) {
      position_ = machine.advance(position_, token);
    }
    age_ = grammar_->age();
  }
  return position_;
}

const TokenSet* Guide::mask(uint32_t tokens_left) {
  if (!awaited_.empty() && !opener_) {
    return nullptr;
  }
  const Position at = position();
  Machine& machine = grammar_->machine();
  if (tokens_left > 0 && machine.is_tight(at, tokens_left)) {
    return &machine.mask_within(at, tokens_left, last_tokens_);
  }
  if (opener_) {
    last_tokens_ = machine.mask(at);
    last_tokens_.set(*opener_);
    return &last_tokens_;
  }
  return &machine.mask(at);
}

std::vector<Guide::Ahead> Guide::look_ahead(std::span<const TokenId> guesses,
                                            uint32_t tokens_left) {
  std::vector<Ahead> out;
  if (!awaited_.empty()) {
    return out;
  }
  Machine& machine = grammar_->machine();
  Position at = position();
  for (const TokenId token : guesses) {
    at = machine.advance(at, token);
    if (at.is_nowhere() || tokens_left < 2) {
      break;
    }
    --tokens_left;
    Ahead& next = out.emplace_back();
    next.may_end = machine.may_end(at);
    const TokenSet& mask = machine.is_tight(at, tokens_left)
                               ? machine.mask_within(at, tokens_left, next.own)
                               : machine.mask(at);
    next.mask = &mask == &next.own ? nullptr : &mask;
  }
  return out;
}

bool Guide::may_end() {
  const bool free = !awaited_.empty() && !opener_;
  return free || grammar_->machine().may_end(position());
}

bool Guide::must_end() {
  return awaited_.empty() && grammar_->machine().must_end(position());
}

/// Before the grammar begins.
bool Guide::accept_free(TokenId token) {
  const std::string_view bytes = grammar_->vocabulary().bytes(token);
  if (bytes.empty()) {
    if (grammar_->vocabulary().find_special(awaited_) == token) {
      awaited_.clear();
    }
    return true;
  }
  tail_ += bytes;
  if (tail_.contains(awaited_)) {
    awaited_.clear();
  }
  tail_.erase(0, tail_.size() - std::min(tail_.size(), awaited_.size()));
  return true;
}

bool Guide::accept(TokenId token) {
  if (opener_ == token) {
    opener_.reset();
    return true;
  }
  if (!awaited_.empty() && !opener_) {
    return accept_free(token);
  }
  const Position next = grammar_->machine().advance(position(), token);
  if (next.is_nowhere()) {
    return false;
  }
  opener_.reset();
  awaited_.clear();
  position_ = next;
  accepted_.push_back(token);
  return true;
}

std::shared_ptr<Grammar> GrammarCache::find(std::string_view structured_outputs) {
  const auto found = std::ranges::find(entries_, structured_outputs, &Entry::text);
  if (found == entries_.end()) {
    return nullptr;
  }
  std::rotate(found, found + 1, entries_.end());
  return entries_.back().grammar;
}

void GrammarCache::add(std::string_view structured_outputs, std::shared_ptr<Grammar> grammar) {
  entries_.push_back({std::string(structured_outputs), std::move(grammar)});
  shrink();
}

void GrammarCache::shrink() {
  size_t bytes = 0;
  for (const Entry& entry : entries_) {
    bytes += entry.text.size() + entry.grammar->bytes();
  }
  for (size_t i = 0;
       i < entries_.size() && (entries_.size() > grammars_max_ || bytes > bytes_max_);) {
    if (entries_[i].grammar.use_count() > 1) {
      ++i;
      continue;
    }
    bytes -= entries_[i].text.size() + entries_[i].grammar->bytes();
    entries_.erase(entries_.begin() + static_cast<ptrdiff_t>(i));
  }
}

}  // namespace stator::guided
