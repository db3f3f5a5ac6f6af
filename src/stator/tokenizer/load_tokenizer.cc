// SPDX-License-Identifier: Apache-2.0
#include "stator/tokenizer/tokenizer.h"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>

namespace stator::tokenizer {
namespace {

namespace fs = std::filesystem;

/// Empty text if there is no such file.
Result<std::string> read_if_present(const fs::path& path) {
  std::error_code ignored;
  const auto bytes = fs::file_size(path, ignored);
  if (ignored) {
    return std::string();
  }
  if (bytes > kMaxTokenizerJsonBytes) {
    return Error(Code::kTooLarge, fmt::format("{} has {} bytes; at most {} are accepted",
                                              path.string(), bytes, kMaxTokenizerJsonBytes));
  }
  std::string text(bytes, '\0');
  std::ifstream file(path, std::ios::binary);
  if (!file.read(text.data(), static_cast<std::streamsize>(bytes))) {
    return Error(Code::kIo, fmt::format("cannot read {}", path.string()));
  }
  return text;
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> Tokenizer::load(const std::string& model_dir) {
  const fs::path folder(model_dir);
  STATOR_TRY(const std::string json, read_if_present(folder / "tokenizer.json"));
  if (json.empty()) {
    return Error(Code::kNotFound, fmt::format("{} has no tokenizer.json", model_dir));
  }
  STATOR_TRY(const std::string config, read_if_present(folder / "tokenizer_config.json"));
  STATOR_TRY(const std::string specials, read_if_present(folder / "special_tokens_map.json"));
  const auto context = fmt::format("loading the tokenizer in {}", model_dir);
  auto tokenizer = from_json(json, {config, specials});
  if (!tokenizer.has_value()) {
    return std::move(tokenizer.error()).with_context(context);
  }
  return tokenizer;
}

}  // namespace stator::tokenizer
