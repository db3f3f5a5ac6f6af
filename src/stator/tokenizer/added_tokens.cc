// SPDX-License-Identifier: Apache-2.0
#include "stator/tokenizer/added_tokens.h"

#include "stator/tokenizer/unicode.h"

#include <algorithm>
#include <cstring>
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

/// A place at or before the first of `bytes` in `text` from `from` on, less than 16 bytes before it
/// or before the end.
size_t skip_without(std::string_view bytes, std::string_view text, size_t from) {
  using Vector = unsigned char __attribute__((vector_size(16)));
  for (; from + sizeof(Vector) <= text.size(); from += sizeof(Vector)) {
    Vector block;
    std::memcpy(&block, text.data() + from, sizeof(block));
    Vector found{};
    for (const char byte : bytes) {
      found |= reinterpret_cast<Vector>(block == static_cast<unsigned char>(byte));
    }
    std::array<uint64_t, 2> halves;
    std::memcpy(halves.data(), &found, sizeof(found));
    if ((halves[0] | halves[1]) != 0) {
      break;
    }
  }
  return from;
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
  if (!content.empty()) {
    bool& starts = starts_[static_cast<unsigned char>(content[0])];
    if (!std::exchange(starts, true)) {
      start_bytes_.push_back(content[0]);
    }
    nodes_[node].token = index;
  }
}

/// The next byte from `from` on that starts a token. Most models have one such byte, '<', which the
/// C library finds many bytes at a time; a few are looked for in 16 bytes at a time.
size_t AddedTokenMatcher::find_start(std::string_view text, size_t from) const {
  constexpr size_t kFewBytes = 6;
  if (start_bytes_.size() == 1) {
    return std::min(text.find(start_bytes_.front(), from), text.size());
  }
  if (start_bytes_.size() <= kFewBytes) {
    from = skip_without(start_bytes_, text, from);
  }
  while (from < text.size() && !starts_[static_cast<unsigned char>(text[from])]) {
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
  for (size_t at = tokens_.empty() ? text.size() : find_start(text, 0); at < text.size();
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
