// SPDX-License-Identifier: Apache-2.0
#include "stator/core/hash.h"
#include "stator/tokenizer/detail/byte_vocabulary.h"
#include "stator/tokenizer/detail/file_formats.h"
#include "stator/tokenizer/detail/json_fields.h"
#include "stator/tokenizer/detail/split_expressions.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <span>
#include <utility>

namespace stator::tokenizer {
namespace {

using SpecialToken = std::pair<std::string_view, TokenId>;

/// What the models that ship such a file agree on beside it.
struct Family {
  size_t vocab_size;  // of the published file; 0: told by name only
  std::string_view split;
  bool composes = false;           // NFC first
  uint32_t reserved_specials = 0;  // that many ids after the vocabulary are special tokens
  std::span<const SpecialToken> specials;
};

constexpr SpecialToken kCl100kSpecials[] = {{"<|endoftext|>", 100257},
                                            {"<|fim_prefix|>", 100258},
                                            {"<|fim_middle|>", 100259},
                                            {"<|fim_suffix|>", 100260},
                                            {"<|endofprompt|>", 100276}};
constexpr SpecialToken kO200kSpecials[] = {{"<|endoftext|>", 199999}, {"<|endofprompt|>", 200018}};
constexpr SpecialToken kGpt2Specials[] = {{"<|endoftext|>", 50256}};
constexpr SpecialToken kWhisperSpecials[] = {{"<|endoftext|>", 50257}};
constexpr SpecialToken kQwenSpecials[] = {
    {"<|endoftext|>", 151643}, {"<|im_start|>", 151644}, {"<|im_end|>", 151645}};
constexpr SpecialToken kQwen35Specials[] = {
    {"<|endoftext|>", 248044}, {"<|im_start|>", 248045}, {"<|im_end|>", 248046}};

constexpr Family kKimi{.vocab_size = 163584, .split = kKimiK2Split, .reserved_specials = 256};
constexpr Family kQwen1{
    .vocab_size = 151643, .split = kQwen2Split, .composes = true, .specials = kQwenSpecials};
constexpr Family kQwen35{
    .vocab_size = 248044, .split = kQwen35Split, .composes = true, .specials = kQwen35Specials};
constexpr Family kO200k{.vocab_size = 199998, .split = kO200kSplit, .specials = kO200kSpecials};
constexpr Family kCl100k{.vocab_size = 100256, .split = kCl100kSplit, .specials = kCl100kSpecials};
constexpr Family kR50k{.vocab_size = 50256, .split = kGpt2Split, .specials = kGpt2Specials};
constexpr Family kWhisper{.vocab_size = 50257, .split = kGpt2Split, .specials = kWhisperSpecials};
constexpr Family kP50k{.vocab_size = 50280, .split = kGpt2Split, .specials = kGpt2Specials};
constexpr Family kUnknown{.vocab_size = 0, .split = kCl100kSplit};

/// By the model's name for its kind, else by size; what is unknown splits like GPT-4 (and Llama 3).
const Family& find_family(std::string_view model_type, size_t vocab_size) {
  if (model_type.starts_with("kimi")) {
    return kKimi;
  }
  if (model_type == "qwen") {
    return kQwen1;
  }
  for (const Family* family :
       {&kKimi, &kQwen1, &kQwen35, &kO200k, &kCl100k, &kR50k, &kWhisper, &kP50k}) {
    if (family->vocab_size == vocab_size) {
      return *family;
    }
  }
  return kUnknown;
}

Result<ByteVocabulary> read_lines(std::string_view file) {
  ByteVocabulary vocabulary;
  size_t number = 0;
  while (!file.empty()) {
    const size_t end = std::min(file.find('\n'), file.size());
    std::string_view line = file.substr(0, end);
    file.remove_prefix(std::min(end + 1, file.size()));
    ++number;
    if (line.ends_with('\r')) {
      line.remove_suffix(1);
    }
    if (line.empty()) {
      continue;
    }
    const size_t space = line.find(' ');
    const std::string_view digits = space == line.npos ? "" : line.substr(space + 1);
    uint64_t rank = 0;
    const auto [stop, error] = std::from_chars(digits.data(), digits.data() + digits.size(), rank);
    if (error != std::errc() || stop != digits.data() + digits.size()) {
      return Error(Code::kCorrupt,
                   fmt::format("line {} of the tiktoken file is not \"<base64> <rank>\"", number));
    }
    auto added = vocabulary.add(line.substr(0, space), rank);
    if (!added.has_value()) {
      return std::move(added.error())
          .with_context(fmt::format("line {} of the tiktoken file", number));
    }
  }
  return vocabulary;
}

Result<std::string> read_model_type(std::string_view config_json) {
  if (config_json.empty()) {
    return std::string();
  }
  simdjson::dom::parser parser;
  STATOR_TRY(const Json root, parse_json(parser, config_json, "config.json"));
  STATOR_TRY(const auto type, find_string(root, "model_type"));
  return std::string(type.value_or(""));
}

/// Ids after the vocabulary that no file names have a name of their own all the same.
void add_reserved(const Family& family, size_t vocab_size, const std::vector<AddedToken>& declared,
                  std::vector<AddedToken>& out) {
  for (uint32_t i = 0; i < family.reserved_specials; ++i) {
    const auto id = static_cast<TokenId>(vocab_size + i);
    if (std::ranges::find(declared, id, &AddedToken::id) == declared.end()) {
      out.push_back(
          {.id = id, .content = fmt::format("<|reserved_token_{}|>", id), .special = true});
    }
  }
}

}  // namespace

PipelineResult load_tiktoken(std::string_view file, std::string_view config_json,
                             const std::vector<AddedToken>& declared, Tables tables) {
  STATOR_TRY(ByteVocabulary vocabulary, read_lines(file));
  STATOR_TRY(const std::string model_type, read_model_type(config_json));
  const Family& family = find_family(model_type, vocabulary.size());
  PipelineParts parts;
  STATOR_CHECK(vocabulary.fill(parts, tables));
  if (family.composes) {
    parts.normalizer.steps.emplace_back(Normalizer::ToForm{Normalizer::UnicodeForm::kNfc});
  }
  STATOR_CHECK(add_byte_level_split(family.split, parts.pre_tokenizer));
  parts.added_tokens = declared;
  add_reserved(family, vocabulary.size(), declared, parts.added_tokens);
  for (const auto& [content, id] : family.specials) {
    if (declared.empty()) {
      parts.added_tokens.push_back({.id = id, .content = std::string(content), .special = true});
    }
  }
  parts.fingerprint =
      xxh3_64(fmt::format("{} {}", model_type, parts.added_tokens.size()), xxh3_64(file));
  for (const AddedToken& token : parts.added_tokens) {
    parts.fingerprint = xxh3_64(fmt::format("{} {}", token.id, token.content), parts.fingerprint);
  }
  return assemble_pipeline(std::move(parts));
}

}  // namespace stator::tokenizer
