// SPDX-License-Identifier: Apache-2.0
#include "stator/tokenizer/tokenizer.h"

#include "stator/core/assert.h"
#include "stator/tokenizer/pipeline.h"
#include "stator/tokenizer/pre_token_cache.h"
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
  }

 private:
  template <typename Container>
  static void trim_one(Container& container) {
    if (container.capacity() * sizeof(container[0]) > kScratchBytesKept) {
      Container().swap(container);
    }
  }
};

/// Through the cache where the part is short enough.
void encode_part(const Pipeline& pipeline, std::string_view part, BpeScratch& scratch,
                 PreTokenCache& cache, std::vector<TokenId>& out) {
  if (part.size() > PreTokenCache::kPieceBytesMax) {
    pipeline.model.encode(part, scratch, out);
    return;
  }
  const PreTokenCache::Key key = PreTokenCache::make_key(part, pipeline.instance);
  if (const auto known = cache.find(key); !known.empty()) {
    out.insert(out.end(), known.begin(), known.end());
    return;
  }
  const size_t begin = out.size();
  pipeline.model.encode(part, scratch, out);
  cache.insert(key, std::span(out).subspan(begin));
}

void encode_pieces(const Pipeline& pipeline, const Pieces& pieces, BpeScratch& scratch,
                   std::vector<TokenId>& out) {
  PreTokenCache& cache = PreTokenCache::of_this_thread();
  for (size_t i = 0; i < pieces.ranges.size(); ++i) {
    const std::string_view piece = pieces[i];
    for (size_t at = 0; at < piece.size();) {
      const size_t end = pipeline.model.find_part_end(piece, at);
      encode_part(pipeline, piece.substr(at, end - at), scratch, cache, out);
      at = end;
    }
  }
}

Status encode_text(const Pipeline& pipeline, std::string_view text, SpecialTokens special,
                   EncodeScratch& scratch, std::vector<TokenId>& out) {
  STATOR_TRY(const std::string_view normalized,
             normalize(pipeline.normalizer, text, scratch.normalized));
  pipeline.normalized_added_tokens.split(normalized, special, scratch.normalized_sections);
  for (const Section& section : scratch.normalized_sections) {
    if (section.is_token) {
      out.push_back(section.id);
      continue;
    }
    STATOR_CHECK(pre_tokenize(pipeline.pre_tokenizer, section.text, scratch.pieces));
    encode_pieces(pipeline, scratch.pieces, scratch.bpe, out);
  }
  return {};
}

Status encode_all(const Pipeline& pipeline, std::string_view text, EncodeOptions options,
                  std::vector<TokenId>& out) {
  thread_local EncodeScratch scratch;
  if (!is_valid_utf8(text)) {
    scratch.repaired.clear();
    append_lossy(text, scratch.repaired);
    text = scratch.repaired;
  }
  const bool add_special = options.add_special == AddSpecial::kYes;
  const PostProcessor& post = pipeline.post_processor;
  if (add_special) {
    out.insert(out.end(), post.before.begin(), post.before.end());
  }
  pipeline.raw_added_tokens.split(text, options.special_tokens, scratch.raw_sections);
  Status status;
  for (const Section& section : scratch.raw_sections) {
    if (section.is_token) {
      out.push_back(section.id);
      continue;
    }
    status = encode_text(pipeline, section.text, options.special_tokens, scratch, out);
    if (!status.has_value()) {
      break;
    }
  }
  if (add_special) {
    out.insert(out.end(), post.after.begin(), post.after.end());
  }
  scratch.trim();
  return status;
}

}  // namespace

Tokenizer::Tokenizer(std::unique_ptr<const Pipeline> pipeline) : pipeline_(std::move(pipeline)) {}

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
  const DecodeRules& rules = pipeline_->decode_rules;
  std::string bytes;
  bool first = true;
  for (const TokenId id : ids) {
    if (!contains(id) || (skip == SkipSpecial::kYes && is_special(id))) {
      continue;
    }
    if (rules.space_between && !std::exchange(first, false)) {
      bytes.push_back(' ');
    }
    bytes += token_bytes(id);
  }
  std::string_view rest = bytes;
  for (int left = rules.strip_count; left > 0 && rest.starts_with(rules.strip_char); --left) {
    rest.remove_prefix(1);
  }
  std::string text;
  text.reserve(rest.size());
  append_lossy(rest, text);
  return text;
}

std::string_view Tokenizer::token_bytes(TokenId id) const {
  return pipeline_->tokens.bytes(id);
}

std::string Tokenizer::token_text(TokenId id) const {
  std::string text;
  append_lossy(token_bytes(id), text);
  return text;
}

bool Tokenizer::contains(TokenId id) const {
  return pipeline_->tokens.is_known(id);
}

bool Tokenizer::is_special(TokenId id) const {
  return pipeline_->tokens.is_special(id);
}

std::optional<TokenId> Tokenizer::find(std::string_view token_text) const {
  if (const auto added = pipeline_->added_ids.find(token_text);
      added != pipeline_->added_ids.end()) {
    return added->second;
  }
  return is_valid_utf8(token_text) ? pipeline_->model.find(token_text) : std::nullopt;
}

uint32_t Tokenizer::vocab_size() const {
  return pipeline_->tokens.size();
}

uint64_t Tokenizer::fingerprint() const {
  return pipeline_->fingerprint;
}

Tokenizer::DecodeRules Tokenizer::decode_rules() const {
  return pipeline_->decode_rules;
}

}  // namespace stator::tokenizer
