// SPDX-License-Identifier: Apache-2.0
#include "stator/tokenizer/normalizer.h"

#include "stator/tokenizer/byte_alphabet.h"
#include "stator/tokenizer/unicode.h"
#include "stator/tokenizer/unicode_form.h"

#include <fmt/format.h>
#include <utf8proc.h>

#include <algorithm>

namespace stator::tokenizer {
namespace {

Error too_large(size_t bytes_max) {
  return Error(Code::kTooLarge, fmt::format("normalized text is longer than {} bytes", bytes_max));
}

// Each step returns its input when it changes nothing, else a view of `out`, which starts empty.

Result<std::string_view> run(const Normalizer::ToForm& step, std::string_view text, size_t,
                             std::string& out) {
  if (is_in_unicode_form(step.form, text)) {
    return text;
  }
  append_unicode_form(step.form, text, out);
  return std::string_view(out);
}

Result<std::string_view> run(const Normalizer::Lowercase&, std::string_view text, size_t,
                             std::string& out) {
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const CodePoint code_point = decode_at(text, at);
    if (code_point.value == 0x130) {
      out += "i\xCC\x87";  // the one letter whose lower case is two code points
    } else {
      append_utf8(static_cast<char32_t>(utf8proc_tolower(static_cast<int32_t>(code_point.value))),
                  out);
    }
    at += code_point.bytes;
  }
  return std::string_view(out);
}

Result<std::string_view> run(const Normalizer::Strip& step, std::string_view text, size_t,
                             std::string&) {
  const UnicodeTable& table = UnicodeTable::get();
  const auto is_space = [&](size_t at) {
    return (table.flags(decode_at(text, at).value) & kSpace) != 0;
  };
  while (step.left && !text.empty() && is_space(0)) {
    text.remove_prefix(decode_at(text, 0).bytes);
  }
  while (step.right && !text.empty() && is_space(previous_boundary(text, text.size()))) {
    text = text.substr(0, previous_boundary(text, text.size()));
  }
  return text;
}

Result<std::string_view> run(const Normalizer::Prepend& step, std::string_view text, size_t,
                             std::string& out) {
  if (text.empty() || step.text.empty()) {
    return text;
  }
  out.reserve(step.text.size() + text.size());
  out.append(step.text).append(text);
  return std::string_view(out);
}

Result<std::string_view> run(const Normalizer::ReplaceText& step, std::string_view text,
                             size_t bytes_max, std::string& out) {
  size_t copied = 0;
  for (size_t at = text.find(step.pattern); at != std::string_view::npos;
       at = text.find(step.pattern, copied)) {
    out.append(text.substr(copied, at - copied)).append(step.content);
    copied = at + step.pattern.size();
    if (out.size() > bytes_max) {
      return too_large(bytes_max);
    }
  }
  if (copied == 0) {
    return text;
  }
  out.append(text.substr(copied));
  return std::string_view(out);
}

Result<std::string_view> run(const Normalizer::ReplaceMatches& step, std::string_view text,
                             size_t bytes_max, std::string& out) {
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
    out.append(text.substr(copied, found.begin - copied)).append(step.content);
    copied = found.end;
    from = found.end;
    if (found.end == found.begin) {
      from += from < text.size() ? decode_at(text, from).bytes : 1;
    }
    if (out.size() > bytes_max) {
      return too_large(bytes_max);
    }
  }
  out.append(text.substr(copied));
  return std::string_view(out);
}

Result<std::string_view> run(const Normalizer::MapBytes&, std::string_view text, size_t,
                             std::string& out) {
  ByteAlphabet::get().append_mapped(text, out);
  return std::string_view(out);
}

}  // namespace

Result<std::string_view> normalize(const Normalizer& normalizer, std::string_view text,
                                   std::string& buffer) {
  std::string other;
  for (const Normalizer::Step& step : normalizer.steps) {
    other.clear();
    STATOR_TRY(
        text,
        std::visit([&](const auto& s) { return run(s, text, normalizer.bytes_max, other); }, step));
    if (text.empty()) {
      return std::string_view();
    }
    if (text.data() == other.data()) {
      std::swap(buffer, other);
      text = buffer;
    }
    if (text.size() > normalizer.bytes_max) {
      return too_large(normalizer.bytes_max);
    }
  }
  return text;
}

}  // namespace stator::tokenizer
