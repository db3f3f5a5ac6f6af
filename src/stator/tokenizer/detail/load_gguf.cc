// SPDX-License-Identifier: Apache-2.0
#include "stator/core/hash.h"
#include "stator/gguf/metadata.h"
#include "stator/tokenizer/detail/assemble_pipeline.h"
#include "stator/tokenizer/detail/byte_vocabulary.h"
#include "stator/tokenizer/detail/file_formats.h"
#include "stator/tokenizer/detail/gguf_splits.h"
#include "stator/tokenizer/detail/rank_merges.h"
#include "stator/tokenizer/detail/sentencepiece_vocabulary.h"
#include "stator/tokenizer/detail/split_collector.h"
#include "stator/tokenizer/unicode.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

namespace stator::tokenizer {
namespace {

using Piece = SentencePieceVocabulary::Piece;
using Type = SentencePieceVocabulary::PieceType;

constexpr std::string_view kSpaceMark = "\xE2\x96\x81";

std::string key_of(std::string_view name) {
  return fmt::format("tokenizer.ggml.{}", name);
}

/// Tokens, scores and types; a file without scores or types has zeros and normal tokens.
Result<std::vector<Piece>> read_pieces(const gguf::Metadata& metadata) {
  STATOR_TRY(const auto texts, metadata.find_strings(key_of("tokens")));
  STATOR_TRY(const auto scores, metadata.find_floats(key_of("scores")));
  STATOR_TRY(const auto types, metadata.find_ints(key_of("token_type")));
  if (texts.empty() || texts.size() > kMaxTokenId) {
    return Error(Code::kCorrupt, fmt::format("GGUF: tokenizer.ggml.tokens has {} entries; 1 to {} "
                                             "are accepted",
                                             texts.size(), kMaxTokenId));
  }
  if ((!scores.empty() && scores.size() != texts.size()) ||
      (!types.empty() && types.size() != texts.size())) {
    return Error(Code::kCorrupt, fmt::format("GGUF: {} tokens, but {} scores and {} types",
                                             texts.size(), scores.size(), types.size()));
  }
  std::vector<Piece> pieces;
  pieces.reserve(texts.size());
  for (size_t id = 0; id < texts.size(); ++id) {
    if (!is_valid_utf8(texts[id])) {
      return Error(Code::kCorrupt, fmt::format("GGUF: token {} is not UTF-8", id));
    }
    const int32_t type = types.empty() ? 1 : types[id];
    pieces.push_back({texts[id], scores.empty() ? 0.0F : scores[id],
                      type >= 1 && type <= 6 ? static_cast<Type>(type) : Type::kNormal});
  }
  return pieces;
}

Result<bool> get_flag(const gguf::Metadata& metadata, std::string_view name, bool if_absent) {
  STATOR_TRY(const auto flag, metadata.find_bool(key_of(name)));
  return flag.value_or(if_absent);
}

/// Appends the id under `name`, of which there are `count`; nothing if the file has no such id.
Status append_id(const gguf::Metadata& metadata, std::string_view name, size_t count,
                 std::vector<TokenId>& out) {
  STATOR_TRY(const auto id, metadata.find_unsigned(key_of(name)));
  if (id && *id >= count) {
    return Error(Code::kCorrupt,
                 fmt::format("GGUF: {} is {}, but there are {} tokens", key_of(name), *id, count));
  }
  if (id) {
    out.push_back(static_cast<TokenId>(*id));
  }
  return {};
}

/// BOS and EOS as far as the file has them and wants them added.
Result<PostProcessor> read_bos_and_eos(const gguf::Metadata& metadata, size_t count, bool adds_bos,
                                       bool adds_eos) {
  PostProcessor post;
  STATOR_TRY(const bool bos, get_flag(metadata, "add_bos_token", adds_bos));
  STATOR_TRY(const bool eos, get_flag(metadata, "add_eos_token", adds_eos));
  if (bos) {
    STATOR_CHECK(append_id(metadata, "bos_token_id", count, post.before));
  }
  if (eos) {
    STATOR_CHECK(append_id(metadata, "eos_token_id", count, post.after));
  }
  return post;
}

void add_special_pieces(const std::vector<Piece>& pieces, PipelineParts& parts) {
  for (size_t id = 0; id < pieces.size(); ++id) {
    if (auto token = as_added_token(pieces[id], static_cast<TokenId>(id))) {
      parts.added_tokens.push_back(*std::move(token));
    }
  }
}

Status read_merges(const gguf::Metadata& metadata, BpeSpec& spec) {
  STATOR_TRY(const auto merges, metadata.find_strings(key_of("merges")));
  for (const std::string_view merge : merges) {
    // A token may start with a space.
    const size_t space = merge.find(' ', 1);
    if (space == merge.npos || !is_valid_utf8(merge)) {
      return Error(Code::kCorrupt, fmt::format("GGUF: tokenizer.ggml.merges[{}] is not \"left "
                                               "right\"",
                                               spec.merges.size()));
    }
    spec.merges.emplace_back(merge.substr(0, space), merge.substr(space + 1));
  }
  if (merges.empty()) {
    // Vocabularies made from tiktoken files are in order of importance.
    std::vector<uint32_t> ranks;
    for (const auto& [text, id] : spec.vocab) {
      ranks.push_back(id);
    }
    add_merges_by_rank(ranks, spec);
  }
  return {};
}

PipelineResult load_byte_level(const gguf::Metadata& metadata, const std::vector<Piece>& pieces,
                               uint64_t fingerprint, Tables tables) {
  STATOR_TRY(const auto name, metadata.find_string(key_of("pre")));
  const GgufSplit* split = find_gguf_split(name.value_or("default"));
  if (split == nullptr) {
    return Error(Code::kUnsupported, fmt::format("GGUF: tokenizer.ggml.pre is '{}', which this "
                                                 "build cannot split like; use the model's "
                                                 "tokenizer.json",
                                                 *name));
  }
  PipelineParts parts;
  BpeSpec spec;
  spec.ignore_merges = split->ignore_merges;
  for (size_t id = 0; id < pieces.size(); ++id) {
    spec.vocab.emplace_back(pieces[id].text, static_cast<TokenId>(id));
  }
  if (tables == Tables::kAll) {
    STATOR_CHECK(read_merges(metadata, spec));
  }
  SplitCollector splits(parts.pre_tokenizer);
  for (const std::string_view expression : split->expressions) {
    splits.isolate(expression);
  }
  STATOR_CHECK(splits.add(PreTokenizer::MapBytes{}));
  parts.decoder.steps.emplace_back(Decoder::ByteLevel{});
  STATOR_TRY(parts.post_processor,
             read_bos_and_eos(metadata, pieces.size(), split->adds_bos, false));
  add_special_pieces(pieces, parts);
  if (tables == Tables::kAll) {
    parts.model = std::move(spec);
  } else {
    parts.model = WordLevelSpec{std::move(spec.vocab), {}};
  }
  parts.fingerprint = fingerprint;
  return assemble_pipeline(std::move(parts));
}

/// Gemma 4: merges of characters, not of bytes, within lines; spaces are marks, and what the
/// vocabulary lacks is spelled in bytes. Of texts that are there twice the later id counts.
PipelineResult load_gemma4(const gguf::Metadata& metadata, const std::vector<Piece>& pieces,
                           uint64_t fingerprint) {
  PipelineParts parts;
  BpeSpec spec;
  spec.byte_fallback = true;
  spec.fuse_unk = true;
  spec.ignore_merges = true;  // line breaks in a row are one token
  std::map<std::string_view, TokenId> ids;
  for (size_t id = 0; id < pieces.size(); ++id) {
    ids.insert_or_assign(pieces[id].text, static_cast<TokenId>(id));
    if (pieces[id].type == Type::kUnknown) {
      spec.unk_token = pieces[id].text;
    }
  }
  spec.vocab.assign(ids.begin(), ids.end());
  STATOR_CHECK(read_merges(metadata, spec));
  parts.normalizer.steps.emplace_back(Normalizer::ReplaceText{" ", std::string(kSpaceMark)});
  STATOR_TRY(Regex lines, Regex::compile(R"([^\n]+|[\n]+)"));
  parts.pre_tokenizer.steps.emplace_back(PreTokenizer::Split{std::move(lines)});
  parts.decoder.steps = {Decoder::Replace{std::string(kSpaceMark), " "}, Decoder::ByteFallback{}};
  STATOR_TRY(parts.post_processor, read_bos_and_eos(metadata, pieces.size(), true, false));
  add_special_pieces(pieces, parts);
  parts.model = std::move(spec);
  parts.fingerprint = fingerprint;
  return assemble_pipeline(std::move(parts));
}

PipelineResult load_sentencepiece_kind(const gguf::Metadata& metadata, std::vector<Piece> pieces,
                                       bool is_bpe, uint64_t fingerprint) {
  SentencePieceVocabulary vocabulary;
  vocabulary.is_bpe = is_bpe;
  STATOR_TRY(vocabulary.charsmap, metadata.find_bytes(key_of("precompiled_charsmap")));
  STATOR_TRY(vocabulary.adds_prefix, get_flag(metadata, "add_space_prefix", true));
  STATOR_TRY(vocabulary.collapses_spaces, get_flag(metadata, "remove_extra_whitespaces", false));
  STATOR_TRY(PostProcessor post, read_bos_and_eos(metadata, pieces.size(), is_bpe, !is_bpe));
  vocabulary.pieces = std::move(pieces);
  vocabulary.before = std::move(post.before);
  vocabulary.after = std::move(post.after);
  vocabulary.fingerprint = fingerprint;
  return make_pipeline(vocabulary);
}

/// BERT's vocabulary turned inside out: in the file the first parts of words carry a mark and the
/// others none. `arena` keeps the spellings with "##".
WordPieceSpec respell_word_pieces(const std::vector<Piece>& pieces,
                                  std::vector<std::string>& arena) {
  WordPieceSpec spec;
  spec.max_word_chars = SIZE_MAX;
  arena.reserve(pieces.size());  // its strings are viewed
  for (size_t id = 0; id < pieces.size(); ++id) {
    const Piece& piece = pieces[id];
    std::string_view text = piece.text;
    if (piece.type == Type::kUnknown || text == "[UNK]") {
      spec.unk_token = text;
    }
    if (text.starts_with(kSpaceMark)) {
      text.remove_prefix(kSpaceMark.size());
    } else if (piece.type != Type::kControl && piece.type != Type::kUnknown) {
      text = arena.emplace_back(fmt::format("##{}", text));
    }
    spec.vocab.emplace_back(text, static_cast<TokenId>(id));
  }
  return spec;
}

void add_bert_steps(bool lowercase, bool strip_accents, PipelineParts& parts) {
  auto& steps = parts.normalizer.steps;
  steps.emplace_back(Normalizer::CleanText{});
  steps.emplace_back(Normalizer::IsolateIdeographs{});
  if (strip_accents) {
    steps.emplace_back(Normalizer::ToForm{Normalizer::UnicodeForm::kNfd});
    steps.emplace_back(Normalizer::RemoveClass{kNonspacingMark});
  }
  if (lowercase) {
    steps.emplace_back(Normalizer::Lowercase{});
  }
  using Split = PreTokenizer::Split;
  parts.pre_tokenizer.steps.emplace_back(
      Split{PreTokenizer::SplitClass{kSpace}, PreTokenizer::Behavior::kRemoved});
  parts.pre_tokenizer.steps.emplace_back(Split{PreTokenizer::SplitClass{kPunctuationSplit}});
  parts.decoder.steps.emplace_back(Decoder::WordPiece{"##", /*cleanup=*/true});
}

PipelineResult load_word_piece(const gguf::Metadata& metadata, const std::vector<Piece>& pieces,
                               uint64_t fingerprint) {
  PipelineParts parts;
  std::vector<std::string> arena;
  parts.model = respell_word_pieces(pieces, arena);
  STATOR_TRY(const bool lowercase, get_flag(metadata, "normalizer.lowercase", true));
  STATOR_TRY(const bool strip, get_flag(metadata, "normalizer.strip_accents", lowercase));
  add_bert_steps(lowercase, strip, parts);
  PostProcessor& post = parts.post_processor;
  STATOR_CHECK(append_id(metadata, "bos_token_id", pieces.size(), post.before));
  if (post.before.empty()) {
    STATOR_CHECK(append_id(metadata, "cls_token_id", pieces.size(), post.before));
  }
  STATOR_CHECK(append_id(metadata, "seperator_token_id", pieces.size(), post.after));
  add_special_pieces(pieces, parts);
  parts.fingerprint = fingerprint;
  return assemble_pipeline(std::move(parts));
}

/// Of what the tokenizer is made of, not of the tensors behind it.
uint64_t compute_fingerprint(std::string_view kind, const std::vector<Piece>& pieces,
                             std::string_view split) {
  uint64_t hash = xxh3_64(fmt::format("{} {}", kind, split));
  for (const Piece& piece : pieces) {
    hash = xxh3_64(piece.text, hash + static_cast<uint64_t>(piece.type));
  }
  return hash;
}

}  // namespace

PipelineResult load_gguf(std::string_view file, Tables tables) {
  STATOR_TRY(const gguf::Metadata metadata, gguf::Metadata::parse(file));
  STATOR_TRY(const auto kind, metadata.find_string(key_of("model")));
  if (!kind) {
    return Error(Code::kCorrupt, "the GGUF file has no tokenizer.ggml.model");
  }
  STATOR_TRY(std::vector<Piece> pieces, read_pieces(metadata));
  STATOR_TRY(const auto split, metadata.find_string(key_of("pre")));
  const uint64_t fingerprint = compute_fingerprint(*kind, pieces, split.value_or(""));
  if (*kind == "gpt2") {
    return load_byte_level(metadata, pieces, fingerprint, tables);
  }
  if (*kind == "llama" || *kind == "t5") {
    return load_sentencepiece_kind(metadata, std::move(pieces), *kind == "llama", fingerprint);
  }
  if (*kind == "gemma4") {
    return load_gemma4(metadata, pieces, fingerprint);
  }
  if (*kind == "bert") {
    return load_word_piece(metadata, pieces, fingerprint);
  }
  return Error(Code::kUnsupported,
               fmt::format("GGUF: tokenizer.ggml.model is '{}', which this build cannot run; use "
                           "the model's tokenizer.json",
                           *kind));
}

}  // namespace stator::tokenizer
