// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "stator/core/cancel_token.h"
#include "stator/core/ids.h"
#include "stator/core/result.h"

namespace stator::tokenizer {

/// Text to token ids and back, exactly as the Hugging Face `tokenizers` library does it.
///
///   STATOR_TRY(auto tokenizer, Tokenizer::load("/models/demo"));
///   std::vector<TokenId> ids;
///   STATOR_CHECK(tokenizer->encode("Hello", {.add_special = AddSpecial::kYes}, ids));
///   tokenizer->decode(ids, SkipSpecial::kYes) == "Hello";

/// Whether the text of a special token ("<|eot_id|>") in the input becomes that token, or is
/// encoded like any other text (the safe choice for text that users or tools wrote). As in the
/// reference library, added tokens that are not marked special are matched either way.
enum class SpecialTokens : uint8_t { kParse, kAsText };

/// Whether the post-processor's template (BOS, EOS) surrounds the ids.
enum class AddSpecial : uint8_t { kNo, kYes };

/// Whether special tokens vanish from decoded text. Non-special added tokens are always shown.
enum class SkipSpecial : uint8_t { kNo, kYes };

/// When encoding ends before the text does; looked at every few hundred pieces and within long
/// ones.
struct EncodeStop {
  const CancelToken* cancel = nullptr;  ///< set meanwhile: the result is kCancelled
  size_t ids_max = SIZE_MAX;            ///< with more ids than this in `out` the rest is left out

  bool cancelled() const { return cancel != nullptr && cancel->cancelled(); }
  bool is_due(size_t ids) const { return ids > ids_max || cancelled(); }
};

struct EncodeOptions {
  SpecialTokens special_tokens = SpecialTokens::kParse;
  AddSpecial add_special = AddSpecial::kNo;
  EncodeStop stop = {};
};

/// Bounds. Beyond them: kTooLarge for text, kCorrupt for the file.
inline constexpr size_t kMaxTextBytes = size_t{256} << 20;
inline constexpr size_t kMaxTokenizerJsonBytes = size_t{256} << 20;
inline constexpr TokenId kMaxTokenId =
    (1U << 21) - 1;  ///< published vocabularies end below 300,000

struct Pipeline;
class TokenTables;
class SafeCuts;

/// Immutable after creation and thread-safe: share one per model. Encoding uses per-thread scratch
/// memory and a per-thread pre-token cache of fixed size (see pre_token_cache.h), so it takes no
/// lock. Memory: about 60 bytes per vocabulary entry and 30 per merge.
class Tokenizer {
 public:
  /// From the text of a tokenizer.json. kCorrupt: not JSON or inconsistent; kUnsupported: a
  /// pipeline step of a type we do not have, named in the message.
  static Result<std::unique_ptr<Tokenizer>> from_json(std::string_view tokenizer_json);

  /// The same with the special tokens that only other files declare (texts of these files; empty if
  /// there are none). A declared token whose content is already an added token changes nothing.
  struct TokenDeclarations {
    std::string_view tokenizer_config_json;  ///< added_tokens_decoder, bos_token, eos_token, …
    std::string_view special_tokens_map_json;
    std::string_view config_json;  ///< model_type, for formats that do not say how text is split
  };
  static Result<std::unique_ptr<Tokenizer>> from_json(std::string_view tokenizer_json,
                                                      const TokenDeclarations& declarations);

  /// From the bytes of any vocabulary file, recognised by content: tokenizer.json, tekken.json,
  /// tiktoken, GGUF (its start suffices), SentencePiece. Errors as above; kTooLarge: a GGUF file
  /// that ends within its metadata.
  static Result<std::unique_ptr<Tokenizer>> from_bytes(std::string_view file,
                                                       const TokenDeclarations& declarations);

  /// From a model folder or a vocabulary file. In a folder the first of tokenizer.json,
  /// tekken.json, tiktoken.model, *.tiktoken, *.gguf, tokenizer.model counts, plus the special
  /// tokens declared only in tokenizer_config.json (added_tokens_decoder, bos_token, …) or
  /// special_tokens_map.json. kNotFound: there is none of them.
  static Result<std::unique_ptr<Tokenizer>> load(const std::string& path);

  ~Tokenizer();
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  /// Appends the ids of `text`; on error `out` is as before. Bytes that are not UTF-8 count as
  /// U+FFFD (one per maximal subpart, as WHATWG decoders do). Near-linear in `text` for any input:
  /// at most O(n log n) in the longest word. Needs up to 24 bytes of scratch per byte of the
  /// longest word. Errors: kTooLarge (kMaxTextBytes), kInvalidArgument (a model's own regular
  /// expression gave up), kCancelled (options.stop).
  Status encode(std::string_view text, EncodeOptions options, std::vector<TokenId>& out) const;

  /// The text of `ids`; ids outside the vocabulary stand for nothing; bytes that are not UTF-8
  /// become U+FFFD per maximal subpart. Equal to the reference, except that invalid runs of
  /// byte-fallback tokens ("<0xFF>") give one U+FFFD per subpart, not per byte, so that streams
  /// equal full decodes.
  std::string decode(std::span<const TokenId> ids, SkipSpecial skip) const;

  /// The bytes a token stands for in decoded text, not necessarily UTF-8 by themselves. Special
  /// tokens give their literal content. Empty for an unknown id. Valid as long as the tokenizer.
  std::string_view token_bytes(TokenId id) const;

  /// Where a token stands in what is decoded, specials that are skipped not counted. Some decoders
  /// (WordPiece, Metaspace, BPEDecoder) spell the first or the last token differently.
  struct TokenPlace {
    bool is_first = false;
    bool is_last = false;
  };

  /// `token_bytes` at a place; without one, in the middle.
  std::string_view token_bytes(TokenId id, TokenPlace place) const;

  /// `token_bytes` as UTF-8 for display, with U+FFFD for partial characters.
  std::string token_text(TokenId id) const;

  /// Whether the id is that of a vocabulary entry or added token.
  bool contains(TokenId id) const;

  /// Marked special in the file: hidden with SkipSpecial::kYes. False for an unknown id.
  bool is_special(TokenId id) const;

  /// Id of a vocabulary entry or added token by its spelling in the file ("<|eot_id|>", "Ġthe").
  std::optional<TokenId> find(std::string_view token_text) const;

  /// One more than the largest id.
  uint32_t vocab_size() const;

  /// Identity of the content (hash of the file and of later additions): equal for equal tokenizers
  /// in every process, so caches of token ids can be keyed on it.
  uint64_t fingerprint() const;

  /// How decoded text starts and ends and how tokens are joined; for IncrementalDetokenizer.
  struct DecodeRules {
    char strip_char = ' ';         ///< stripped from the start of a text …
    uint8_t strip_count = 0;       ///< … at most this many times
    uint8_t strip_end_count = 0;   ///< … and from its end
    bool space_between = false;    ///< no decoder in the file: tokens are joined by a space
    bool drops_repeats = false;    ///< a token like the one before it stands for nothing
    bool last_is_special = false;  ///< the last token is spelled differently
  };
  DecodeRules decode_rules() const;

  /// The text of every token at every place; for IncrementalDetokenizer.
  const TokenTables& token_tables() const;

  /// Where texts may be cut without changing their ids (split_text.h).
  const SafeCuts& safe_cuts() const { return *safe_cuts_; }
  /// The steps inside (pipeline.h).
  const Pipeline& pipeline() const { return *pipeline_; }

 private:
  explicit Tokenizer(std::unique_ptr<const Pipeline> pipeline);
  std::unique_ptr<const Pipeline> pipeline_;   // never null
  std::unique_ptr<const SafeCuts> safe_cuts_;  // never null
};

}  // namespace stator::tokenizer
