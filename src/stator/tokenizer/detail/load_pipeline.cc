// SPDX-License-Identifier: Apache-2.0
#include "stator/core/hash.h"
#include "stator/tokenizer/detail/assemble_pipeline.h"
#include "stator/tokenizer/detail/load_steps.h"
#include "stator/tokenizer/pipeline.h"

#include <fmt/format.h>

#include <charconv>
#include <utility>

namespace stator::tokenizer {
namespace {

Result<AddedToken> load_added_token(Json entry) {
  AddedToken token;
  STATOR_TRY(const std::string_view content, get_string(entry, "content"));
  if (content.size() > kAddedTokenBytesMax) {
    return Error(Code::kCorrupt, fmt::format("an added token has {} bytes; at most {} are accepted",
                                             content.size(), kAddedTokenBytesMax));
  }
  token.content = content;
  STATOR_TRY(const uint64_t id, get_unsigned(entry, "id", kNoDeclaredId));
  if (id > kMaxTokenId && id != kNoDeclaredId) {
    return Error(Code::kCorrupt,
                 fmt::format("added token '{}' has an id beyond {}", content, kMaxTokenId));
  }
  token.id = static_cast<TokenId>(id);
  STATOR_TRY(token.single_word, get_bool(entry, "single_word", false));
  STATOR_TRY(token.lstrip, get_bool(entry, "lstrip", false));
  STATOR_TRY(token.rstrip, get_bool(entry, "rstrip", false));
  STATOR_TRY(token.special, get_bool(entry, "special", false));
  STATOR_TRY(token.normalized, get_bool(entry, "normalized", !token.special));
  return token;
}

Result<std::vector<AddedToken>> load_added_tokens(Json root) {
  std::vector<AddedToken> tokens;
  if (!find_field(root, "added_tokens")) {
    return tokens;
  }
  STATOR_TRY(const auto entries, get_array(root, "added_tokens"));
  for (const Json entry : entries) {
    STATOR_TRY(AddedToken token, load_added_token(entry));
    tokens.push_back(std::move(token));
  }
  return tokens;
}

uint64_t compute_fingerprint(std::string_view tokenizer_json,
                             const std::vector<AddedToken>& more_tokens) {
  uint64_t hash = xxh3_64(tokenizer_json);
  for (const AddedToken& token : more_tokens) {
    hash =
        xxh3_64(fmt::format("{} {:d}{:d}{:d}{:d}{:d} {}", token.id, token.single_word, token.lstrip,
                            token.rstrip, token.normalized, token.special, token.content),
                hash);
  }
  return hash;
}

/// "bos_token": "<s>" or {"content": "<s>", …}, and lists or objects of these.
Status append_named_specials(Json value, int nesting, std::vector<AddedToken>& out) {
  std::string_view text;
  if (value.get(text) == simdjson::SUCCESS) {
    out.push_back({.id = kNoDeclaredId, .content = std::string(text), .special = true});
    return {};
  }
  if (find_field(value, "content")) {
    STATOR_TRY(AddedToken token, load_added_token(value));
    token.special = true;
    out.push_back(std::move(token));
    return {};
  }
  simdjson::dom::array list;
  if (nesting == 0 && value.get(list) == simdjson::SUCCESS) {
    for (const Json inner : list) {
      STATOR_CHECK(append_named_specials(inner, nesting + 1, out));
    }
  }
  return {};
}

constexpr std::string_view kSpecialFields[] = {
    "bos_token", "eos_token", "unk_token",  "sep_token",
    "pad_token", "cls_token", "mask_token", "additional_special_tokens"};

Status append_declarations(std::string_view text, std::string_view file_name,
                           std::vector<AddedToken>& out) {
  if (text.empty()) {
    return {};
  }
  simdjson::dom::parser parser;
  STATOR_TRY(const Json root, parse_json(parser, text, file_name));
  simdjson::dom::object by_id;
  if (const auto field = find_field(root, "added_tokens_decoder");
      field && field->get(by_id) == simdjson::SUCCESS) {
    for (const auto& [key, value] : by_id) {
      STATOR_TRY(AddedToken token, load_added_token(value), file_name);
      uint32_t id = 0;
      const auto [stop, error] = std::from_chars(key.data(), key.data() + key.size(), id);
      if (error != std::errc() || stop != key.data() + key.size() || id > kMaxTokenId) {
        return Error(Code::kCorrupt,
                     fmt::format("{}: added_tokens_decoder has the key '{}', which is not an id "
                                 "within 0 … {}",
                                 file_name, key, kMaxTokenId));
      }
      token.id = id;
      out.push_back(std::move(token));
    }
  }
  for (const std::string_view name : kSpecialFields) {
    if (const auto field = find_field(root, name)) {
      STATOR_CHECK(append_named_specials(*field, 0, out), file_name);
    }
  }
  return {};
}

}  // namespace

Status check_size(std::string_view tokenizer_json) {
  if (tokenizer_json.size() > kMaxTokenizerJsonBytes) {
    return Error(Code::kTooLarge,
                 fmt::format("tokenizer.json has {} bytes; at most {} are accepted",
                             tokenizer_json.size(), kMaxTokenizerJsonBytes));
  }
  return {};
}

Result<std::unique_ptr<const Pipeline>> load_pipeline(std::string_view tokenizer_json,
                                                      const std::vector<AddedToken>& more_tokens) {
  STATOR_CHECK(check_size(tokenizer_json));
  simdjson::dom::parser parser;
  STATOR_TRY(const Json root, parse_json(parser, tokenizer_json, "tokenizer.json"));
  return load_pipeline(root, tokenizer_json, more_tokens, Tables::kAll);
}

Result<std::unique_ptr<const Pipeline>> load_pipeline(Json root, std::string_view tokenizer_json,
                                                      const std::vector<AddedToken>& more_tokens,
                                                      Tables tables) {
  PipelineParts parts;
  STATOR_TRY(parts.model, load_model(root, tables));
  STATOR_TRY(parts.normalizer, load_normalizer(root));
  STATOR_TRY(parts.pre_tokenizer, load_pre_tokenizer(root));
  STATOR_TRY(parts.post_processor, load_post_processor(root));
  STATOR_TRY(parts.decoder, load_decoder(root));
  STATOR_TRY(parts.added_tokens, load_added_tokens(root));
  parts.numbers_added_tokens = true;
  parts.declared_tokens = more_tokens;
  parts.fingerprint = compute_fingerprint(tokenizer_json, more_tokens);
  return assemble_pipeline(std::move(parts));
}

Result<std::vector<AddedToken>> parse_token_declarations(std::string_view tokenizer_config,
                                                         std::string_view special_tokens_map) {
  std::vector<AddedToken> tokens;
  STATOR_CHECK(append_declarations(tokenizer_config, "tokenizer_config.json", tokens));
  STATOR_CHECK(append_declarations(special_tokens_map, "special_tokens_map.json", tokens));
  return tokens;
}

}  // namespace stator::tokenizer
