// SPDX-License-Identifier: Apache-2.0
#include "stator/engine/adapters/retokenizer.h"

#include <algorithm>
#include <iterator>

namespace stator::engine::adapters {

using tokenizer::AddSpecial;
using tokenizer::SkipSpecial;
using tokenizer::SpecialTokens;

Retokenizer::Retokenizer(const tokenizer::Tokenizer& tokenizer) : tokenizer_(tokenizer) {
  by_bytes_.reserve(tokenizer.vocab_size());
  for (TokenId id = 0; id < tokenizer.vocab_size(); ++id) {
    const std::string_view bytes = tokenizer.token_bytes(id);
    if (!bytes.empty() && !tokenizer.is_special(id)) {
      by_bytes_.try_emplace(bytes, id);
      longest_ = std::max(longest_, bytes.size());
    }
  }
  // What surrounds a text: of "a" with and without it, the difference in front.
  std::vector<TokenId> plain;
  std::vector<TokenId> surrounded;
  if (tokenizer.encode("a", {.add_special = AddSpecial::kNo}, plain) &&
      tokenizer.encode("a", {.add_special = AddSpecial::kYes}, surrounded)) {
    const auto text = std::ranges::search(surrounded, plain);
    added_in_front_.assign(surrounded.begin(), text.begin());
  }
}

bool Retokenizer::spells(std::span<const TokenId> tokens, std::string_view text) const {
  for (const TokenId token : tokens) {
    const std::string_view bytes = tokenizer_.token_bytes(token);
    if (tokenizer_.is_special(token) || !text.starts_with(bytes)) {
      return false;
    }
    text.remove_prefix(bytes.size());
  }
  return text.empty();
}

Status Retokenizer::append(std::string_view text, std::vector<TokenId>& out) const {
  std::vector<TokenId> tokens;
  // The model's own way first; some tokenizers put a space in front, or know no such words.
  if (tokenizer_.encode(text, {.special_tokens = SpecialTokens::kAsText}, tokens) &&
      spells(tokens, text)) {
    std::ranges::copy(tokens, std::back_inserter(out));
    return {};
  }
  while (!text.empty()) {
    size_t bytes = std::min(longest_, text.size());
    auto found = by_bytes_.find(text.substr(0, bytes));
    while (found == by_bytes_.end() && bytes > 1) {
      found = by_bytes_.find(text.substr(0, --bytes));
    }
    if (found == by_bytes_.end()) {
      return Error(Code::kUnsupported,
                   "the vocabulary of MODEL cannot spell the engine's answer: is it the model the "
                   "engine serves?");
    }
    out.push_back(found->second);
    text.remove_prefix(bytes);
  }
  return {};
}

std::string Retokenizer::prompt_text(std::span<const TokenId> tokens) const {
  const size_t front = added_in_front_.size();
  if (front > 0 && tokens.size() > front &&
      std::ranges::equal(tokens.first(front), added_in_front_)) {
    tokens = tokens.subspan(front);
  }
  return tokenizer_.decode(tokens, SkipSpecial::kNo);
}

}  // namespace stator::engine::adapters
