// SPDX-License-Identifier: Apache-2.0
#include "stator/tokenizer/test/vocabulary_files.h"

#include "stator/tokenizer/byte_alphabet.h"

#include <fmt/format.h>

#include <cstring>

namespace stator::tokenizer::test {
namespace {

template <typename T>
void append_raw(std::string& out, T value) {
  char bytes[sizeof(T)];
  std::memcpy(bytes, &value, sizeof(T));
  out.append(bytes, sizeof(T));
}

void append_varint(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) {
    out.push_back(static_cast<char>(value | 0x80));
  }
  out.push_back(static_cast<char>(value));
}

void append_number(std::string& out, uint32_t field, uint64_t value) {
  append_varint(out, field << 3);
  append_varint(out, value);
}

void append_bytes(std::string& out, uint32_t field, std::string_view bytes) {
  append_varint(out, field << 3 | 2);
  append_varint(out, bytes.size());
  out.append(bytes);
}

}  // namespace

std::string to_base64(std::string_view bytes) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (size_t at = 0; at < bytes.size(); at += 3) {
    uint32_t bits = 0;
    for (size_t i = 0; i < 3; ++i) {
      bits = bits << 8 | (at + i < bytes.size() ? static_cast<unsigned char>(bytes[at + i]) : 0U);
    }
    for (size_t i = 0; i < 4; ++i) {
      out.push_back(at + i <= bytes.size() ? kDigits[bits >> (18 - 6 * i) & 63] : '=');
    }
  }
  return out;
}

std::string tiktoken_file(const std::vector<std::string>& tokens) {
  std::string file;
  for (int byte = 0; byte < 256; ++byte) {
    file += fmt::format("{} {}\n", to_base64(std::string(1, static_cast<char>(byte))), byte);
  }
  for (size_t i = 0; i < tokens.size(); ++i) {
    file += fmt::format("{} {}\n", to_base64(tokens[i]), 256 + i);
  }
  return file;
}

void GgufWriter::add_string(std::string_view value) {
  append_raw(pairs_, static_cast<uint64_t>(value.size()));
  pairs_.append(value);
}

void GgufWriter::add_key(std::string_view key, uint32_t type) {
  add_string(key);
  append_raw(pairs_, type);
  ++count_;
}

GgufWriter& GgufWriter::text(std::string_view key, std::string_view value) {
  add_key(key, 8);
  add_string(value);
  return *this;
}

GgufWriter& GgufWriter::number(std::string_view key, uint32_t value) {
  add_key(key, 4);
  append_raw(pairs_, value);
  return *this;
}

GgufWriter& GgufWriter::flag(std::string_view key, bool value) {
  add_key(key, 7);
  append_raw(pairs_, static_cast<uint8_t>(value));
  return *this;
}

GgufWriter& GgufWriter::texts(std::string_view key, const std::vector<std::string>& values) {
  add_key(key, 9);
  append_raw(pairs_, uint32_t{8});
  append_raw(pairs_, static_cast<uint64_t>(values.size()));
  for (const std::string& value : values) {
    add_string(value);
  }
  return *this;
}

GgufWriter& GgufWriter::floats(std::string_view key, const std::vector<float>& values) {
  add_key(key, 9);
  append_raw(pairs_, uint32_t{6});
  append_raw(pairs_, static_cast<uint64_t>(values.size()));
  for (const float value : values) {
    append_raw(pairs_, value);
  }
  return *this;
}

GgufWriter& GgufWriter::ints(std::string_view key, const std::vector<int32_t>& values) {
  add_key(key, 9);
  append_raw(pairs_, uint32_t{5});
  append_raw(pairs_, static_cast<uint64_t>(values.size()));
  for (const int32_t value : values) {
    append_raw(pairs_, value);
  }
  return *this;
}

std::string GgufWriter::bytes(uint32_t version) const {
  std::string file = "GGUF";
  append_raw(file, version);
  append_raw(file, uint64_t{0});
  append_raw(file, count_);
  return file + pairs_;
}

std::vector<std::string> byte_alphabet_tokens() {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) {
    tokens.emplace_back(ByteAlphabet::get().character(static_cast<unsigned char>(byte)));
  }
  return tokens;
}

std::string SentencePieceFile::bytes() const {
  std::string file;
  for (const Piece& piece : pieces) {
    std::string message;
    append_bytes(message, 1, piece.text);
    message.push_back(2 << 3 | 5);
    append_raw(message, piece.score);
    append_number(message, 3, static_cast<uint64_t>(piece.type));
    append_bytes(file, 1, message);
  }
  std::string trainer;
  append_number(trainer, 3, static_cast<uint64_t>(model_type));
  append_bytes(file, 2, trainer);
  std::string normalizer;
  append_number(normalizer, 3, adds_prefix ? 1 : 0);
  append_number(normalizer, 4, collapses_spaces ? 1 : 0);
  append_bytes(file, 3, normalizer);
  return file;
}

}  // namespace stator::tokenizer::test
