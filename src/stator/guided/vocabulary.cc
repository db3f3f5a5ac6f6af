// SPDX-License-Identifier: Apache-2.0
#include "stator/guided/vocabulary.h"

#include <algorithm>
#include <array>
#include <bit>

#include "stator/text/utf8.h"

namespace stator::guided {
namespace {

/// Characters of a plain token; 0 for others.
uint32_t plain_length(std::string_view bytes) {
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == '"' || byte == '\\' || byte == 0x7F) {
      return 0;
    }
  }
  if (!text::is_valid_utf8(bytes)) {
    return 0;
  }
  return static_cast<uint32_t>(std::ranges::count_if(
      bytes, [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; }));
}

}  // namespace

size_t TokenSet::count() const {
  size_t out = 0;
  for (const uint64_t word : words_) {
    out += static_cast<size_t>(std::popcount(word));
  }
  return out;
}

bool TokenSet::none() const {
  return std::ranges::all_of(words_, [](uint64_t word) { return word == 0; });
}

uint32_t byte_group(uint8_t byte) {
  static constexpr auto kGroups = [] {
    std::array<uint8_t, 256> groups{};
    uint8_t next = 0;
    const auto range = [&](unsigned first, unsigned last) {
      for (unsigned b = first; b <= last; ++b) {
        groups[b] = next;
      }
      ++next;
    };
    range(0x00, 0x1F);
    for (unsigned b = 0x20; b < 0x7F; ++b) {  // signs have groups of their own
      const bool letter_or_digit =
          (b >= '0' && b <= '9') || (b >= 'A' && b <= 'Z') || (b >= 'a' && b <= 'z');
      if (!letter_or_digit) {
        range(b, b);
      }
    }
    for (const auto& [first, last] :
         {std::pair{'0', '0'}, {'1', '9'}, {'A', 'F'}, {'G', 'Z'}, {'a', 'f'}, {'g', 'z'}}) {
      range(static_cast<unsigned>(first), static_cast<unsigned>(last));
    }
    for (const auto& [first, last] : {std::pair{0x7F, 0x7F},
                                      {0x80, 0xBF},
                                      {0xC0, 0xC1},
                                      {0xC2, 0xDF},
                                      {0xE0, 0xEF},
                                      {0xF0, 0xFF}}) {
      range(static_cast<unsigned>(first), static_cast<unsigned>(last));
    }
    // A tab and a line feed stand in the first group with all control characters.
    return groups;
  }();
  return kGroups[byte];
}

TokenTrie::TokenTrie(std::vector<Entry> entries) {
  std::erase_if(entries, [](const Entry& entry) {
    return entry.bytes.empty() || entry.bytes.size() > UINT16_MAX - 1;
  });
  std::ranges::sort(entries, [](const Entry& a, const Entry& b) {
    return a.bytes != b.bytes ? a.bytes < b.bytes : a.token < b.token;
  });
  std::vector<uint32_t> path;  // nodes from the root to the last entry's end
  const auto close = [&](size_t depth) {
    while (path.size() > depth) {
      nodes_[path.back()].end = static_cast<uint32_t>(nodes_.size());
      path.pop_back();
    }
  };
  std::string_view last;
  for (const Entry& entry : entries) {
    const auto shared =
        static_cast<size_t>(std::ranges::mismatch(last, entry.bytes).in1 - last.begin());
    close(shared);
    for (size_t i = shared; i < entry.bytes.size(); ++i) {
      path.push_back(static_cast<uint32_t>(nodes_.size()));
      nodes_.push_back({.first_token = static_cast<uint32_t>(tokens_.size()),
                        .depth = static_cast<uint16_t>(i + 1),
                        .byte = static_cast<uint8_t>(entry.bytes[i])});
    }
    Node& node = nodes_[path.back()];
    if (node.token_count == UINT16_MAX) {
      continue;
    }
    node.first_token =
        node.token_count == 0 ? static_cast<uint32_t>(tokens_.size()) : node.first_token;
    ++node.token_count;
    tokens_.push_back(entry.token);
    depth_max_ = std::max(depth_max_, static_cast<uint16_t>(entry.bytes.size()));
    last = entry.bytes;
  }
  close(0);
  groups_below_.resize(nodes_.size());
  std::vector<uint32_t> parents;
  for (uint32_t i = 0; i < nodes_.size(); ++i) {
    while (!parents.empty() && nodes_[parents.back()].end <= i) {
      parents.pop_back();
    }
    for (const uint32_t parent : parents) {
      groups_below_[parent] |= uint64_t{1} << byte_group(nodes_[i].byte);
    }
    parents.push_back(i);
  }
}

Vocabulary::Vocabulary(uint32_t size, const std::function<Token(TokenId)>& token_at) {
  spans_.reserve(size);
  for (TokenId id = 0; id < size; ++id) {
    const Token token = token_at(id);
    if (token.special) {
      specials_.try_emplace(std::string(token.bytes), id);
    }
    const std::string_view bytes = token.special ? std::string_view() : token.bytes;
    spans_.emplace_back(static_cast<uint32_t>(text_.size()), static_cast<uint32_t>(bytes.size()));
    text_ += bytes;
  }
  std::vector<TokenTrie::Entry> entries;
  std::vector<TokenTrie::Entry> marked;
  std::vector<std::pair<uint32_t, TokenId>> plain;
  for (TokenId id = 0; id < size; ++id) {
    const std::string_view text = bytes(id);
    if (text.empty()) {
      continue;
    }
    entries.push_back({text, id});
    if (const uint32_t characters = plain_length(text); characters > 0) {
      plain.emplace_back(characters, id);
    } else {
      marked.push_back({text, id});
    }
  }
  all_.emplace(std::move(entries));
  marked_.emplace(std::move(marked));
  std::ranges::sort(plain);
  TokenSet so_far(size);
  size_t at = 0;
  for (uint32_t characters = 0; characters <= kCharactersMax; ++characters) {
    const bool last = characters == kCharactersMax;
    for (; at < plain.size() && (last || plain[at].first <= characters); ++at) {
      so_far.set(plain[at].second);
    }
    plain_.push_back(so_far);
    plain_ends_.push_back(static_cast<uint32_t>(at));
  }
  for (const auto& [characters, id] : plain) {
    plain_by_length_.push_back(id);
  }
}

std::optional<TokenId> Vocabulary::find_special(std::string_view text) const {
  const auto found = specials_.find(text);
  return found == specials_.end() ? std::nullopt : std::optional(found->second);
}

std::optional<TokenId> Vocabulary::find_token(std::string_view text) const {
  if (const auto special = find_special(text)) {
    return special;
  }
  const std::span<const TokenTrie::Node> nodes = all_->nodes();
  uint32_t index = 0;
  auto end = static_cast<uint32_t>(nodes.size());
  for (size_t i = 0; i < text.size(); ++i) {
    while (index < end && nodes[index].byte != static_cast<uint8_t>(text[i])) {
      index = nodes[index].end;
    }
    if (index >= end) {
      return std::nullopt;
    }
    if (i + 1 == text.size()) {
      const auto tokens = all_->tokens_at(nodes[index]);
      return tokens.empty() ? std::nullopt : std::optional(tokens.front());
    }
    end = nodes[index].end;
    ++index;
  }
  return std::nullopt;
}

const TokenSet& Vocabulary::plain_up_to(uint32_t characters) const {
  return plain_[std::min(characters, kCharactersMax)];
}

std::span<const TokenId> Vocabulary::plain_above(uint32_t characters) const {
  return std::span(plain_by_length_).subspan(plain_ends_[std::min(characters, kCharactersMax)]);
}

}  // namespace stator::guided
