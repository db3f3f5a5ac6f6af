// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace stator::tokenizer {

constexpr bool is_in(char32_t c, char32_t first, char32_t last) {
  return c >= first && c <= last;
}

/// `[一-龥ࠀ-一가-\x{d7ff}]`, which DeepSeek Coder and LLM set apart.
constexpr bool is_east_of_arabic(char32_t c) {
  return is_in(c, 0x800, 0x9FA5) || is_in(c, 0xAC00, 0xD7FF);
}

/// scan_piece of DeepSeek LLM. `numbers` is what it cuts out last: kDigit one by one, kNumber runs.
size_t scan_deepseek_llm(std::string_view text, size_t at, uint32_t numbers);

}  // namespace stator::tokenizer
