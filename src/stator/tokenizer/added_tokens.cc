// SPDX-License-Identifier: Apache-2.0
#include "stator/tokenizer/added_tokens.h"

#include "stator/tokenizer/unicode.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>
#include <numeric>
#include <utility>

namespace stator::tokenizer {
namespace {

uint32_t flags_at(std::string_view text, size_t at) {
  return UnicodeTable::get().flags(decode_at(text, at).value);
}

bool ends_with(std::string_view text, uint32_t classes) {
  return !text.empty() && (flags_at(text, previous_boundary(text, text.size())) & classes) != 0;
}

bool starts_with(std::string_view text, uint32_t classes) {
  return !text.empty() && (flags_at(text, 0) & classes) != 0;
}

/// Start of the white space that ends at `end`, not before `floor`.
size_t space_begin(std::string_view text, size_t end, size_t floor) {
  while (end > floor && ends_with(text.substr(floor, end - floor), kSpace)) {
    end = previous_boundary(text, end);
  }
  return end;
}

size_t space_end(std::string_view text, size_t at) {
  while (starts_with(text.substr(at), kSpace)) {
    at += decode_at(text, at).bytes;
  }
  return at;
}

using Block = unsigned char __attribute__((vector_size(64)));
using Eights = std::array<uint64_t, sizeof(Block) / 8>;

/// Which bytes of the block at `text` are among `bytes`: 0xFF, the others 0.
Eights places_of(std::string_view bytes, const char* text) {
  Block block;
  std::memcpy(&block, text, sizeof(block));
  Block found{};
  for (const char byte : bytes) {
    found |= reinterpret_cast<Block>(block == static_cast<unsigned char>(byte));
  }
  Eights eights;
  std::memcpy(eights.data(), &found, sizeof(found));
  return eights;
}

}  // namespace

AddedTokenMatcher::AddedTokenMatcher(std::vector<AddedToken> tokens)
    : tokens_(std::move(tokens)), nodes_(1) {
  for (size_t i = 0; i < tokens_.size(); ++i) {
    add_to_trie(static_cast<int32_t>(i));
  }
}

void AddedTokenMatcher::add_to_trie(int32_t index) {
  uint32_t node = 0;
  const std::string& content = tokens_[static_cast<size_t>(index)].content;
  for (const char c : content) {
    const auto byte = static_cast<unsigned char>(c);
    const auto edge = std::ranges::find(nodes_[node].edges, byte, &Edge::byte);
    if (edge != nodes_[node].edges.end()) {
      node = edge->node;
      continue;
    }
    const auto next = static_cast<uint32_t>(nodes_.size());
    nodes_[node].edges.push_back({byte, next});
    nodes_.emplace_back();
    node = next;
  }
  if (content.empty()) {
    return;
  }
  nodes_[node].token = index;
  bool& starts = starts_[static_cast<unsigned char>(content[0])];
  if (!std::exchange(starts, true)) {
    start_bytes_.push_back(content[0]);
  }
  pairs_.resize(size_t{1} << 16);
  const auto pairs = pairs_.begin() + pair_of(content[0], '\0');
  if (content.size() == 1) {
    std::fill_n(pairs, 256, true);
  } else {
    pairs[static_cast<unsigned char>(content[1])] = true;
  }
}

/// Whether the first two bytes of a token are at `at`, or the only one.
bool AddedTokenMatcher::may_start(std::string_view text, size_t at) const {
  return at + 1 == text.size() ? starts_[static_cast<unsigned char>(text[at])]
                               : pairs_[pair_of(text[at], text[at + 1])];
}

/// The next place from `from` on where a token may start, or the end. Most models have one byte
/// that does, '<', which the C library finds many bytes at a time; a few are looked for in 64 bytes
/// at a time.
size_t AddedTokenMatcher::find_start(std::string_view text, size_t from) const {
  constexpr size_t kFewBytes = 6;
  if (start_bytes_.size() == 1) {
    size_t at = text.find(start_bytes_.front(), from);
    while (at != std::string_view::npos && !may_start(text, at)) {
      at = text.find(start_bytes_.front(), at + 1);
    }
    return std::min(at, text.size());
  }
  for (; start_bytes_.size() <= kFewBytes && from + sizeof(Block) <= text.size();
       from += sizeof(Block)) {
    const Eights eights = places_of(start_bytes_, text.data() + from);
    if (std::reduce(eights.begin(), eights.end(), uint64_t{0}, std::bit_or()) == 0) {
      continue;
    }
    for (size_t eight = 0; eight < eights.size(); ++eight) {
      for (uint64_t left = eights[eight] & 0x0101010101010101ULL; left != 0; left &= left - 1) {
        const size_t at = from + 8 * eight + static_cast<size_t>(std::countr_zero(left)) / 8;
        if (may_start(text, at)) {
          return at;
        }
      }
    }
  }
  while (from < text.size() && !may_start(text, from)) {
    ++from;
  }
  return from;
}

AddedTokenMatcher::Match AddedTokenMatcher::longest_at(std::string_view text, size_t at) const {
  Match best{-1, 0};
  uint32_t node = 0;
  for (size_t i = at; i < text.size(); ++i) {
    const auto& edges = nodes_[node].edges;
    const auto edge = std::ranges::find(edges, static_cast<unsigned char>(text[i]), &Edge::byte);
    if (edge == edges.end()) {
      break;
    }
    node = edge->node;
    if (nodes_[node].token >= 0) {
      best = {nodes_[node].token, i + 1 - at};
    }
  }
  return best;
}

bool AddedTokenMatcher::accepts(const AddedToken& token, std::string_view text, size_t begin,
                                SpecialTokens special) const {
  if (token.special && special == SpecialTokens::kAsText) {
    return false;
  }
  const size_t end = begin + token.content.size();
  return !token.single_word ||
         (!ends_with(text.substr(0, begin), kWord) && !starts_with(text.substr(end), kWord));
}

void AddedTokenMatcher::split(std::string_view text, SpecialTokens special,
                              std::vector<Section>& sections) const {
  sections.clear();
  size_t done = 0;  // text before this is in sections
  for (size_t at = start_bytes_.empty() ? text.size() : find_start(text, 0); at < text.size();
       at = find_start(text, at)) {
    const Match match = longest_at(text, at);
    if (match.token < 0) {
      ++at;
      continue;
    }
    // The search goes on behind the match even if a rule rejects it, and even if white space behind
    // it was swallowed that starts another token: so does the reference.
    const size_t begin = std::exchange(at, at + match.bytes);
    const AddedToken& token = tokens_[static_cast<size_t>(match.token)];
    if (!accepts(token, text, begin, special)) {
      continue;
    }
    const size_t first = token.lstrip ? space_begin(text, begin, std::min(done, begin)) : begin;
    const size_t end = token.rstrip ? space_end(text, at) : at;
    if (token.lstrip && end <= done) {
      continue;  // nothing but white space that the match before it has swallowed
    }
    if (first > done) {
      sections.push_back({.text = text.substr(done, first - done), .is_start = done == 0});
    }
    sections.push_back({text.substr(begin, match.bytes), token.id, true, begin == 0});
    done = end;
  }
  if (done < text.size()) {
    sections.push_back({.text = text.substr(done), .is_start = done == 0});
  }
}

}  // namespace stator::tokenizer
