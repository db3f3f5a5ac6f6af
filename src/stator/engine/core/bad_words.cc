// SPDX-License-Identifier: Apache-2.0
#include "stator/engine/core/bad_words.h"

#include <algorithm>

namespace stator::engine {

Status BadWords::find_banned(const std::vector<std::string>& words, std::span<const TokenId> output,
                             std::vector<TokenId>& banned) {
  banned.clear();
  if (words.empty()) {
    return {};
  }
  STATOR_TRY(const auto sequences, sequences_of(words));
  for (const std::vector<TokenId>& sequence : *sequences) {
    const std::span<const TokenId> before = std::span(sequence).first(sequence.size() - 1);
    if (before.size() <= output.size() && std::ranges::equal(before, output.last(before.size()))) {
      banned.push_back(sequence.back());
    }
  }
  return {};
}

Result<std::shared_ptr<const BadWords::Sequences>> BadWords::sequences_of(
    const std::vector<std::string>& words) {
  const auto known = std::ranges::find(known_, words, &Known::words);
  if (known != known_.end()) {
    return known->sequences;
  }
  if (!encoder_) {
    return Error(Code::kUnsupported, "bad_words need the model's tokenizer, which is not here");
  }
  Sequences sequences;
  for (const std::string& word : words) {
    std::string_view text = word;
    text.remove_prefix(std::min(text.find_first_not_of(" \t\n\r\v\f"), text.size()));
    STATOR_TRY(std::vector<TokenId> plain, encoder_(text));
    STATOR_TRY(std::vector<TokenId> behind_space, encoder_(std::string(1, ' ').append(text)));
    const bool other = !plain.empty() && behind_space.size() == plain.size() &&
                       behind_space.front() != plain.front();
    if (!plain.empty()) {
      sequences.push_back(std::move(plain));
    }
    if (other) {
      sequences.push_back(std::move(behind_space));
    }
  }
  if (known_.size() >= kKnownMax) {
    known_.erase(known_.begin());
  }
  known_.push_back(
      {.words = words, .sequences = std::make_shared<const Sequences>(std::move(sequences))});
  return known_.back().sequences;
}

}  // namespace stator::engine
