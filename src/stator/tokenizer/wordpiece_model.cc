// SPDX-License-Identifier: Apache-2.0
#include "stator/tokenizer/wordpiece_model.h"

#include "stator/tokenizer/unicode.h"

#include <fmt/format.h>

#include <algorithm>

namespace stator::tokenizer {
namespace {

bool is_boundary(std::string_view text, size_t at) {
  return at == text.size() || (static_cast<unsigned char>(text[at]) & 0xC0) != 0x80;
}

bool has_more_chars(std::string_view word, size_t chars_max) {
  if (word.size() <= chars_max) {
    return false;
  }
  const auto is_lead = [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; };
  return static_cast<size_t>(std::ranges::count_if(word, is_lead)) > chars_max;
}

}  // namespace

void WordPieceModel::Parts::add(std::string_view text, TokenId id) {
  ids.insert_or_assign(std::string(text), id);
  bytes_max = std::max(bytes_max, text.size());
}

WordPieceModel WordPieceModel::create(const WordPieceSpec& spec) {
  WordPieceModel model;
  model.whole_.ids.reserve(spec.vocab.size());
  for (const auto& [text, id] : spec.vocab) {
    model.whole_.add(text, id);
    if (text.starts_with(spec.continuing_subword_prefix)) {
      model.continuing_.add(text.substr(spec.continuing_subword_prefix.size()), id);
    }
  }
  model.max_word_chars_ = spec.max_word_chars;
  model.unk_token_ = spec.unk_token;
  model.unk_ = model.find(spec.unk_token);
  return model;
}

Status WordPieceModel::encode(std::string_view word, std::vector<TokenId>& out) const {
  if (has_more_chars(word, max_word_chars_)) {
    return append_unknown(out);
  }
  const size_t size_before = out.size();
  for (size_t at = 0; at < word.size();) {
    const auto match = longest_at(word, at);
    if (!match) {
      out.resize(size_before);
      return append_unknown(out);
    }
    out.push_back(match->id);
    at = match->end;
  }
  return {};
}

std::optional<WordPieceModel::Match> WordPieceModel::longest_at(std::string_view word,
                                                                size_t at) const {
  const Parts& parts = at == 0 ? whole_ : continuing_;
  for (size_t end = std::min(word.size(), at + parts.bytes_max); end > at; --end) {
    if (!is_boundary(word, end)) {
      continue;
    }
    const auto found = parts.ids.find(word.substr(at, end - at));
    if (found != parts.ids.end()) {
      return Match{found->second, end};
    }
  }
  return std::nullopt;
}

Status WordPieceModel::append_unknown(std::vector<TokenId>& out) const {
  if (!unk_) {
    return Error(Code::kInvalidArgument,
                 fmt::format("the text has a word that the vocabulary cannot spell, and the "
                             "unknown token '{}' is not in it either; add it to model.vocab",
                             unk_token_));
  }
  out.push_back(*unk_);
  return {};
}

std::optional<TokenId> WordPieceModel::find(std::string_view token_text) const {
  const auto found = whole_.ids.find(token_text);
  return found == whole_.ids.end() ? std::nullopt : std::optional(found->second);
}

}  // namespace stator::tokenizer
