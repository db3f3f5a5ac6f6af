// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace stator::tokenizer::test {

std::string to_base64(std::string_view bytes);

/// "<base64> <rank>" lines: all single bytes (the rank is the byte), then `tokens`.
std::string tiktoken_file(const std::vector<std::string>& tokens);

/// Writes the start of a GGUF file. Little-endian machines only, as the reader.
class GgufWriter {
 public:
  GgufWriter& text(std::string_view key, std::string_view value);
  GgufWriter& number(std::string_view key, uint32_t value);
  GgufWriter& flag(std::string_view key, bool value);
  GgufWriter& texts(std::string_view key, const std::vector<std::string>& values);
  GgufWriter& floats(std::string_view key, const std::vector<float>& values);
  GgufWriter& ints(std::string_view key, const std::vector<int32_t>& values);
  std::string bytes(uint32_t version = 3) const;

 private:
  void add_key(std::string_view key, uint32_t type);
  void add_string(std::string_view value);
  std::string pairs_;
  uint64_t count_ = 0;
};

/// The 256 characters of the byte alphabet, by byte: a byte-level vocabulary in the smallest.
std::vector<std::string> byte_alphabet_tokens();

/// A SentencePiece model file.
struct SentencePieceFile {
  struct Piece {
    std::string text;
    float score;
    int type = 1;
  };
  std::vector<Piece> pieces;
  int model_type = 1;  ///< 1 unigram, 2 BPE
  bool adds_prefix = true;
  bool collapses_spaces = true;
  std::string bytes() const;
};

}  // namespace stator::tokenizer::test
