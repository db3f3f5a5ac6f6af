// SPDX-License-Identifier: Apache-2.0
#include "stator/tokenizer/gguf_chat.h"

#include <fmt/format.h>

#include <algorithm>

#include "stator/gguf/metadata.h"
#include "stator/io/read_file.h"
#include "stator/tokenizer/tokenizer.h"

namespace stator::tokenizer {
namespace {

namespace fs = std::filesystem;

// Metadata is a few megabytes; when it is not, the rest of what is accepted is read, too.
constexpr size_t kFirstReadBytes = size_t{16} << 20;

struct NamedToken {
  std::string_view key;
  std::string_view name;  // in templates; empty: not there
  bool ends = false;      // the model stops behind it
};
constexpr NamedToken kNamedTokens[] = {
    {.key = "tokenizer.ggml.bos_token_id", .name = "bos_token"},
    {.key = "tokenizer.ggml.eos_token_id", .name = "eos_token", .ends = true},
    {.key = "tokenizer.ggml.eot_token_id", .name = "", .ends = true},
    {.key = "tokenizer.ggml.unknown_token_id", .name = "unk_token"},
    {.key = "tokenizer.ggml.padding_token_id", .name = "pad_token"},
};

/// The first GGUF file of a folder by name; empty if there is none.
fs::path choose_file(const fs::path& folder) {
  fs::path first;
  std::error_code ignored;
  for (fs::directory_iterator at(folder, ignored), end; !ignored && at != end;
       at.increment(ignored)) {
    if (at->path().extension() == ".gguf" && (first.empty() || at->path() < first)) {
      first = at->path();
    }
  }
  return first;
}

}  // namespace

Result<GgufChat> read_gguf_chat(std::string_view file) {
  STATOR_TRY(const gguf::Metadata metadata, gguf::Metadata::parse(file));
  GgufChat chat;
  STATOR_TRY(const auto text, metadata.find_string("tokenizer.chat_template"));
  STATOR_TRY(const auto tool_use, metadata.find_string("tokenizer.chat_template.tool_use"));
  chat.chat_template = text.value_or("");
  chat.tool_use = tool_use;
  STATOR_TRY(const auto architecture, metadata.find_string("general.architecture"));
  STATOR_TRY(const auto context,
             metadata.find_unsigned(std::string(architecture.value_or("")) + ".context_length"));
  chat.context_length = static_cast<uint32_t>(std::min<uint64_t>(context.value_or(0), UINT32_MAX));
  STATOR_TRY(const auto tokens, metadata.find_strings("tokenizer.ggml.tokens"));
  for (const NamedToken& named : kNamedTokens) {
    STATOR_TRY(const auto id, metadata.find_unsigned(named.key));
    if (!id || *id >= tokens.size()) {
      continue;
    }
    if (!named.name.empty()) {
      chat.special_tokens.emplace_back(named.name, tokens[*id]);
    }
    const auto token = static_cast<TokenId>(*id);
    if (named.ends && std::ranges::find(chat.eos_token_ids, token) == chat.eos_token_ids.end()) {
      chat.eos_token_ids.push_back(token);
    }
  }
  return chat;
}

Result<std::optional<GgufChat>> load_gguf_chat(const fs::path& path) {
  std::error_code ignored;
  const fs::path file = fs::is_directory(path, ignored) ? choose_file(path) : path;
  if (file.empty()) {
    return std::optional<GgufChat>();
  }
  STATOR_TRY(std::string start, io::read_start(file, kFirstReadBytes));
  auto chat = read_gguf_chat(start);
  if (!chat && chat.error().code() == Code::kTooLarge && start.size() == kFirstReadBytes) {
    STATOR_TRY(start, io::read_start(file, kMaxTokenizerJsonBytes));
    chat = read_gguf_chat(start);
  }
  if (!chat) {
    return std::move(chat.error()).with_context("reading " + file.string());
  }
  return std::optional(std::move(*chat));
}

}  // namespace stator::tokenizer
