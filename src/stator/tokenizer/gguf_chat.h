// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "stator/core/ids.h"
#include "stator/core/result.h"

namespace stator::tokenizer {

/// What a GGUF file says about chats, which other models keep in tokenizer_config.json and
/// generation_config.json.
struct GgufChat {
  std::string chat_template;            ///< tokenizer.chat_template; empty: none
  std::optional<std::string> tool_use;  ///< tokenizer.chat_template.tool_use
  std::vector<std::pair<std::string, std::string>> special_tokens;  ///< "bos_token" → its text
  std::vector<TokenId> eos_token_ids;                               ///< end of sequence and of turn
  uint32_t context_length = 0;  ///< the architecture's; 0: unknown
};

/// From the bytes a GGUF file begins with. Errors: kCorrupt; kTooLarge, if the metadata goes on
/// behind them.
Result<GgufChat> read_gguf_chat(std::string_view file);

/// From a GGUF file, or from the first one of a folder by name; nothing if there is none. Blocking.
Result<std::optional<GgufChat>> load_gguf_chat(const std::filesystem::path& path);

}  // namespace stator::tokenizer
