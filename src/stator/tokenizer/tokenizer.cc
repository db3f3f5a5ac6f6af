// SPDX-License-Identifier: Apache-2.0
#include "stator/tokenizer/tokenizer.h"

#include "stator/core/assert.h"
#include "stator/tokenizer/incremental_detokenizer.h"
#include "stator/tokenizer/long_words.h"
#include "stator/tokenizer/piece_encoder.h"
#include "stator/tokenizer/pipeline.h"
#include "stator/tokenizer/split_text.h"
#include "stator/tokenizer/unicode.h"

#include <fmt/format.h>

#include <utility>

namespace stator::tokenizer {
namespace {

// Scratch vectors above this are given back after a call, so one huge prompt does not pin memory in
// every thread.
constexpr size_t kScratchBytesKept = 1 << 20;

/// Working memory of encoding, one per thread.
struct EncodeScratch {
  std::string repaired;  // the text with U+FFFD for what is not UTF-8
  std::string normalized;
  std::vector<Section> raw_sections;
  std::vector<Section> normalized_sections;
  Pieces pieces;
  BpeScratch bpe;
  UnigramScratch unigram;

  void trim() {
    trim_one(repaired);
    trim_one(normalized);
    trim_one(raw_sections);
    trim_one(normalized_sections);
    trim_one(pieces.ranges);
    trim_one(pieces.next_ranges);
    trim_one(pieces.buffer);
    trim_one(bpe.ids);
    trim_one(bpe.symbols);
    trim_one(bpe.queue);
    trim_one(bpe.byte_bpe.tokens);
    trim_one(bpe.byte_bpe.dead);
    trim_one(unigram.best);
  }

 private:
  template <typename Container>
  static void trim_one(Container& container) {
    if (container.capacity() * sizeof(container[0]) > kScratchBytesKept) {
      Container().swap(container);
    }
  }
};

// Pieces between two looks at EncodeStop.
constexpr size_t kPiecesPerLook = 256;

bool is_time_to_stop(const EncodeScratch& scratch, size_t piece, size_t ids) {
  return piece % kPiecesPerLook == 0 && scratch.bpe.stop.is_due(ids);
}

// encode_pieces: all pieces of a section by one kind of model.

Status encode_pieces(const BpeModel& model, uint32_t instance, EncodeScratch& scratch,
                     std::vector<TokenId>& out) {
  const Pieces& pieces = scratch.pieces;
  PieceEncoder encoder(model, instance, scratch.bpe);
  for (size_t i = 0; i < pieces.ranges.size() && !is_time_to_stop(scratch, i, out.size()); ++i) {
    const std::string_view piece = pieces[i];
    for (size_t at = 0; at < piece.size();) {
      const size_t end = model.find_part_end(piece, at);
      encoder.encode_piece(piece.substr(at, end - at), out);
      at = end;
    }
  }
  return {};
}

Status encode_pieces(const UnigramModel& model, uint32_t, EncodeScratch& scratch,
                     std::vector<TokenId>& out) {
  scratch.unigram.stop = scratch.bpe.stop;
  for (size_t i = 0; i < scratch.pieces.ranges.size() && !is_time_to_stop(scratch, i, out.size());
       ++i) {
    STATOR_CHECK(model.encode(scratch.pieces[i], scratch.unigram, out));
  }
  return {};
}

/// WordPiece and WordLevel.
template <typename WordModel>
Status encode_pieces(const WordModel& model, uint32_t, EncodeScratch& scratch,
                     std::vector<TokenId>& out) {
  for (size_t i = 0; i < scratch.pieces.ranges.size() && !is_time_to_stop(scratch, i, out.size());
       ++i) {
    STATOR_CHECK(model.encode(scratch.pieces[i], out));
  }
  return {};
}

/// Byte-pair models behind one known expression, as most published ones are, need no list of all
/// pieces: the text is cut and encoded a few hundred pieces at a time.
bool encode_at_once(const Pipeline& pipeline, std::string_view text, EncodeScratch& scratch,
                    std::vector<TokenId>& out) {
  const auto& steps = pipeline.pre_tokenizer.steps;
  const auto* model = std::get_if<BpeModel>(&pipeline.model);
  const auto* scan = steps.size() == 1 ? std::get_if<PreTokenizer::Scan>(&steps.front()) : nullptr;
  if (model == nullptr || scan == nullptr) {
    return false;
  }
  PieceEncoder(*model, pipeline.instance, scratch.bpe).encode_text(scan->family, text, out);
  return true;
}

Status encode_text(const Pipeline& pipeline, const Section& raw, SpecialTokens special,
                   EncodeScratch& scratch, std::vector<TokenId>& out) {
  STATOR_TRY(const Normalized normalized,
             normalize(pipeline.normalizer, raw.text, scratch.normalized));
  pipeline.normalized_added_tokens.split(normalized.text, special, scratch.normalized_sections);
  for (const Section& section : scratch.normalized_sections) {
    if (section.is_token) {
      out.push_back(section.id);
      continue;
    }
    if (encode_at_once(pipeline, section.text, scratch, out)) {
      continue;
    }
    const bool is_start = raw.is_start && normalized.keeps_start && section.is_start;
    STATOR_CHECK(pre_tokenize(pipeline.pre_tokenizer, section.text,
                              is_start ? TextStart::kYes : TextStart::kNo, scratch.pieces));
    STATOR_CHECK(std::visit(
        [&](const auto& model) { return encode_pieces(model, pipeline.instance, scratch, out); },
        pipeline.model));
  }
  return {};
}

Status encode_all(const Pipeline& pipeline, std::string_view text, EncodeOptions options,
                  std::vector<TokenId>& out) {
  thread_local EncodeScratch scratch;
  scratch.bpe.stop = options.stop;
  if (!is_valid_utf8(text)) {
    scratch.repaired.clear();
    append_lossy(scratch.repaired, text);
    text = scratch.repaired;
  }
  const bool add_special = options.add_special == AddSpecial::kYes;
  const PostProcessor& post = pipeline.post_processor;
  if (add_special) {
    out.insert(out.end(), post.before.begin(), post.before.end());
  }
  pipeline.raw_added_tokens.split(text, options.special_tokens, scratch.raw_sections);
  Status status;
  for (size_t i = 0; i < scratch.raw_sections.size(); ++i) {
    const Section& section = scratch.raw_sections[i];
    if (is_time_to_stop(scratch, i, out.size())) {
      break;
    }
    if (section.is_token) {
      out.push_back(section.id);
      continue;
    }
    status = encode_text(pipeline, section, options.special_tokens, scratch, out);
    if (!status.has_value()) {
      break;
    }
  }
  if (add_special) {
    out.insert(out.end(), post.after.begin(), post.after.end());
  }
  scratch.trim();
  scratch.bpe.stop = {};
  return status ? CancelToken::check(options.stop.cancel) : std::move(status);
}

}  // namespace

Tokenizer::Tokenizer(std::unique_ptr<const Pipeline> pipeline)
    : pipeline_(std::move(pipeline)),
      safe_cuts_(std::make_unique<SafeCuts>(SafeCuts::find_all(*pipeline_))) {
  if (!probe_safe_cuts(*this, *safe_cuts_)) {
    safe_cuts_ = std::make_unique<SafeCuts>();
  }
}

Tokenizer::~Tokenizer() = default;

Result<std::unique_ptr<Tokenizer>> Tokenizer::from_json(std::string_view tokenizer_json) {
  return from_json(tokenizer_json, {});
}

Result<std::unique_ptr<Tokenizer>> Tokenizer::from_json(std::string_view tokenizer_json,
                                                        const TokenDeclarations& declarations) {
  STATOR_TRY(const auto more_tokens,
             parse_token_declarations(declarations.tokenizer_config_json,
                                      declarations.special_tokens_map_json));
  STATOR_TRY(auto pipeline, load_pipeline(tokenizer_json, more_tokens));
  return std::unique_ptr<Tokenizer>(
      new Tokenizer(std::move(pipeline)));  // NOLINT: private constructor
}

Status Tokenizer::encode(std::string_view text, EncodeOptions options,
                         std::vector<TokenId>& out) const {
  if (text.size() > kMaxTextBytes) {
    return Error(Code::kTooLarge, fmt::format("text of {} bytes; at most {} can be tokenized",
                                              text.size(), kMaxTextBytes));
  }
  const size_t size_before = out.size();
  Status status = encode_all(*pipeline_, text, options, out);
  if (!status.has_value()) {
    out.resize(size_before);
  }
  return status;
}

std::string Tokenizer::decode(std::span<const TokenId> ids, SkipSpecial skip) const {
  IncrementalDetokenizer detokenizer(*this, skip, StreamStart::kStartOfText);
  std::string text;
  for (const TokenId id : ids) {
    detokenizer.step(id, text);
  }
  detokenizer.finish(text);
  return text;
}

std::string_view Tokenizer::token_bytes(TokenId id) const {
  return pipeline_->tokens.middle().bytes(id);
}

std::string_view Tokenizer::token_bytes(TokenId id, TokenPlace place) const {
  return pipeline_->tokens.bytes(id, place);
}

std::string Tokenizer::token_text(TokenId id) const {
  std::string text;
  append_lossy(text, token_bytes(id));
  return text;
}

bool Tokenizer::contains(TokenId id) const {
  return pipeline_->tokens.middle().is_known(id);
}

bool Tokenizer::is_special(TokenId id) const {
  return pipeline_->tokens.middle().is_special(id);
}

std::optional<TokenId> Tokenizer::find(std::string_view token_text) const {
  if (const auto added = pipeline_->added_ids.find(token_text);
      added != pipeline_->added_ids.end()) {
    return added->second;
  }
  return is_valid_utf8(token_text) ? find_token(pipeline_->model, token_text) : std::nullopt;
}

void prepare_long_words(const Tokenizer& tokenizer) {
  if (const auto* model = std::get_if<BpeModel>(&tokenizer.pipeline().model)) {
    model->prepare_long_words();
  }
}

uint32_t Tokenizer::vocab_size() const {
  return pipeline_->tokens.middle().size();
}

uint64_t Tokenizer::fingerprint() const {
  return pipeline_->fingerprint;
}

Tokenizer::DecodeRules Tokenizer::decode_rules() const {
  return pipeline_->decode_rules;
}

const TokenTables& Tokenizer::token_tables() const {
  return pipeline_->tokens;
}

}  // namespace stator::tokenizer
