// SPDX-License-Identifier: Apache-2.0
#include "stator/tokenizer/charsmap.h"

#include "stator/tokenizer/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <utility>

namespace stator::tokenizer {
namespace {

// Graphemes from this size on are replaced character by character.
constexpr size_t kLongGraphemeBytes = 6;

// One unit of the double array, as SentencePiece stores it.
bool has_leaf(uint32_t unit) {
  return ((unit >> 8) & 1) != 0;
}
uint32_t label_of(uint32_t unit) {
  return unit & (0x80000000U | 0xFFU);
}
uint32_t offset_of(uint32_t unit) {
  return (unit >> 10) << ((unit & (1U << 9)) >> 6);
}
uint32_t value_of(uint32_t unit) {
  return unit & 0x7FFFFFFFU;
}

uint32_t read_u32(std::string_view bytes, size_t at) {
  const auto byte = [&](size_t i) {
    return static_cast<uint32_t>(static_cast<unsigned char>(bytes[at + i])) << (8 * i);
  };
  return byte(0) | byte(1) | byte(2) | byte(3);
}

bool is_inside_character(std::string_view text, size_t at) {
  return at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80;
}

/// Whether a grapheme ends between the two. The system's tables do not know the newest marks, the
/// reference's do.
bool is_break(char32_t left, char32_t right, int32_t& state) {
  const bool breaks = utf8proc_grapheme_break_stateful(static_cast<int32_t>(left),
                                                       static_cast<int32_t>(right), &state);
  if (!breaks || (UnicodeTable::get().flags(right) & kGraphemeExtend) == 0) {
    return breaks;
  }
  const auto left_class = utf8proc_get_property(static_cast<int32_t>(left))->boundclass;
  return left_class == UTF8PROC_BOUNDCLASS_CR || left_class == UTF8PROC_BOUNDCLASS_LF ||
         left_class == UTF8PROC_BOUNDCLASS_CONTROL;
}

}  // namespace

Result<Charsmap> Charsmap::parse(std::string_view bytes) {
  const size_t trie_bytes = bytes.size() < 4 ? SIZE_MAX : read_u32(bytes, 0) / 4 * 4;
  if (trie_bytes > bytes.size() - 4 || trie_bytes == 0) {
    return Error(Code::kCorrupt, "the precompiled_charsmap is truncated");
  }
  auto tables = std::make_shared<Tables>();
  tables->trie.reserve(trie_bytes / 4);
  for (size_t at = 4; at < 4 + trie_bytes; at += 4) {
    tables->trie.push_back(read_u32(bytes, at));
  }
  tables->replacements = bytes.substr(4 + trie_bytes);
  if (!is_valid_utf8(tables->replacements)) {
    return Error(Code::kCorrupt, "the precompiled_charsmap has replacements that are not UTF-8");
  }
  Charsmap map;
  map.tables_ = std::move(tables);
  return map;
}

/// What the leaf says; nothing if the file is broken there.
std::optional<std::string_view> Charsmap::replacement_at(size_t node) const {
  const std::string_view all = tables_->replacements;
  const size_t begin = node < tables_->trie.size() ? value_of(tables_->trie[node]) : SIZE_MAX;
  if (begin > all.size() || is_inside_character(all, begin)) {
    return std::nullopt;
  }
  return all.substr(begin, std::min(all.find('\0', begin), all.size()) - begin);
}

/// An entry that starts `chunk`.
std::optional<Charsmap::Match> Charsmap::find(std::string_view chunk, Want want) const {
  const std::vector<uint32_t>& trie = tables_->trie;
  std::optional<Match> found;
  size_t node = offset_of(trie[0]);
  for (size_t i = 0; i < chunk.size(); ++i) {
    const auto byte = static_cast<unsigned char>(chunk[i]);
    node ^= byte;
    if (byte == 0 || node >= trie.size() || label_of(trie[node]) != byte) {
      break;
    }
    const uint32_t unit = trie[node];
    node ^= offset_of(unit);
    if (!has_leaf(unit)) {
      continue;
    }
    const auto replacement = replacement_at(node);
    if (replacement && (want == Want::kShortest || !is_inside_character(chunk, i + 1))) {
      found = Match{*replacement, i + 1};
    }
    if (want == Want::kShortest) {
      break;
    }
  }
  return found;
}

std::optional<Charsmap::Match> Charsmap::longest_at(std::string_view text, size_t at) const {
  return find(text.substr(at), Want::kLongest);
}

void Charsmap::append_grapheme(std::string_view grapheme, std::string& out) const {
  if (grapheme.size() < kLongGraphemeBytes) {
    if (const auto match = find(grapheme, Want::kShortest)) {
      out.append(match->replacement);
      return;
    }
  }
  for (size_t at = 0; at < grapheme.size();) {
    const std::string_view character = grapheme.substr(at, decode_at(grapheme, at).bytes);
    const auto match = find(character, Want::kShortest);
    out.append(match ? match->replacement : character);
    at += character.size();
  }
}

void Charsmap::append_mapped(std::string_view text, size_t bytes_max, std::string& out) const {
  out.reserve(text.size());
  int32_t state = 0;
  size_t begin = 0;  // of the current grapheme
  char32_t previous = 0;
  for (size_t at = 0; at < text.size() && out.size() <= bytes_max;) {
    const CodePoint code_point = decode_at(text, at);
    if (at > 0 && is_break(previous, code_point.value, state)) {
      append_grapheme(text.substr(begin, at - begin), out);
      begin = at;
    }
    previous = code_point.value;
    at += code_point.bytes;
  }
  append_grapheme(text.substr(begin), out);
}

}  // namespace stator::tokenizer
