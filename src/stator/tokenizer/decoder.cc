// SPDX-License-Identifier: Apache-2.0
#include "stator/tokenizer/decoder.h"

#include "stator/core/assert.h"
#include "stator/tokenizer/byte_alphabet.h"
#include "stator/tokenizer/unicode.h"

#include <algorithm>
#include <charconv>
#include <utility>

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

/// An empty pattern is found before every character and at the end, as in the reference.
std::string replace_all(std::string_view text, std::string_view pattern, std::string_view content) {
  std::string out;
  if (pattern.empty()) {
    for (size_t at = 0, bytes = 0; at < text.size(); at += bytes) {
      bytes = decode_at(text, at).bytes;
      out.append(content).append(text.substr(at, bytes));
    }
    return out.append(content);
  }
  for (size_t at = text.find(pattern); at != std::string_view::npos; at = text.find(pattern)) {
    out.append(text.substr(0, at)).append(content);
    text.remove_prefix(at + pattern.size());
  }
  return out.append(text);
}

/// The reference's undoing of spaces that word tokenizers put into English.
std::string clean_up(std::string text) {
  constexpr std::pair<std::string_view, std::string_view> kRules[] = {
      {" .", "."},   {" ?", "?"},     {" !", "!"},    {" ,", ","},
      {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},  {" do not", " don't"},
      {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
  for (const auto& [dirty, clean] : kRules) {
    text = replace_all(text, dirty, clean);
  }
  return text;
}

using Place = Tokenizer::TokenPlace;

// apply: one step on one token's text.

std::string apply(const Decoder::ByteLevel&, std::string text, Place) {
  return ByteAlphabet::get().unmap(text).value_or(text);
}

std::string apply(const Decoder::ByteFallback&, std::string text, Place) {
  return text;  // not the name of a byte, or it would not come here
}

std::string apply(const Decoder::Replace& step, std::string text, Place) {
  return replace_all(text, step.pattern, step.content);
}

std::string apply(const Decoder::ReplaceMatches& step, std::string text, Place) {
  std::string out;
  size_t copied = 0;
  for (size_t from = 0; from <= text.size();) {
    const Regex::Found found = step.pattern.find(text, from);
    if (found.outcome != Regex::Outcome::kMatch) {
      break;
    }
    out.append(text, copied, found.begin - copied).append(step.content);
    copied = found.end;
    from = found.end > found.begin ? found.end : found.end + 1;
    while (from < text.size() && (static_cast<unsigned char>(text[from]) & 0xC0) == 0x80) {
      ++from;
    }
  }
  return out.append(text, copied);
}

std::string apply(const Decoder::Metaspace& step, std::string text, Place place) {
  return replace_all(text, step.replacement, place.is_first && !step.keeps_first ? "" : " ");
}

std::string apply(const Decoder::WordPiece& step, std::string text, Place place) {
  if (!place.is_first) {
    text = text.starts_with(step.prefix) ? text.substr(step.prefix.size()) : " " + text;
  }
  return step.cleanup ? clean_up(std::move(text)) : text;
}

std::string apply(const Decoder::EndOfWord& step, std::string text, Place place) {
  return replace_all(text, step.suffix, place.is_last ? "" : " ");
}

std::string apply(const Decoder::Ctc& step, std::string text, Place) {
  text = replace_all(text, step.pad, "");
  return step.cleanup ? replace_all(clean_up(std::move(text)), step.delimiter, " ") : text;
}

std::string apply(const Decoder::Strip& step, std::string text, Place) {
  std::string_view rest = text;
  for (uint32_t left = step.start; left > 0 && rest.starts_with(step.content); --left) {
    rest.remove_prefix(step.content.size());
  }
  for (uint32_t left = step.stop; left > 0 && rest.ends_with(step.content); --left) {
    rest.remove_suffix(step.content.size());
  }
  return std::string(rest);
}

bool depends_on_first(const Decoder::Step& step) {
  const auto* metaspace = std::get_if<Decoder::Metaspace>(&step);
  return (metaspace != nullptr && !metaspace->keeps_first) ||
         std::holds_alternative<Decoder::WordPiece>(step);
}

bool depends_on_last(const Decoder::Step& step) {
  return std::holds_alternative<Decoder::EndOfWord>(step);
}

}  // namespace

std::string decode_token(const Decoder& decoder, std::string_view token_text,
                         Tokenizer::TokenPlace place) {
  std::string text(token_text);
  for (const Decoder::Step& step : decoder.steps) {
    if (std::holds_alternative<Decoder::ByteFallback>(step)) {
      if (const auto byte = fallback_byte(text)) {
        return {*byte};
      }
    }
    text = std::visit([&](const auto& s) { return apply(s, std::move(text), place); }, step);
  }
  return text;
}

TokenTable::TokenTable(std::string_view text, std::span<const Entry> entries) {
  TokenId largest = 0;
  for (const Entry& entry : entries) {
    largest = std::max(largest, entry.id);
  }
  const size_t size = entries.empty() ? 0 : size_t{largest} + 1;
  std::vector<const Entry*> by_id(size, nullptr);
  for (const Entry& entry : entries) {
    by_id[entry.id] = &entry;
  }
  tokens_.resize(size);
  bytes_.reserve(text.size());
  for (size_t id = 0; id < size; ++id) {
    const Entry* entry = by_id[id];
    if (entry == nullptr) {
      continue;
    }
    const std::string_view bytes = text.substr(entry->begin, entry->bytes);
    const bool is_complete = !bytes.empty() && is_valid_utf8(bytes);
    const uint32_t flags = kKnown | (entry->special ? uint32_t{kSpecial} : 0U) |
                           (is_complete ? uint32_t{kComplete} : 0U);
    tokens_[id] = {static_cast<uint32_t>(bytes_.size()), entry->bytes << 3 | flags};
    bytes_ += bytes;
  }
}

namespace {

/// `decode_token`, appended; nearly all large vocabularies have this one step.
void append_decoded(const Decoder& decoder, std::string_view token_text,
                    Tokenizer::TokenPlace place, std::string& out) {
  if (decoder.steps.size() == 1 && std::holds_alternative<Decoder::ByteLevel>(decoder.steps[0])) {
    if (!ByteAlphabet::get().append_unmapped(token_text, out)) {
      out += token_text;
    }
    return;
  }
  out += decode_token(decoder, token_text, place);
}

}  // namespace

TokenTables::TokenTables(const Decoder& decoder, const std::vector<Spelling>& spellings)
    : first_mask_(std::ranges::any_of(decoder.steps, depends_on_first) ? kFirst : 0),
      last_mask_(std::ranges::any_of(decoder.steps, depends_on_last) ? kLast : 0) {
  for (uint8_t index = 0; index < tables_.size(); ++index) {
    if ((index & ~(first_mask_ | last_mask_)) != 0) {
      continue;
    }
    const Tokenizer::TokenPlace place{(index & kFirst) != 0, (index & kLast) != 0};
    std::string text;
    std::vector<TokenTable::Entry> entries;
    entries.reserve(spellings.size());
    for (const Spelling& spelling : spellings) {
      const auto begin = static_cast<uint32_t>(text.size());
      append_decoded(decoder, spelling.text, place, text);
      STATOR_ASSERT(text.size() < (size_t{1} << 29), "a vocabulary has less than 512 MiB of text");
      entries.push_back(
          {spelling.id, begin, static_cast<uint32_t>(text.size()) - begin, spelling.special});
    }
    tables_[index] = TokenTable(text, entries);
  }
}

}  // namespace stator::tokenizer
