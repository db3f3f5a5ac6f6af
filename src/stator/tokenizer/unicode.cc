// SPDX-License-Identifier: Apache-2.0
#include "stator/tokenizer/unicode.h"

#include "stator/core/assert.h"

#include <simdjson.h>

#include <algorithm>
#include <map>

namespace stator::tokenizer {
namespace {

struct Run {
  uint32_t length;
  uint32_t flags;
};

constexpr Run kRuns[] = {
#include "stator/tokenizer/unicode_data.inc"  // NOLINT(bugprone-suspicious-include): generated table
};

}  // namespace

const UnicodeTable& UnicodeTable::get() {
  static const UnicodeTable table;
  return table;
}

UnicodeTable::UnicodeTable() {
  std::map<Page, uint16_t> known;
  const auto index_of = [&](const Page& page) {
    const auto [entry, is_new] = known.try_emplace(page, static_cast<uint16_t>(pages_.size()));
    if (is_new) {
      pages_.push_back(page);
    }
    return entry->second;
  };
  Page page{};
  uint32_t at = 0;
  for (const Run& run : kRuns) {
    const uint32_t end = at + run.length;
    while (at < end) {
      const uint32_t offset = at % kPageCodePoints;
      const uint32_t count = std::min(end - at, kPageCodePoints - offset);
      std::fill_n(page.begin() + offset, count, run.flags);
      at += count;
      if (offset + count < kPageCodePoints) {
        break;
      }
      // The page is full, and so are, with the same, those within the rest of the run.
      const uint32_t pages = count == kPageCodePoints ? 1 + (end - at) / kPageCodePoints : 1;
      std::fill_n(page_of_.begin() + (at - 1) / kPageCodePoints, pages, index_of(page));
      at += (pages - 1) * kPageCodePoints;
    }
  }
  STATOR_ASSERT(at == 0x110000, "the generated table covers all code points");
  for (const char32_t newline : {U'\r', U'\n'}) {
    pages_[page_of_[0]][newline] |= kNewline;  // no other page is like the first
  }
  for (uint32_t byte = 0; byte < 128; ++byte) {
    ascii_[byte] = flags(byte);
  }
}

void append_utf8(char32_t code_point, std::string& out) {
  const auto tail = [&](int shift) {
    return static_cast<char>(0x80 | ((code_point >> shift) & 0x3F));
  };
  if (code_point < 0x80) {
    out.push_back(static_cast<char>(code_point));
  } else if (code_point < 0x800) {
    out.append({static_cast<char>(0xC0 | (code_point >> 6)), tail(0)});
  } else if (code_point < 0x10000) {
    out.append({static_cast<char>(0xE0 | (code_point >> 12)), tail(6), tail(0)});
  } else {
    out.append({static_cast<char>(0xF0 | (code_point >> 18)), tail(12), tail(6), tail(0)});
  }
}

bool is_valid_utf8(std::string_view text) {
  return simdjson::validate_utf8(text.data(), text.size());
}

Utf8Prefix classify_utf8(std::string_view bytes) {
  using Kind = Utf8Prefix::Kind;
  const auto lead = static_cast<unsigned char>(bytes[0]);
  if (lead < 0x80) {
    return {Kind::kCharacter, 1};
  }
  if (lead < 0xC2 || lead > 0xF4) {
    return {Kind::kInvalid, 1};
  }
  const uint32_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  // The second byte's range excludes overlong forms, surrogates and values beyond U+10FFFF.
  unsigned char low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  unsigned char high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  for (uint32_t i = 1; i < length; ++i) {
    if (i == bytes.size()) {
      return {Kind::kIncomplete, i};
    }
    const auto byte = static_cast<unsigned char>(bytes[i]);
    if (byte < low || byte > high) {
      return {Kind::kInvalid, i};
    }
    low = 0x80;
    high = 0xBF;
  }
  return {Kind::kCharacter, length};
}

void append_lossy(std::string_view bytes, std::string& out) {
  if (is_valid_utf8(bytes)) {
    out.append(bytes);
    return;
  }
  while (!bytes.empty()) {
    const Utf8Prefix prefix = classify_utf8(bytes);
    const bool whole = prefix.kind == Utf8Prefix::Kind::kCharacter;
    out.append(whole ? bytes.substr(0, prefix.bytes) : kReplacementCharacter);
    bytes.remove_prefix(prefix.bytes);
  }
}

}  // namespace stator::tokenizer
