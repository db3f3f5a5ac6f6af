// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace stator::tokenizer {

/// What is made of a vocabulary file: everything, or only what names and decodes tokens. The tables
/// that BPE encodes with are nine tenths of the work and of the memory; without them the model is
/// one that finds tokens by their spelling (WordLevelModel), and nothing can be encoded.
enum class Tables : uint8_t { kAll, kDecoding };

}  // namespace stator::tokenizer
