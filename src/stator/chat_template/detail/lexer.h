// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "stator/chat_template/arena.h"

namespace stator::chat_template::detail {

enum class TokenType : uint8_t {
  kData,
  kVariableBegin,
  kVariableEnd,
  kBlockBegin,
  kBlockEnd,
  kName,
  kString,  ///< unescaped
  kInteger,
  kFloat,
  kOperator,
  kEnd,
};

struct Token {
  TokenType type;
  uint32_t line;
  std::string_view text;  ///< into the template or the arena

  bool is(TokenType wanted, std::string_view wanted_text) const {
    return type == wanted && text == wanted_text;
  }
};

/// Line ends to "\n" and without one final line end, as Jinja reads a template.
std::string normalize_source(std::string_view source);

/// All tokens of a normalised `source`, kEnd last, with trim_blocks and lstrip_blocks applied.
/// Tokens alias `source` and `arena`. Throws Failure "chat template line N: …".
std::vector<Token> tokenize(std::string_view source, Arena& arena);

[[noreturn]] void fail_at(uint32_t line, std::string_view message);

}  // namespace stator::chat_template::detail
