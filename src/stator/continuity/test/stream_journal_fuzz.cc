// SPDX-License-Identifier: Apache-2.0
// Any parts that another frontend may hand out as a stream's journal: reading never crashes, and
// what it accepts is accepted again. Each part follows a byte with its length.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "stator/continuity/stream_journal.h"
#include "stator/core/assert.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace stator::continuity;
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  std::vector<std::string> parts;
  while (!rest.empty()) {
    const size_t bytes = std::min<size_t>(static_cast<uint8_t>(rest.front()), rest.size() - 1);
    parts.emplace_back(rest.substr(1, bytes));
    rest.remove_prefix(1 + bytes);
  }
  const auto journal = decode_journal(parts);
  if (journal.has_value()) {
    std::vector<std::string> again = {encode(journal->header)};
    for (const auto& step : journal->steps) {
      again.push_back(encode(step));
    }
    STATOR_ASSERT(decode_journal(again).has_value(), "what was accepted is accepted again");
  }
  return 0;
}
