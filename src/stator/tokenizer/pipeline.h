// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "stator/core/flat_map.h"
#include "stator/core/result.h"
#include "stator/tokenizer/added_tokens.h"
#include "stator/tokenizer/decoder.h"
#include "stator/tokenizer/model.h"
#include "stator/tokenizer/normalizer.h"
#include "stator/tokenizer/post_processor.h"
#include "stator/tokenizer/pre_tokenizer.h"

namespace stator::tokenizer {

/// A tokenizer taken apart: the steps of encoding in order, then what decoding needs. Plain data.
struct Pipeline {
  AddedTokenMatcher raw_added_tokens;  ///< looked for in the text as it comes
  Normalizer normalizer;
  AddedTokenMatcher normalized_added_tokens;  ///< looked for in normalized text
  PreTokenizer pre_tokenizer;
  Model model;
  PostProcessor post_processor;

  TokenTables tokens;
  Tokenizer::DecodeRules decode_rules;
  FlatMap<std::string, TokenId> added_ids;  ///< by content

  uint64_t fingerprint = 0;
  uint32_t instance = 0;  ///< tells tokenizers apart in the per-thread cache; unique in the process
};

/// Builds the pipeline of a tokenizer.json. `more_tokens` come from the files beside it: they are
/// added if no added token has their content. Errors as Tokenizer::from_json.
Result<std::unique_ptr<const Pipeline>> load_pipeline(std::string_view tokenizer_json,
                                                      const std::vector<AddedToken>& more_tokens);

/// Special tokens declared in tokenizer_config.json and special_tokens_map.json (either may be
/// empty text). An id of kNoDeclaredId means that the file names none. kCorrupt: not JSON.
inline constexpr TokenId kNoDeclaredId = UINT32_MAX;
Result<std::vector<AddedToken>> parse_token_declarations(std::string_view tokenizer_config,
                                                         std::string_view special_tokens_map);

}  // namespace stator::tokenizer
