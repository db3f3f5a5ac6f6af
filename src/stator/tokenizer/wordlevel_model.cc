// SPDX-License-Identifier: Apache-2.0
#include "stator/tokenizer/wordlevel_model.h"

#include <fmt/format.h>

namespace stator::tokenizer {

WordLevelModel WordLevelModel::create(const WordLevelSpec& spec) {
  WordLevelModel model;
  size_t bytes = 0;
  for (const auto& [text, id] : spec.vocab) {
    bytes += text.size();
  }
  model.ids_ = TextIds(spec.vocab.size(), bytes);
  for (const auto& [text, id] : spec.vocab) {
    model.ids_.insert_or_assign(text, id);
  }
  model.unk_token_ = spec.unk_token;
  model.unk_ = model.find(spec.unk_token);
  return model;
}

Status WordLevelModel::encode(std::string_view piece, std::vector<TokenId>& out) const {
  const TokenId found = ids_.find(piece);
  if (found == TextIds::kNone && !unk_) {
    return Error(Code::kInvalidArgument,
                 fmt::format("the text has a word that is not in the vocabulary, which has no "
                             "unknown token '{}' either; add it to model.vocab",
                             unk_token_));
  }
  out.push_back(found == TextIds::kNone ? *unk_ : found);
  return {};
}

std::optional<TokenId> WordLevelModel::find(std::string_view token_text) const {
  const TokenId found = ids_.find(token_text);
  return found == TextIds::kNone ? std::nullopt : std::optional(found);
}

}  // namespace stator::tokenizer
