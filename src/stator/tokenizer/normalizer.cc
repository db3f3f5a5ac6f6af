// SPDX-License-Identifier: Apache-2.0
#include "stator/tokenizer/normalizer.h"

#include "stator/tokenizer/byte_alphabet.h"
#include "stator/tokenizer/unicode.h"
#include "stator/tokenizer/unicode_form.h"

#include <fmt/format.h>

#include <algorithm>

namespace stator::tokenizer {
namespace {

Error too_large(size_t bytes_max) {
  return Error(Code::kTooLarge, fmt::format("the tokenizer's normalizer makes the text longer than "
                                            "the {} bytes that are accepted",
                                            bytes_max));
}

constexpr std::string_view kSpaceMark = "\xE2\x96\x81";  // U+2581, the space of SentencePiece

/// What the steps share.
struct Run {
  size_t bytes_max;
  bool keeps_start = true;
};

// Each step returns its input when it changes nothing, else a view of `out`, which starts empty.

Result<std::string_view> run(const Normalizer::ToForm& step, std::string_view text, Run&,
                             std::string& out) {
  if (is_in_unicode_form(step.form, text)) {
    return text;
  }
  append_unicode_form(step.form, text, out);
  return std::string_view(out);
}

Result<std::string_view> run(const Normalizer::Lowercase&, std::string_view text, Run&,
                             std::string& out) {
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const CodePoint code_point = decode_at(text, at);
    if (code_point.value == 0x130) {
      out += "i\xCC\x87";  // the one letter whose lower case is two code points
    } else {
      append_utf8(out, to_lower(code_point.value));
    }
    at += code_point.bytes;
  }
  return std::string_view(out);
}

Result<std::string_view> run(const Normalizer::Strip& step, std::string_view text, Run& run,
                             std::string&) {
  const UnicodeTable& table = UnicodeTable::get();
  const auto is_space = [&](size_t at) {
    return (table.flags(decode_at(text, at).value) & kSpace) != 0;
  };
  while (step.left && !text.empty() && is_space(0)) {
    text.remove_prefix(decode_at(text, 0).bytes);
    run.keeps_start = false;
  }
  while (step.right && !text.empty() && is_space(previous_boundary(text, text.size()))) {
    text = text.substr(0, previous_boundary(text, text.size()));
  }
  return text;
}

Result<std::string_view> run(const Normalizer::Prepend& step, std::string_view text, Run&,
                             std::string& out) {
  if (text.empty() || step.text.empty()) {
    return text;
  }
  out.reserve(step.text.size() + text.size());
  out.append(step.text).append(text);
  return std::string_view(out);
}

Result<std::string_view> run(const Normalizer::ReplaceText& step, std::string_view text, Run& run,
                             std::string& out) {
  if (step.content.empty() && text.starts_with(step.pattern)) {
    run.keeps_start = false;
  }
  size_t copied = 0;
  for (size_t at = text.find(step.pattern); at != std::string_view::npos;
       at = text.find(step.pattern, copied)) {
    out.append(text.substr(copied, at - copied)).append(step.content);
    copied = at + step.pattern.size();
    if (out.size() > run.bytes_max) {
      return too_large(run.bytes_max);
    }
  }
  if (copied == 0) {
    return text;
  }
  out.append(text.substr(copied));
  return std::string_view(out);
}

Result<std::string_view> run(const Normalizer::ReplaceMatches& step, std::string_view text,
                             Run& run, std::string& out) {
  size_t copied = 0;
  for (size_t from = 0; from <= text.size();) {
    const Regex::Found found = step.pattern.find(text, from);
    if (found.outcome == Regex::Outcome::kGaveUp) {
      return Error(Code::kInvalidArgument,
                   "the normalizer's regular expression is too expensive for this text: " +
                       step.pattern.pattern());
    }
    if (found.outcome == Regex::Outcome::kNoMatch) {
      break;
    }
    if (found.begin == 0 && found.end > 0 && step.content.empty()) {
      run.keeps_start = false;
    }
    out.append(text.substr(copied, found.begin - copied)).append(step.content);
    copied = found.end;
    from = found.end;
    if (found.end == found.begin) {
      from += from < text.size() ? decode_at(text, from).bytes : 1;
    }
    if (out.size() > run.bytes_max) {
      return too_large(run.bytes_max);
    }
  }
  out.append(text.substr(copied));
  return std::string_view(out);
}

Result<std::string_view> run(const Normalizer::MapBytes&, std::string_view text, Run&,
                             std::string& out) {
  ByteAlphabet::get().append_mapped(text, out);
  return std::string_view(out);
}

/// Keeps, drops or exchanges single characters: `map` gives the new character or kDrop.
constexpr char32_t kDrop = UINT32_MAX;

template <typename Map>
std::string_view map_characters(std::string_view text, Run& run, std::string& out, Map map) {
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const CodePoint code_point = decode_at(text, at);
    const char32_t mapped = map(code_point.value);
    if (mapped != kDrop) {
      append_utf8(out, mapped);
    } else if (at == 0) {
      run.keeps_start = false;
    }
    at += code_point.bytes;
  }
  return out;
}

Result<std::string_view> run(const Normalizer::RemoveClass& step, std::string_view text, Run& run,
                             std::string& out) {
  const UnicodeTable& table = UnicodeTable::get();
  return map_characters(text, run, out, [&](char32_t c) {
    return (table.flags(c) & step.unicode_classes) != 0 ? kDrop : c;
  });
}

Result<std::string_view> run(const Normalizer::CleanText&, std::string_view text, Run& run,
                             std::string& out) {
  const UnicodeTable& table = UnicodeTable::get();
  return map_characters(text, run, out, [&](char32_t c) {
    const uint32_t flags = table.flags(c);
    if ((flags & kBertControl) != 0) {
      return kDrop;
    }
    return (flags & kSpace) != 0 ? U' ' : c;
  });
}

bool is_ideograph(char32_t c) {
  return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) ||
         (c >= 0x20000 && c <= 0x2A6DF) || (c >= 0x2A700 && c <= 0x2B73F) ||
         (c >= 0x2B740 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) ||
         (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
}

Result<std::string_view> run(const Normalizer::IsolateIdeographs&, std::string_view text, Run& run,
                             std::string& out) {
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const CodePoint code_point = decode_at(text, at);
    const std::string_view character = text.substr(at, code_point.bytes);
    if (is_ideograph(code_point.value)) {
      out.append(" ").append(character).append(" ");
    } else {
      out.append(character);
    }
    at += code_point.bytes;
    if (out.size() > run.bytes_max) {
      return too_large(run.bytes_max);
    }
  }
  return std::string_view(out);
}

char32_t clean_for_translation(char32_t c) {
  if ((c >= 0x01 && c <= 0x08) || c == 0x0B || (c >= 0x0E && c <= 0x1F) || c == 0x7F || c == 0x8F ||
      c == 0x9F) {
    return kDrop;
  }
  const bool is_blank = c == 0x09 || c == 0x0A || c == 0x0C || c == 0x0D || c == 0x1680 ||
                        (c >= 0x200B && c <= 0x200F) || c == 0x2028 || c == 0x2029 || c == 0x2581 ||
                        c == 0xFEFF || c == 0xFFFD;
  return is_blank ? U' ' : c;
}

Result<std::string_view> run(const Normalizer::Nmt&, std::string_view text, Run& run,
                             std::string& out) {
  return map_characters(text, run, out, clean_for_translation);
}

Result<std::string_view> run(const Charsmap& step, std::string_view text, Run& run,
                             std::string& out) {
  // The start is kept even if the first characters left nothing: the reference loses count there.
  step.append_mapped(text, run.bytes_max, out);
  if (out.size() > run.bytes_max) {
    return too_large(run.bytes_max);
  }
  return std::string_view(out);
}

/// Appends with U+2581 for spaces; a space after a space is left out if they collapse.
void append_escaped(std::string_view text, bool collapses, bool& after_space, std::string& out) {
  for (const char c : text) {
    if (c != ' ') {
      out.push_back(c);
    } else if (!collapses || !after_space) {
      out.append(kSpaceMark);
    }
    after_space = c == ' ';
  }
}

/// Bytes of the longest text in `trie` that `text` starts with.
size_t longest_prefix(const ByteTrie& trie, std::string_view text) {
  size_t longest = 0;
  uint32_t node = 0;
  for (size_t at = 0; at < text.size(); ++at) {
    node = trie.child(node, static_cast<unsigned char>(text[at]));
    if (node == ByteTrie::kNoNode) {
      break;
    }
    longest = trie.value(node) == ByteTrie::kNoValue ? longest : at + 1;
  }
  return longest;
}

Result<std::string_view> run(const Normalizer::SentencePiece& step, std::string_view text, Run& run,
                             std::string& out) {
  bool after_space = true;  // the start of the text is like one
  for (size_t at = 0; at < text.size();) {
    const size_t kept = longest_prefix(step.kept, text.substr(at));
    const size_t bytes = kept > 0 ? kept : decode_at(text, at).bytes;
    Charsmap::Match match{text.substr(at, bytes), static_cast<uint32_t>(bytes)};
    if (step.charsmap && kept == 0) {
      match = step.charsmap->longest_at(text, at).value_or(match);
    }
    append_escaped(match.replacement, step.collapses_spaces, after_space, out);
    at += match.bytes;
    if (out.size() > run.bytes_max) {
      return too_large(run.bytes_max);
    }
  }
  while (step.collapses_spaces && out.ends_with(kSpaceMark)) {
    out.resize(out.size() - kSpaceMark.size());
  }
  if (step.adds_prefix && !out.empty()) {
    out.insert(0, kSpaceMark);
  }
  return std::string_view(out);
}

}  // namespace

Result<Normalized> normalize(const Normalizer& normalizer, std::string_view text,
                             std::string& buffer) {
  std::string other;
  const size_t grown_bytes_max = kMaxNormalizedGrowth * text.size() + kSpareNormalizedBytes;
  const size_t bytes_max = std::min(normalizer.bytes_max, grown_bytes_max);
  Run shared{bytes_max};
  for (const Normalizer::Step& step : normalizer.steps) {
    other.clear();
    STATOR_TRY(text, std::visit([&](const auto& s) { return run(s, text, shared, other); }, step));
    if (text.empty()) {
      return Normalized{};
    }
    if (text.data() == other.data()) {
      std::swap(buffer, other);
      text = buffer;
    }
    if (text.size() > bytes_max) {
      return too_large(bytes_max);
    }
  }
  return Normalized{text, shared.keeps_start};
}

}  // namespace stator::tokenizer
