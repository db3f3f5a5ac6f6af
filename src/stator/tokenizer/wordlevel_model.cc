// SPDX-License-Identifier: Apache-2.0
#include "stator/tokenizer/wordlevel_model.h"

#include <fmt/format.h>

namespace stator::tokenizer {

WordLevelModel WordLevelModel::create(const WordLevelSpec& spec) {
  WordLevelModel model;
  model.ids_.reserve(spec.vocab.size());
  for (const auto& [text, id] : spec.vocab) {
    model.ids_.insert_or_assign(std::string(text), id);
  }
  model.unk_token_ = spec.unk_token;
  model.unk_ = model.find(spec.unk_token);
  return model;
}

Status WordLevelModel::encode(std::string_view piece, std::vector<TokenId>& out) const {
  const auto found = ids_.find(piece);
  if (found == ids_.end() && !unk_) {
    return Error(Code::kInvalidArgument,
                 fmt::format("the text has a word that is not in the vocabulary, which has no "
                             "unknown token '{}' either; add it to model.vocab",
                             unk_token_));
  }
  out.push_back(found == ids_.end() ? *unk_ : found->second);
  return {};
}

std::optional<TokenId> WordLevelModel::find(std::string_view token_text) const {
  const auto found = ids_.find(token_text);
  return found == ids_.end() ? std::nullopt : std::optional(found->second);
}

}  // namespace stator::tokenizer
