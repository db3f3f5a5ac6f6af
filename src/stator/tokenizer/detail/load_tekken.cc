// SPDX-License-Identifier: Apache-2.0
#include "stator/core/hash.h"
#include "stator/tokenizer/detail/byte_vocabulary.h"
#include "stator/tokenizer/detail/file_formats.h"
#include "stator/tokenizer/detail/json_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace stator::tokenizer {
namespace {

// Files of the first version do not list their special tokens.
constexpr std::string_view kFirstSpecials[] = {"<unk>",
                                               "<s>",
                                               "</s>",
                                               "[INST]",
                                               "[/INST]",
                                               "[AVAILABLE_TOOLS]",
                                               "[/AVAILABLE_TOOLS]",
                                               "[TOOL_RESULTS]",
                                               "[/TOOL_RESULTS]",
                                               "[TOOL_CALLS]",
                                               "[IMG]",
                                               "<pad>",
                                               "[IMG_BREAK]",
                                               "[IMG_END]",
                                               "[PREFIX]",
                                               "[MIDDLE]",
                                               "[SUFFIX]",
                                               "[SYSTEM_PROMPT]",
                                               "[/SYSTEM_PROMPT]",
                                               "[TOOL_CONTENT]"};

constexpr uint64_t kSpecialsMax = 65536;  // published files have 1000

constexpr std::string_view kBeginOfText = "<s>";

struct Sizes {
  uint64_t tokens;    // of the vocabulary that are used
  uint64_t specials;  // ids before them
};

Result<Sizes> read_sizes(Json config, size_t listed) {
  STATOR_TRY(const uint64_t specials, get_unsigned(config, "default_num_special_tokens", 1000));
  STATOR_TRY(const uint64_t total, get_unsigned(config, "default_vocab_size", listed + specials));
  if (total < specials || total - specials > listed || specials > kSpecialsMax) {
    return Error(Code::kCorrupt,
                 fmt::format("tekken.json: default_vocab_size is {}, but there are {} special "
                             "tokens and {} others",
                             total, specials, listed));
  }
  return Sizes{total - specials, specials};
}

Status read_vocabulary(simdjson::dom::array entries, Sizes sizes, ByteVocabulary& vocabulary) {
  for (const Json entry : entries) {
    STATOR_TRY(const uint64_t rank, get_unsigned(entry, "rank", UINT64_MAX), "tekken.json");
    STATOR_TRY(const std::string_view bytes, get_string(entry, "token_bytes"), "tekken.json");
    if (rank < sizes.tokens) {
      STATOR_CHECK(vocabulary.add(bytes, rank + sizes.specials), "tekken.json");
    } else if (rank == UINT64_MAX) {
      return Error(Code::kCorrupt, "tekken.json: an entry of vocab has no rank");
    }
  }
  if (vocabulary.size() != sizes.tokens) {
    return Error(Code::kCorrupt, fmt::format("tekken.json: {} tokens have a rank below {}",
                                             vocabulary.size(), sizes.tokens));
  }
  return {};
}

/// All ids below the vocabulary are special; those without a name get one.
Result<std::vector<AddedToken>> read_specials(Json root, Sizes sizes) {
  std::vector<AddedToken> tokens(sizes.specials);
  for (size_t i = 0; i < tokens.size(); ++i) {
    tokens[i] = {.id = static_cast<TokenId>(i), .special = true};
    tokens[i].content = fmt::format("<SPECIAL_{}>", i);
  }
  if (!find_field(root, "special_tokens")) {
    for (size_t i = 0; i < std::min(std::size(kFirstSpecials), tokens.size()); ++i) {
      tokens[i].content = kFirstSpecials[i];
    }
    return tokens;
  }
  STATOR_TRY(const auto listed, get_array(root, "special_tokens"));
  for (const Json entry : listed) {
    STATOR_TRY(const uint64_t rank, get_unsigned(entry, "rank", UINT64_MAX), "tekken.json");
    STATOR_TRY(const std::string_view text, get_string(entry, "token_str"), "tekken.json");
    if (rank >= tokens.size()) {
      return Error(Code::kCorrupt,
                   fmt::format("tekken.json: special token '{}' has the rank {}, there are {}",
                               text, rank, tokens.size()));
    }
    tokens[rank].content = text;
  }
  return tokens;
}

}  // namespace

PipelineResult load_tekken(std::string_view file, Tables tables) {
  simdjson::dom::parser parser;
  STATOR_TRY(const Json root, parse_json(parser, file, "tekken.json"));
  const auto config = find_field(root, "config");
  if (!config) {
    return Error(Code::kCorrupt, "tekken.json has no config");
  }
  STATOR_TRY(const auto entries, get_array(root, "vocab"), "tekken.json");
  STATOR_TRY(const Sizes sizes, read_sizes(*config, entries.size()));
  STATOR_TRY(const std::string_view pattern, get_string(*config, "pattern"), "tekken.json");
  ByteVocabulary vocabulary;
  STATOR_CHECK(read_vocabulary(entries, sizes, vocabulary));
  PipelineParts parts;
  STATOR_CHECK(vocabulary.fill(parts, tables));
  STATOR_CHECK(add_byte_level_split(pattern, parts.pre_tokenizer), "tekken.json");
  STATOR_TRY(parts.added_tokens, read_specials(root, sizes));
  for (const AddedToken& token : parts.added_tokens) {
    if (token.content == kBeginOfText) {
      parts.post_processor.before.push_back(token.id);
    }
  }
  parts.fingerprint = xxh3_64(file);
  return assemble_pipeline(std::move(parts));
}

}  // namespace stator::tokenizer
