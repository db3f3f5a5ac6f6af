// SPDX-License-Identifier: Apache-2.0
#include "stator/parsers/detail/message_header.h"

#include <algorithm>

#include "stator/parsers/detail/window.h"

namespace stator::parsers {
namespace {

constexpr std::string_view kTo = "to=";

constexpr bool is_name_byte(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '.' || c == '-';
}

}  // namespace

void read_header(std::string_view text, MessageHeader::Part part, MessageHeader& header) {
  bool recipient_next = false;
  bool first_word = true;
  for (text = trim(text); !text.empty(); text = trim(text)) {
    const size_t length = std::min(text.find_first_of(" \t\r\n"), text.size());
    std::string_view word = text.substr(0, length);
    text.remove_prefix(length);
    const size_t to = word.find(kTo);
    if (recipient_next) {
      header.recipient = word;
      recipient_next = false;
      continue;
    }
    if (to != std::string_view::npos) {
      header.recipient = word.substr(to + kTo.size());
      recipient_next = header.recipient.empty();
      word = word.substr(0, to);
    }
    if (first_word && !word.empty() && part != MessageHeader::Part::kRest) {
      (part == MessageHeader::Part::kRole ? header.role : header.channel) = word;
    }
    first_word = false;
  }
}

std::string_view find_forgotten_message(std::string_view text, MessageHeader::Part part) {
  constexpr std::string_view kJson = "json";
  constexpr std::string_view kMarker = "<|";
  text = trim(text);
  if (part != MessageHeader::Part::kRest) {
    text.remove_prefix(std::min(text.find_first_of(" \t\r\n"), text.size()));
    text = trim(text);
  }
  const std::string_view typed = text.starts_with(kJson) ? trim(text.substr(kJson.size())) : text;
  if (typed.starts_with('{')) {
    return typed;
  }
  const bool is_word = std::ranges::all_of(text, [](char c) { return c >= 'a' && c <= 'z'; });
  const bool is_cut = text.substr(0, kMarker.size()) == kMarker.substr(0, text.size());
  const bool is_header = part == MessageHeader::Part::kRest || is_word || text.starts_with(kTo);
  return is_header || is_cut ? std::string_view() : text;
}

size_t find_trailing_recipient(std::string_view text, size_t max_bytes) {
  const std::string_view tail = text.substr(text.size() - std::min(text.size(), max_bytes));
  size_t name = tail.size();
  while (name > 0 && is_name_byte(tail[name - 1])) {
    --name;
  }
  if (tail.substr(0, name).ends_with(kTo)) {
    return text.size() - tail.size() + name - kTo.size();
  }
  for (size_t length = std::min(kTo.size(), tail.size()); length > 0; --length) {
    if (tail.ends_with(kTo.substr(0, length))) {
      return text.size() - length;
    }
  }
  return text.size();
}

}  // namespace stator::parsers
