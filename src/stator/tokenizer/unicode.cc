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

}  // namespace stator::tokenizer
