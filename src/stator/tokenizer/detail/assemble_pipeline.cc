// SPDX-License-Identifier: Apache-2.0
#include "stator/tokenizer/detail/assemble_pipeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <optional>
#include <utility>

namespace stator::tokenizer {
namespace {

constexpr size_t kAddedTokensMax = 65536;  // published models have at most a few thousand

/// Collects added tokens: equal contents override, the vocabulary's id counts where it has the
/// text.
class AddedTokenList {
 public:
  /// Tokens without an id get those from `first_free` on.
  AddedTokenList(const Model& model, TokenId first_free) : model_(model), next_free_(first_free) {}

  bool contains(std::string_view content) const { return index_.contains(content); }

  std::optional<TokenId> find_id(std::string_view content) const {
    const auto at = index_.find(content);
    return at == index_.end() ? std::nullopt : std::optional(tokens_[at->second].id);
  }

  Status add(AddedToken token) {
    if (token.content.empty()) {
      return {};
    }
    if (tokens_.size() >= kAddedTokensMax) {
      return Error(Code::kCorrupt, fmt::format("more than {} added tokens", kAddedTokensMax));
    }
    if (const auto in_vocab = find_token(model_, token.content)) {
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
  const Model& model_;
  TokenId next_free_;
  std::vector<AddedToken> tokens_;
  FlatMap<std::string, size_t> index_;  // content to position in tokens_
};

/// Tokens declared beside the file keep their id unless the vocabulary uses it for another text.
Status add_declared(const std::vector<AddedToken>& declared, const VocabularyEntries& vocab,
                    AddedTokenList& list) {
  std::vector<uint8_t> used;              // by id
  const auto use = [&used](TokenId id) {  // whether nobody did before
    if (id >= used.size()) {
      used.resize(std::max<size_t>(id + size_t{1}, 2 * used.size()));
    }
    return std::exchange(used[id], 1) == 0;
  };
  if (declared.empty()) {
    return {};
  }
  for (const auto& [text, id] : vocab) {
    use(id);
  }
  for (const AddedToken& token : list.tokens()) {
    use(token.id);
  }
  for (AddedToken token : declared) {
    if (!list.contains(token.content)) {
      token.id = token.id != kNoDeclaredId && use(token.id) ? token.id : kNoDeclaredId;
      STATOR_CHECK(list.add(std::move(token)));
    }
  }
  return {};
}

TokenTables make_token_tables(const VocabularyEntries& vocab, const std::vector<AddedToken>& added,
                              const Decoder& decoder) {
  std::vector<TokenTables::Spelling> spellings;
  spellings.reserve(vocab.size() + added.size());
  for (const auto& [text, id] : vocab) {
    spellings.push_back({id, text, false});
  }
  for (const AddedToken& token : added) {
    spellings.push_back({token.id, token.content, token.special});
  }
  return TokenTables(decoder, spellings);
}

/// Added tokens as they stand in normalized text, which is also how they are decoded.
Status normalize_texts(const Normalizer& normalizer, std::vector<AddedToken>& tokens) {
  std::string buffer;
  for (AddedToken& token : tokens) {
    if (token.normalized) {
      STATOR_TRY(const Normalized content, normalize(normalizer, token.content, buffer),
                 "normalizing added tokens");
      token.content = std::string(content.text);
    }
  }
  return {};
}

void make_matchers(const std::vector<AddedToken>& added, Pipeline& pipeline) {
  std::vector<AddedToken> raw;
  std::vector<AddedToken> normalized;
  for (const AddedToken& token : added) {
    if (!token.content.empty()) {
      (token.normalized ? normalized : raw).push_back(token);
    }
  }
  pipeline.raw_added_tokens = AddedTokenMatcher(std::move(raw));
  pipeline.normalized_added_tokens = AddedTokenMatcher(std::move(normalized));
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

TokenId largest_id(const VocabularyEntries& vocab) {
  TokenId largest = UINT32_MAX;  // + 1 is 0: an empty vocabulary leaves all ids free
  for (const auto& [text, id] : vocab) {
    largest = largest == UINT32_MAX ? id : std::max(largest, id);
  }
  return largest;
}

/// 1, 2, …: zero marks empty cache entries.
uint32_t next_instance() {
  static std::atomic<uint32_t> last = 0;
  return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

Result<Model> make_model(const ModelSpec& spec, PreTokenizer& pre_tokenizer) {
  if (const auto* bpe = std::get_if<BpeSpec>(&spec)) {
    STATOR_TRY(BpeModel model, BpeModel::create(*bpe, choose_alphabet(*bpe, pre_tokenizer)));
    return model;
  }
  if (const auto* unigram = std::get_if<UnigramSpec>(&spec)) {
    STATOR_TRY(UnigramModel model, UnigramModel::create(*unigram));
    return model;
  }
  if (const auto* word_piece = std::get_if<WordPieceSpec>(&spec)) {
    return WordPieceModel::create(*word_piece);
  }
  return WordLevelModel::create(std::get<WordLevelSpec>(spec));
}

}  // namespace

Result<std::unique_ptr<const Pipeline>> assemble_pipeline(PipelineParts parts) {
  auto pipeline = std::make_unique<Pipeline>();
  const VocabularyEntries& vocab = vocabulary_of(parts.model);
  STATOR_TRY(pipeline->model, make_model(parts.model, parts.pre_tokenizer));
  pipeline->normalizer = std::move(parts.normalizer);
  pipeline->pre_tokenizer = std::move(parts.pre_tokenizer);
  pipeline->post_processor = std::move(parts.post_processor);

  const bool numbers = parts.numbers_added_tokens;
  const auto vocab_tokens = static_cast<TokenId>(vocab.size());
  AddedTokenList added(pipeline->model, numbers ? vocab_tokens : largest_id(vocab) + 1);
  for (AddedToken& token : parts.added_tokens) {
    token.id = numbers ? added.find_id(token.content).value_or(kNoDeclaredId) : token.id;
    STATOR_CHECK(added.add(std::move(token)));
  }
  STATOR_CHECK(add_declared(parts.declared_tokens, vocab, added));
  for (const AddedToken& token : added.tokens()) {
    pipeline->added_ids.insert_or_assign(token.content, token.id);
  }
  std::vector<AddedToken> tokens = added.tokens();
  if (!parts.added_texts_are_normalized) {
    STATOR_CHECK(normalize_texts(pipeline->normalizer, tokens));
  }
  make_matchers(tokens, *pipeline);
  pipeline->tokens = make_token_tables(vocab, tokens, parts.decoder);
  pipeline->decode_rules = parts.decoder.rules;
  pipeline->fingerprint = parts.fingerprint;
  pipeline->instance = next_instance();
  return std::unique_ptr<const Pipeline>(std::move(pipeline));
}

}  // namespace stator::tokenizer
