// SPDX-License-Identifier: Apache-2.0
#include "stator/tokenizer/unigram_model.h"

#include "stator/tokenizer/unicode.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace stator::tokenizer {
namespace {

constexpr double kUnkPenalty = 10.0;
constexpr uint32_t kUnreached = UINT32_MAX;
constexpr size_t kCharactersPerLook = 8192;  // about a millisecond

double to_single_precision(double value) {
  constexpr double kMax = std::numeric_limits<float>::max();
  return static_cast<double>(static_cast<float>(std::clamp(value, -kMax, kMax)));
}

}  // namespace

Result<UnigramModel> UnigramModel::create(const UnigramSpec& spec) {
  UnigramModel model;
  double least = std::numeric_limits<double>::infinity();
  for (const double score : spec.scores) {
    if (!std::isfinite(score)) {
      return Error(Code::kCorrupt, "model.vocab has a score that is not a finite number");
    }
    least = std::min(least, score);
  }
  for (size_t i = 0; i < spec.vocab.size(); ++i) {
    const TokenId id = spec.vocab[i].second;
    model.scores_.resize(std::max<size_t>(model.scores_.size(), id + size_t{1}));
    model.scores_[id] = spec.scores[i];
  }
  model.unk_score_ = spec.unk_score.value_or(least - kUnkPenalty);
  model.unk_ = spec.unk.value_or(kNone);
  model.byte_fallback_ = spec.byte_fallback;
  model.is_sentencepiece_ = spec.is_sentencepiece;
  for (const TokenId id : spec.absent) {
    model.scores_[id] = kAbsent;
  }
  model.trie_ = ByteTrie(spec.vocab);
  for (size_t byte = 0; byte < model.fallback_ids_.size(); ++byte) {
    model.fallback_ids_[byte] = model.find(fmt::format("<0x{:02X}>", byte)).value_or(kNone);
  }
  return model;
}

std::optional<TokenId> UnigramModel::find(std::string_view token_text) const {
  uint32_t node = 0;
  for (const char byte : token_text) {
    node = trie_.child(node, static_cast<unsigned char>(byte));
    if (node == ByteTrie::kNoNode) {
      return std::nullopt;
    }
  }
  const TokenId id = trie_.value(node);
  return id == ByteTrie::kNoValue ? std::nullopt : std::optional(id);
}

/// Fills scratch.best[i]: the best segmentation of the first i bytes, where one ends there.
Status UnigramModel::find_best(std::string_view piece, UnigramScratch& scratch) const {
  scratch.best.assign(piece.size() + 1, {0, kUnreached, kNone});
  const auto offer = [&](size_t begin, size_t end, double score, TokenId id) {
    UnigramScratch::Best& best = scratch.best[end];
    const double sum = score + scratch.best[begin].score;
    const double total = is_sentencepiece_ ? to_single_precision(sum) : sum;
    if (best.begin == kUnreached || total > best.score) {
      best = {total, static_cast<uint32_t>(begin), id};
    }
  };
  size_t characters = 0;
  for (size_t begin = 0; begin < piece.size();) {
    if (++characters % kCharactersPerLook == 0) {
      STATOR_CHECK(CancelToken::check(scratch.stop.cancel));
    }
    const size_t next = begin + decode_at(piece, begin).bytes;
    bool is_known = false;
    uint32_t node = 0;
    for (size_t end = begin; end < piece.size();) {
      node = trie_.child(node, static_cast<unsigned char>(piece[end++]));
      if (node == ByteTrie::kNoNode) {
        break;
      }
      if (const TokenId id = trie_.value(node);
          id != ByteTrie::kNoValue && scores_[id] != kAbsent) {
        offer(begin, end, scores_[id], id);
        is_known = is_known || end == next;
      }
    }
    if (!is_known) {
      if (unk_ == kNone) {
        return Error(Code::kInvalidArgument,
                     "the text has a character that is not in the vocabulary, which has no unknown "
                     "token either; set model.unk_id");
      }
      offer(begin, next, unk_score_, unk_);
    }
    begin = next;
  }
  return {};
}

Status UnigramModel::encode(std::string_view piece, UnigramScratch& scratch,
                            std::vector<TokenId>& out) const {
  STATOR_CHECK(find_best(piece, scratch));
  // The way back, written over the array from its end: there the best tokens are read already.
  auto& best = scratch.best;
  size_t write = best.size();
  for (size_t end = piece.size(); end > 0;) {
    const UnigramScratch::Best token = best[end];
    best[--write] = {0, static_cast<uint32_t>(end),
                     token.id};  // `begin` holds the end from here on
    end = token.begin;
  }
  size_t begin = 0;
  for (; write < best.size(); ++write) {
    const bool is_unknown = best[write].id == unk_;
    while (is_unknown && write + 1 < best.size() && best[write + 1].id == unk_) {
      ++write;
    }
    const size_t end = best[write].begin;
    if (is_unknown) {
      append_unknown(piece.substr(begin, end - begin), out);
    } else {
      out.push_back(best[write].id);
    }
    begin = end;
  }
  return {};
}

void UnigramModel::append_unknown(std::string_view stretch, std::vector<TokenId>& out) const {
  if (const auto id = is_sentencepiece_ ? std::nullopt : find(stretch)) {
    out.push_back(*id);
    return;
  }
  const auto id_of = [this](char byte) { return fallback_ids_[static_cast<unsigned char>(byte)]; };
  if (byte_fallback_ &&
      std::ranges::none_of(stretch, [&](char byte) { return id_of(byte) == kNone; })) {
    std::ranges::transform(stretch, std::back_inserter(out), id_of);
  } else {
    out.push_back(unk_);
  }
}

}  // namespace stator::tokenizer
