// SPDX-License-Identifier: Apache-2.0
#include "stator/io/read_file.h"
#include "stator/tokenizer/detail/file_formats.h"
#include "stator/tokenizer/detail/json_fields.h"
#include "stator/tokenizer/detail/load_steps.h"
#include "stator/tokenizer/pipeline.h"
#include "stator/tokenizer/tokenizer.h"
#include "stator/tokenizer/vocabulary_facts.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <initializer_list>
#include <optional>
#include <vector>

namespace stator::tokenizer {
namespace {

namespace fs = std::filesystem;

// GGUF files are large, their metadata is not: read this much, and twice as much if it was short.
constexpr size_t kFirstReadBytes = size_t{16} << 20;

constexpr std::string_view kGgufMagic = "GGUF";

/// The whole file; empty text if there is none.
Result<std::string> read_if_present(const fs::path& path) {
  STATOR_TRY(auto text, io::read_file_if_present(path, kMaxTokenizerJsonBytes));
  return std::move(text).value_or("");
}

/// Files of `folder` whose name ends with `ending`, by name.
std::vector<fs::path> find_by_ending(const fs::path& folder, std::string_view ending) {
  std::vector<fs::path> found;
  std::error_code ignored;
  for (fs::directory_iterator at(folder, ignored), end; !ignored && at != end;
       at.increment(ignored)) {
    if (at->path().filename().string().ends_with(ending)) {
      found.push_back(at->path());
    }
  }
  std::ranges::sort(found);
  return found;
}

/// The first of `names` that `folder` has; empty if it has none.
fs::path find_by_name(const fs::path& folder, std::initializer_list<std::string_view> names) {
  std::error_code ignored;
  const auto* found = std::ranges::find_if(
      names, [&](std::string_view name) { return fs::exists(folder / name, ignored); });
  return found == names.end() ? fs::path() : folder / *found;
}

/// The vocabulary file of a model folder; empty if there is none.
fs::path choose_file(const fs::path& folder) {
  if (auto path = find_by_name(folder, {"tokenizer.json", "tekken.json", "tiktoken.model"});
      !path.empty()) {
    return path;
  }
  for (const std::string_view ending : {".tiktoken", ".gguf"}) {
    if (const auto files = find_by_ending(folder, ending); !files.empty()) {
      return files.front();
    }
  }
  return find_by_name(folder, {"tokenizer.model", "spiece.model", "sentencepiece.bpe.model"});
}

/// tekken.json has the fields "config" and "vocab", tokenizer.json has "model".
bool is_tekken(Json root) {
  return !find_field(root, "model") && find_field(root, "config").has_value();
}

/// Every line of a tiktoken file is base64, a space and a number.
bool looks_like_tiktoken(std::string_view file) {
  const std::string_view line = file.substr(0, file.find('\n'));
  const size_t space = line.find(' ');
  return space != line.npos && space > 0 &&
         line.find_first_not_of("0123456789\r", space + 1) == line.npos;
}

Result<std::unique_ptr<const Pipeline>> load_any(std::string_view file,
                                                 const Tokenizer::TokenDeclarations& beside,
                                                 Tables tables) {
  if (file.starts_with(kGgufMagic)) {
    return load_gguf(file, tables);
  }
  const size_t first = file.find_first_not_of(" \t\r\n");
  const bool is_json = first != file.npos && file[first] == '{';
  if (!is_json && !looks_like_tiktoken(file)) {
    return load_sentencepiece(file);
  }
  simdjson::dom::parser parser;  // once: 10 to 20 ms for a large vocabulary
  std::optional<Json> root;
  if (is_json) {
    STATOR_CHECK(check_size(file));
    STATOR_TRY(root, parse_json(parser, file, "tokenizer.json"));
    if (is_tekken(*root)) {
      return load_tekken(file, tables);
    }
  }
  STATOR_TRY(const auto declared, parse_token_declarations(beside.tokenizer_config_json,
                                                           beside.special_tokens_map_json));
  return root ? load_pipeline(*root, file, declared, tables)
              : load_tiktoken(file, beside.config_json, declared, tables);
}

/// The start of a GGUF file up to the end of its metadata, or all of another file.
Result<std::string> read_vocabulary(const fs::path& path) {
  auto start = io::read_start(path, kFirstReadBytes);
  if (!start && start.error().code() == Code::kNotFound) {
    return std::string();
  }
  if (!start || start->size() < kFirstReadBytes) {
    return start;
  }
  return start->starts_with(kGgufMagic) ? io::read_start(path, kMaxTokenizerJsonBytes)
                                        : read_if_present(path);
}

/// What Tokenizer::load says.
Result<std::unique_ptr<const Pipeline>> load_path(const std::string& path, Tables tables) {
  std::error_code ignored;
  const bool is_folder = fs::is_directory(path, ignored);
  const fs::path file = is_folder ? choose_file(path) : fs::path(path);
  STATOR_TRY(const std::string vocabulary, read_vocabulary(file));
  if (vocabulary.empty()) {
    return Error(Code::kNotFound,
                 is_folder ? fmt::format("{} has no tokenizer.json (nor tekken.json, *.tiktoken, "
                                         "tiktoken.model, *.gguf, tokenizer.model)",
                                         path)
                           : fmt::format("there is no tokenizer file {}, or it is empty", path));
  }
  // A tokenizer.json that is named itself stands for itself; other formats need what lies beside.
  const bool alone = !is_folder && file.extension() == ".json";
  const fs::path folder = file.parent_path();
  std::string beside[3];
  constexpr std::string_view kBeside[] = {"tokenizer_config.json", "special_tokens_map.json",
                                          "config.json"};
  for (size_t i = 0; i < std::size(beside) && !alone; ++i) {
    STATOR_TRY(beside[i], read_if_present(folder / kBeside[i]));
  }
  STATOR_TRY(auto pipeline, load_any(vocabulary, {beside[0], beside[1], beside[2]}, tables),
             fmt::format("loading the tokenizer in {}", file.string()));
  return pipeline;
}

VocabularyFacts facts_of(const Pipeline& pipeline) {
  // Byte-level vocabularies start with the 256 single bytes, which are no text by themselves.
  constexpr TokenId kSingleBytes = 256;
  const TokenTable& tokens = pipeline.tokens.middle();
  const TokenId end = tokens.size();
  VocabularyFacts facts{.vocab_size = end,
                        .fingerprint = pipeline.fingerprint,
                        .first_printable = 0,
                        .last_printable = std::max(end, 1U) - 1};
  TokenId longest = 0;
  TokenId begin = std::min(kSingleBytes, end - 1);
  for (TokenId id = begin; id <= end; ++id) {
    if (id == end || tokens.is_special(id) || tokens.bytes(id).empty()) {
      if (id - begin > longest) {
        longest = id - begin;
        facts.first_printable = begin;
        facts.last_printable = id - 1;
      }
      begin = id + 1;
    }
  }
  return facts;
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> Tokenizer::from_bytes(std::string_view file,
                                                         const TokenDeclarations& declarations) {
  STATOR_TRY(auto pipeline, load_any(file, declarations, Tables::kAll));
  return std::unique_ptr<Tokenizer>(
      new Tokenizer(std::move(pipeline)));  // NOLINT: private constructor
}

Result<std::unique_ptr<Tokenizer>> Tokenizer::load(const std::string& path) {
  STATOR_TRY(auto pipeline, load_path(path, Tables::kAll));
  return std::unique_ptr<Tokenizer>(
      new Tokenizer(std::move(pipeline)));  // NOLINT: private constructor
}

VocabularyFacts facts_of(const Tokenizer& tokenizer) {
  return facts_of(tokenizer.pipeline());
}

Result<VocabularyFacts> load_vocabulary_facts(const std::string& path) {
  STATOR_TRY(const auto pipeline, load_path(path, Tables::kDecoding));
  return facts_of(*pipeline);
}

}  // namespace stator::tokenizer
