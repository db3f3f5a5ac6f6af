// SPDX-License-Identifier: Apache-2.0
#include "stator/tokenizer/decoder.h"

#include "stator/tokenizer/byte_alphabet.h"

#include <algorithm>
#include <charconv>

namespace stator::tokenizer {
namespace {

std::optional<char> fallback_byte(std::string_view text) {
  if (text.size() != 6 || !text.starts_with("<0x") || text.back() != '>') {
    return std::nullopt;
  }
  unsigned value = 0;
  const char* end = text.data() + 5;
  const auto [stop, error] = std::from_chars(text.data() + 3, end, value, 16);
  return error == std::errc() && stop == end ? std::optional(static_cast<char>(value))
                                             : std::nullopt;
}

std::string replace_all(std::string_view text, const Decoder::Replace& step) {
  std::string out;
  for (size_t at = text.find(step.pattern); at != std::string_view::npos;
       at = text.find(step.pattern)) {
    out.append(text.substr(0, at)).append(step.content);
    text.remove_prefix(at + step.pattern.size());
  }
  return out.append(text);
}

}  // namespace

std::string decode_token(const Decoder& decoder, std::string_view token_text) {
  std::string text(token_text);
  for (const Decoder::Step& step : decoder.steps) {
    if (const auto* replace = std::get_if<Decoder::Replace>(&step)) {
      text = replace_all(text, *replace);
    } else if (std::holds_alternative<Decoder::ByteFallback>(step)) {
      if (const auto byte = fallback_byte(text)) {
        return {*byte};
      }
    } else if (auto bytes = ByteAlphabet::get().unmap(text)) {
      return *std::move(bytes);
    }
  }
  return text;
}

TokenTable::TokenTable(const std::vector<Entry>& entries) {
  TokenId largest = 0;
  for (const Entry& entry : entries) {
    largest = std::max(largest, entry.id);
  }
  const size_t size = entries.empty() ? 0 : size_t{largest} + 1;
  std::vector<const Entry*> by_id(size, nullptr);
  for (const Entry& entry : entries) {
    by_id[entry.id] = &entry;
  }
  flags_.resize(size);
  offsets_.resize(size + 1);
  for (size_t id = 0; id < size; ++id) {
    if (const Entry* entry = by_id[id]) {
      bytes_ += entry->bytes;
      flags_[id] = static_cast<uint8_t>(kKnown | (entry->special ? kSpecial : 0));
    }
    offsets_[id + 1] = static_cast<uint32_t>(bytes_.size());
  }
}

}  // namespace stator::tokenizer
