// SPDX-License-Identifier: Apache-2.0
#include "stator/tokenizer/detail/byte_vocabulary.h"

#include "stator/text/base64.h"
#include "stator/tokenizer/byte_alphabet.h"
#include "stator/tokenizer/detail/rank_merges.h"
#include "stator/tokenizer/detail/split_collector.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace stator::tokenizer {

Status ByteVocabulary::add(std::string_view base64, uint64_t id) {
  const auto bytes = text::decode_base64(base64);
  if (!bytes || base64.empty()) {  // "=" is a token without bytes: Whisper's file has one
    return Error(Code::kCorrupt, fmt::format("'{}' is not the base64 of a token", base64));
  }
  if (id > kMaxTokenId) {
    return Error(Code::kCorrupt, fmt::format("the id {} is beyond {}", id, kMaxTokenId));
  }
  Entry entry{{}, static_cast<TokenId>(id)};
  ByteAlphabet::get().append_mapped(*bytes, entry.text);
  entries_.push_back(std::move(entry));
  return {};
}

Status ByteVocabulary::fill(PipelineParts& parts, Tables tables) {
  std::ranges::sort(entries_, {}, &Entry::id);
  const auto twice = std::ranges::adjacent_find(entries_, {}, &Entry::id);
  if (twice != entries_.end()) {
    return Error(Code::kCorrupt, fmt::format("two tokens have the id {}", twice->id));
  }
  BpeSpec spec;
  spec.ignore_merges = true;
  std::vector<uint32_t> ranks;
  for (const Entry& entry : entries_) {
    spec.vocab.emplace_back(entry.text, entry.id);
    ranks.push_back(entry.id);
  }
  if (!BpeModel::supports_bytes(spec)) {
    return Error(Code::kCorrupt, "the vocabulary lacks a token for some single byte");
  }
  if (tables == Tables::kAll) {
    add_merges_by_rank(ranks, spec);
    parts.model = std::move(spec);
  } else {
    parts.model = WordLevelSpec{std::move(spec.vocab), {}};
  }
  parts.decoder.steps.emplace_back(Decoder::ByteLevel{});
  return {};
}

Status add_byte_level_split(std::string_view expression, PreTokenizer& pre_tokenizer) {
  SplitCollector splits(pre_tokenizer);
  splits.isolate(expression);
  return splits.add(PreTokenizer::MapBytes{});
}

}  // namespace stator::tokenizer
