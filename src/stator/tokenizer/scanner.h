// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace stator::tokenizer {

/// Hand-written equivalents of the split expressions of published models. All are linear in the
/// text and several times as fast as a regular-expression engine.
enum class ScannerFamily : uint8_t {
  kGpt2,           ///< GPT-2, RoBERTa, the default of the ByteLevel pre-tokenizer
  kCl100k,         ///< GPT-4, Llama 3, GLM-4, Phi-4: up to three digits together
  kQwen2,          ///< Qwen 2, 2.5, 3: single digits
  kQwen35,         ///< Qwen 3.5: marks count as letters
  kO200k,          ///< GPT-4o, gpt-oss, Llama 4: words split at a change from lower to upper case
  kTekken,         ///< Mistral since Nemo: o200k without contractions, single digits
  kKimiK2,         ///< o200k with Chinese characters apart
  kStarcoder,      ///< StarCoder, Command R, SmolLM: single digits cut out, the rest as GPT-2
  kDeepseek3,      ///< DeepSeek V3, R1: digits by threes and Chinese and Japanese cut out first
  kDeepseekCoder,  ///< DeepSeek Coder: five expressions one after the other
  kSeedCoder,      ///< qwen2 whose line breaks do not go with the symbols before them
  kFalcon,         ///< Falcon: runs of signs cut out first, digits by threes last
  kSigns,          ///< llama.cpp's default: Falcon's with all numbers apart
  kFalconBytes,    ///< Falcon's tokenizer.json: pieces may end within a character
  kDeepseekLlm,    ///< DeepSeek LLM, V2: six expressions one after the other
  kDeepseekLlmNumbers,  ///< the same with numbers whole, as GGUF files have it
  kBloom,               ///< BLOOM: whatever has no pause in it
  kViking,              ///< BLOOM's and then single digits
  kExaoneMoe,           ///< EXAONE MoE: words with single spaces between them together
};

/// What a scanner stands for.
struct KnownSplit {
  ScannerFamily family;
  size_t expressions;  ///< one after the other, each isolates its matches in what the last left
};

/// The longest sequence at the front of `expressions` that a scanner is written for, by what they
/// match and not by how they are spelled (detail/regex_form.h). A single expression that has a
/// scanner matches every text without gaps, but for BLOOM's.
std::optional<KnownSplit> find_scanner(std::span<const std::string_view> expressions);

/// What the scanner of `family` stands for, as published; nothing if that is more than expressions.
std::span<const std::string_view> expressions_of(ScannerFamily family);

/// Whether both expressions surely match the same in every text.
bool match_alike(std::string_view one, std::string_view other);

/// All that have scanners, for tests: sequences of expressions.
std::span<const std::span<const std::string_view>> known_sequences();

/// End of the piece that starts at `at` < text.size(). Valid UTF-8; `at` is where a piece starts.
size_t scan_piece(ScannerFamily family, std::string_view text, size_t at);

}  // namespace stator::tokenizer
