// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace stator::tokenizer {

/// Hand-written equivalents of the split expressions of published models, which match every text
/// without gaps. All are linear in the text and several times as fast as a regular-expression
/// engine.
enum class ScannerFamily : uint8_t {
  kGpt2,    ///< GPT-2, RoBERTa, the default of the ByteLevel pre-tokenizer
  kCl100k,  ///< GPT-4, Llama 3, GLM-4, Phi-4: up to three digits together
  kQwen2,   ///< Qwen 2, 2.5, 3: single digits
  kQwen35,  ///< Qwen 3.5: marks count as letters
  kO200k,   ///< GPT-4o, gpt-oss, Llama 4: words split at a change from lower to upper case
  kTekken,  ///< Mistral since Nemo: o200k without contractions, single digits
  kKimiK2,  ///< o200k with Chinese characters apart
};

/// The family whose expression is literally `pattern`, if any.
std::optional<ScannerFamily> find_scanner(std::string_view pattern);

/// End of the piece that starts at `at` < text.size(). Valid UTF-8; `at` is where a piece starts.
size_t scan_piece(ScannerFamily family, std::string_view text, size_t at);

}  // namespace stator::tokenizer
