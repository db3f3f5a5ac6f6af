// SPDX-License-Identifier: Apache-2.0
#include "sse_counter.h"

#include <array>

namespace stator::bench {
namespace {

constexpr size_t kLineBytesMax = 1 << 20;

/// `"content": "x…`: the name, a colon, and a string that does not end at once. Quotes inside JSON
/// strings are escaped, so generated text cannot look like a field.
bool has_text(std::string_view line, std::string_view name_and_colon) {
  for (size_t at = line.find(name_and_colon); at != std::string_view::npos;
       at = line.find(name_and_colon, at + 1)) {
    size_t value = at + name_and_colon.size();
    while (value < line.size() && line[value] == ' ') {
      ++value;
    }
    if (value + 1 < line.size() && line[value] == '"' && line[value + 1] != '"') {
      return true;
    }
  }
  return false;
}

bool carries_text(std::string_view line) {
  constexpr std::array<std::string_view, 3> kFields = {R"("content":)", R"("text":)",
                                                       R"("reasoning_content":)"};
  for (const std::string_view field : kFields) {
    if (has_text(line, field)) {
      return true;
    }
  }
  return false;
}

}  // namespace

void SseCounter::reset() {
  counts_ = {};
  partial_line_.clear();
}

void SseCounter::feed(std::string_view bytes) {
  while (!bytes.empty()) {
    const size_t end = bytes.find('\n');
    if (end == std::string_view::npos) {
      partial_line_ += bytes;
      if (partial_line_.size() > kLineBytesMax) {
        counts_.error = true;
        partial_line_.clear();
      }
      return;
    }
    if (partial_line_.empty()) {
      take_line(bytes.substr(0, end));
    } else {
      partial_line_ += bytes.substr(0, end);
      take_line(partial_line_);
      partial_line_.clear();
    }
    bytes.remove_prefix(end + 1);
  }
}

void SseCounter::take_line(std::string_view line) {
  if (line.starts_with("event:")) {
    counts_.error |= line.find("error") != std::string_view::npos;
    return;
  }
  if (!line.starts_with("data:")) {
    return;
  }
  ++counts_.events;
  if (line.find("[DONE]") != std::string_view::npos && line.size() < 16) {
    counts_.done = true;
  } else if (carries_text(line)) {
    ++counts_.content_events;
  } else if (line.find(R"("choices")") == std::string_view::npos) {
    counts_.error |= line.find(R"("error")") != std::string_view::npos;
  }
}

}  // namespace stator::bench
