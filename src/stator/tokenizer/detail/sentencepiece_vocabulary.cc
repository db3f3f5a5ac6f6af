// SPDX-License-Identifier: Apache-2.0
#include "stator/tokenizer/detail/sentencepiece_vocabulary.h"

#include "stator/tokenizer/detail/assemble_pipeline.h"
#include "stator/tokenizer/detail/rank_merges.h"
#include "stator/tokenizer/unicode.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <utility>

namespace stator::tokenizer {
namespace {

using Piece = SentencePieceVocabulary::Piece;
using Type = SentencePieceVocabulary::PieceType;

constexpr float kUnkPenalty = 10;
constexpr float kUserDefinedPenalty = 0.1F;
constexpr std::string_view kSpaceMark = "\xE2\x96\x81";

Status check(const SentencePieceVocabulary& vocabulary) {
  const auto& pieces = vocabulary.pieces;
  if (pieces.empty() || pieces.size() > kMaxTokenId) {
    return Error(Code::kCorrupt, fmt::format("the vocabulary has {} pieces; 1 to {} are accepted",
                                             pieces.size(), kMaxTokenId));
  }
  for (size_t id = 0; id < pieces.size(); ++id) {
    if (!is_valid_utf8(pieces[id].text) || !std::isfinite(pieces[id].score)) {
      return Error(Code::kCorrupt,
                   fmt::format("piece {} is not UTF-8, or its score is not a number", id));
    }
  }
  const auto is_beyond = [&](TokenId id) { return id >= pieces.size(); };
  if (std::ranges::any_of(vocabulary.before, is_beyond) ||
      std::ranges::any_of(vocabulary.after, is_beyond)) {
    return Error(Code::kCorrupt,
                 fmt::format("BOS or EOS has an id beyond the {} pieces", pieces.size()));
  }
  return {};
}

bool is_mergeable(const Piece& piece) {
  return piece.type == Type::kNormal || piece.type == Type::kUserDefined ||
         piece.type == Type::kUnused;
}

/// Rank of each piece: how many different scores are better.
std::vector<uint32_t> rank_by_score(const std::vector<Piece>& pieces) {
  std::vector<float> scores;
  for (const Piece& piece : pieces) {
    scores.push_back(piece.score);
  }
  std::ranges::sort(scores, std::greater<>());
  const auto rest = std::ranges::unique(scores);
  scores.erase(rest.begin(), rest.end());
  std::vector<uint32_t> ranks;
  for (const Piece& piece : pieces) {
    const auto at = std::ranges::lower_bound(scores, piece.score, std::greater<>());
    ranks.push_back(is_mergeable(piece) ? static_cast<uint32_t>(at - scores.begin()) : kNoMerge);
  }
  return ranks;
}

bool has_bytes(const std::vector<Piece>& pieces) {
  return std::ranges::find(pieces, Type::kByte, &Piece::type) != pieces.end();
}

BpeSpec make_bpe(const std::vector<Piece>& pieces) {
  BpeSpec spec;
  spec.byte_fallback = has_bytes(pieces);
  spec.fuse_unk = true;
  for (size_t id = 0; id < pieces.size(); ++id) {
    spec.vocab.emplace_back(pieces[id].text, static_cast<TokenId>(id));
    if (pieces[id].type == Type::kUnknown) {
      spec.unk_token = pieces[id].text;
    }
  }
  add_merges_by_rank(rank_by_score(pieces), spec);
  return spec;
}

/// Of the file that SentencePiece wrote, what its own library makes; of a GGUF file, what llama.cpp
/// does: unused pieces are text there, and user-defined ones are added tokens.
UnigramSpec make_unigram(const SentencePieceVocabulary& vocabulary) {
  UnigramSpec spec;
  spec.byte_fallback = has_bytes(vocabulary.pieces);
  spec.is_sentencepiece = vocabulary.is_model_file;
  float least = std::numeric_limits<float>::max();
  float most = std::numeric_limits<float>::min();
  for (const Piece& piece : vocabulary.pieces) {
    if (piece.type == Type::kNormal) {
      least = std::min(least, piece.score);
      most = std::max(most, piece.score);
    }
  }
  spec.unk_score = static_cast<double>(least - kUnkPenalty);
  for (size_t id = 0; id < vocabulary.pieces.size(); ++id) {
    const Piece& piece = vocabulary.pieces[id];
    if (piece.type == Type::kUnknown) {
      spec.unk = static_cast<TokenId>(id);
    }
    if (!is_mergeable(piece) || (vocabulary.is_model_file && piece.type == Type::kUnused)) {
      spec.absent.push_back(static_cast<TokenId>(id));
    }
    spec.vocab.emplace_back(piece.text, static_cast<TokenId>(id));
    if (piece.type != Type::kUserDefined) {
      spec.scores.push_back(static_cast<double>(piece.score));
    } else if (vocabulary.is_model_file) {
      const float bonus = static_cast<float>(piece.text.size()) * most;
      spec.scores.push_back(static_cast<double>(bonus - kUserDefinedPenalty));
    } else {
      spec.scores.push_back(0);
    }
  }
  return spec;
}

Status add_normalizer(const SentencePieceVocabulary& vocabulary, Normalizer& normalizer) {
  Normalizer::SentencePiece step{std::nullopt, vocabulary.adds_prefix, vocabulary.collapses_spaces};
  if (vocabulary.is_model_file) {
    std::vector<std::pair<std::string_view, uint32_t>> kept;
    for (const Piece& piece : vocabulary.pieces) {
      if (piece.type == Type::kUserDefined) {
        kept.emplace_back(piece.text, 0);
      }
    }
    step.kept = ByteTrie(std::move(kept));
  }
  if (!vocabulary.charsmap.empty()) {
    STATOR_TRY(step.charsmap, Charsmap::parse(vocabulary.charsmap));
  }
  normalizer.steps.emplace_back(std::move(step));
  return {};
}

}  // namespace

std::optional<AddedToken> as_added_token(const Piece& piece, TokenId id) {
  const bool special = piece.type == Type::kControl || piece.type == Type::kUnknown;
  if (!special && piece.type != Type::kUserDefined) {
    return std::nullopt;
  }
  return AddedToken{.id = id, .content = std::string(piece.text), .special = special};
}

PipelineResult make_pipeline(const SentencePieceVocabulary& vocabulary) {
  STATOR_CHECK(check(vocabulary));
  PipelineParts parts;
  if (vocabulary.is_bpe) {
    parts.model = make_bpe(vocabulary.pieces);
  } else {
    parts.model = make_unigram(vocabulary);
  }
  STATOR_CHECK(add_normalizer(vocabulary, parts.normalizer));
  parts.decoder.steps = {Decoder::Replace{std::string(kSpaceMark), " "}, Decoder::ByteFallback{}};
  parts.decoder.rules.strip_count = vocabulary.adds_prefix || vocabulary.collapses_spaces ? 1 : 0;
  parts.post_processor = {vocabulary.before, vocabulary.after};
  for (size_t id = 0; id < vocabulary.pieces.size(); ++id) {
    const Piece& piece = vocabulary.pieces[id];
    if (vocabulary.is_model_file && !vocabulary.is_bpe && piece.type == Type::kUserDefined) {
      continue;  // the model finds it, by its score
    }
    if (auto token = as_added_token(piece, static_cast<TokenId>(id))) {
      token->normalized = vocabulary.is_model_file && piece.type == Type::kUserDefined;
      parts.added_tokens.push_back(*std::move(token));
    }
  }
  parts.added_texts_are_normalized = true;
  parts.fingerprint = vocabulary.fingerprint;
  return assemble_pipeline(std::move(parts));
}

}  // namespace stator::tokenizer
