// SPDX-License-Identifier: Apache-2.0
#include "stator/core/hash.h"
#include "stator/tokenizer/detail/load_steps.h"
#include "stator/tokenizer/pipeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <utility>

namespace stator::tokenizer {
namespace {

constexpr size_t kAddedTokensMax = 65536;  // published models have at most a few thousand

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

/// Collects added tokens: equal contents override, the vocabulary's id counts where it has the
/// text.
class AddedTokenList {
 public:
  AddedTokenList(const BpeModel& model, TokenId largest_vocab_id)
      : model_(model), next_free_(largest_vocab_id + 1) {}

  bool contains(std::string_view content) const { return index_.contains(content); }

  Status add(AddedToken token) {
    if (token.content.empty()) {
      return {};
    }
    if (tokens_.size() >= kAddedTokensMax) {
      return Error(Code::kCorrupt, fmt::format("more than {} added tokens", kAddedTokensMax));
    }
    if (const auto in_vocab = model_.find(token.content)) {
      token.id = *in_vocab;
    } else if (token.id == kNoDeclaredId) {
      token.id = next_free_;
    }
    if (token.id > kMaxTokenId) {
      return Error(Code::kCorrupt, fmt::format("no id left for added token '{}'", token.content));
    }
    next_free_ = std::max(next_free_, token.id + 1);
    const auto [at, is_new] = index_.try_emplace(token.content, tokens_.size());
    if (is_new) {
      tokens_.push_back(std::move(token));
    } else {
      tokens_[at->second] = std::move(token);
    }
    return {};
  }

  const std::vector<AddedToken>& tokens() const { return tokens_; }

 private:
  const BpeModel& model_;
  TokenId next_free_;
  std::vector<AddedToken> tokens_;
  FlatMap<std::string, size_t> index_;  // content to position in tokens_
};

Status load_added_tokens(Json root, AddedTokenList& list) {
  if (!find_field(root, "added_tokens")) {
    return {};
  }
  STATOR_TRY(const auto entries, get_array(root, "added_tokens"));
  for (const Json entry : entries) {
    STATOR_TRY(AddedToken token, load_added_token(entry));
    STATOR_CHECK(list.add(std::move(token)));
  }
  return {};
}

/// Tokens declared beside the file keep their id unless the vocabulary uses it for another text.
Status add_declared(const std::vector<AddedToken>& declared, const BpeSpec& spec,
                    AddedTokenList& list) {
  FlatSet<TokenId> used;
  for (const auto& [text, id] : spec.vocab) {
    used.insert(id);
  }
  for (const AddedToken& token : list.tokens()) {
    used.insert(token.id);
  }
  for (AddedToken token : declared) {
    if (!list.contains(token.content)) {
      token.id = used.insert(token.id).second ? token.id : kNoDeclaredId;
      STATOR_CHECK(list.add(std::move(token)));
    }
  }
  return {};
}

TokenTable make_token_table(const BpeSpec& spec, const std::vector<AddedToken>& added,
                            const Decoder& decoder) {
  std::vector<TokenTable::Entry> entries;
  entries.reserve(spec.vocab.size() + added.size());
  for (const auto& [text, id] : spec.vocab) {
    entries.push_back({id, decode_token(decoder, text), false});
  }
  for (const AddedToken& token : added) {
    entries.push_back({token.id, decode_token(decoder, token.content), token.special});
  }
  return TokenTable(entries);
}

Status make_matchers(const std::vector<AddedToken>& added, Pipeline& pipeline) {
  std::vector<AddedToken> raw;
  std::vector<AddedToken> normalized;
  std::string buffer;
  for (const AddedToken& token : added) {
    pipeline.added_ids.insert_or_assign(token.content, token.id);
    if (!token.normalized) {
      raw.push_back(token);
      continue;
    }
    STATOR_TRY(const std::string_view content,
               normalize(pipeline.normalizer, token.content, buffer), "normalizing added tokens");
    if (!content.empty()) {
      normalized.push_back(token);
      normalized.back().content = std::string(content);
    }
  }
  pipeline.raw_added_tokens = AddedTokenMatcher(std::move(raw));
  pipeline.normalized_added_tokens = AddedTokenMatcher(std::move(normalized));
  return {};
}

/// The last step may leave pieces as bytes if the model takes them; anything after it works on
/// characters of the byte alphabet, so then they must really be written.
BpeModel::Alphabet choose_alphabet(const BpeSpec& spec, PreTokenizer& pre_tokenizer) {
  auto& steps = pre_tokenizer.steps;
  const auto maps = [](const PreTokenizer::Step& step) {
    return std::holds_alternative<PreTokenizer::MapBytes>(step);
  };
  const bool maps_last =
      !steps.empty() && maps(steps.back()) && std::ranges::count_if(steps, maps) == 1;
  if (!maps_last || !BpeModel::supports_bytes(spec)) {
    return BpeModel::Alphabet::kCharacters;
  }
  steps.pop_back();
  return BpeModel::Alphabet::kBytes;
}

TokenId largest_id(const BpeSpec& spec) {
  TokenId largest = UINT32_MAX;  // + 1 is 0: an empty vocabulary leaves all ids free
  for (const auto& [text, id] : spec.vocab) {
    largest = largest == UINT32_MAX ? id : std::max(largest, id);
  }
  return largest;
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

/// 1, 2, …: zero marks empty cache entries.
uint32_t next_instance() {
  static std::atomic<uint32_t> last = 0;
  return last.fetch_add(1, std::memory_order_relaxed) + 1;
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

Result<std::unique_ptr<const Pipeline>> load_pipeline(std::string_view tokenizer_json,
                                                      const std::vector<AddedToken>& more_tokens) {
  if (tokenizer_json.size() > kMaxTokenizerJsonBytes) {
    return Error(Code::kTooLarge,
                 fmt::format("tokenizer.json has {} bytes; at most {} are accepted",
                             tokenizer_json.size(), kMaxTokenizerJsonBytes));
  }
  simdjson::dom::parser parser;
  STATOR_TRY(const Json root, parse_json(parser, tokenizer_json, "tokenizer.json"));
  auto pipeline = std::make_unique<Pipeline>();
  STATOR_TRY(const BpeSpec spec, load_model(root));
  STATOR_TRY(pipeline->normalizer, load_normalizer(root));
  STATOR_TRY(pipeline->pre_tokenizer, load_pre_tokenizer(root));
  STATOR_TRY(pipeline->post_processor, load_post_processor(root));
  STATOR_TRY(const Decoder decoder, load_decoder(root));
  const BpeModel::Alphabet alphabet = choose_alphabet(spec, pipeline->pre_tokenizer);
  STATOR_TRY(pipeline->model, BpeModel::create(spec, alphabet));

  AddedTokenList added(pipeline->model, largest_id(spec));
  STATOR_CHECK(load_added_tokens(root, added));
  STATOR_CHECK(add_declared(more_tokens, spec, added));
  STATOR_CHECK(make_matchers(added.tokens(), *pipeline));
  pipeline->tokens = make_token_table(spec, added.tokens(), decoder);
  pipeline->decode_rules = decoder.rules;
  pipeline->fingerprint = compute_fingerprint(tokenizer_json, more_tokens);
  pipeline->instance = next_instance();
  return std::unique_ptr<const Pipeline>(std::move(pipeline));
}

Result<std::vector<AddedToken>> parse_token_declarations(std::string_view tokenizer_config,
                                                         std::string_view special_tokens_map) {
  std::vector<AddedToken> tokens;
  STATOR_CHECK(append_declarations(tokenizer_config, "tokenizer_config.json", tokens));
  STATOR_CHECK(append_declarations(special_tokens_map, "special_tokens_map.json", tokens));
  return tokens;
}

}  // namespace stator::tokenizer
