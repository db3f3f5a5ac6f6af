// SPDX-License-Identifier: Apache-2.0
#include "stator/tokenizer/unicode_form.h"

#include "stator/core/assert.h"
#include "stator/tokenizer/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <vector>

namespace stator::tokenizer {
namespace {

using Form = Normalizer::UnicodeForm;

// U+FDFA decomposes to 18 code points, the longest of all.
constexpr size_t kDecomposedMax = 32;

bool composes(Form form) {
  return form == Form::kNfc || form == Form::kNfkc;
}

/// The class of the code points that the form may change.
uint32_t active_class(Form form) {
  switch (form) {
    case Form::kNfc:
      return kNfcActive;
    case Form::kNfd:
      return kNfdActive;
    case Form::kNfkc:
      return kNfkcActive;
    case Form::kNfkd:
      return kNfkdActive;
  }
  return 0;
}

bool is_active(Form form, char32_t code_point, const UnicodeTable& table) {
  return (table.flags(code_point) & active_class(form)) != 0;
}

int combining_class(int32_t code_point) {
  return utf8proc_get_property(code_point)->combining_class;
}

/// Puts each run of combining marks in canonical order: by combining class, otherwise as they
/// stand. (std::stable_sort needs a facility that libstdc++ 12 deprecates.)
void order_marks(std::vector<int32_t>& code_points) {
  struct Mark {
    int combining_class;
    size_t position;
    int32_t code_point;
    auto operator<=>(const Mark&) const = default;
  };
  const auto is_starter = [](int32_t c) { return combining_class(c) == 0; };
  std::vector<Mark> marks;
  for (auto at = code_points.begin(); at != code_points.end();) {
    const auto run_begin = std::find_if_not(at, code_points.end(), is_starter);
    at = std::find_if(run_begin, code_points.end(), is_starter);
    if (at - run_begin < 2) {
      continue;
    }
    marks.clear();
    for (auto mark = run_begin; mark != at; ++mark) {
      marks.push_back({combining_class(*mark), marks.size(), *mark});
    }
    std::ranges::sort(marks);
    std::ranges::transform(marks, run_begin, &Mark::code_point);
  }
}

/// Normalizes a stretch of text that nothing outside of it interacts with.
void append_stretch(Form form, std::string_view text, std::vector<int32_t>& scratch,
                    std::string& out) {
  const bool compatibility = form == Form::kNfkc || form == Form::kNfkd;
  const UnicodeTable& table = UnicodeTable::get();
  scratch.clear();
  for (size_t at = 0; at < text.size();) {
    const CodePoint code_point = decode_at(text, at);
    int32_t parts[kDecomposedMax];
    int boundary = 0;
    // A character that is only there to compose may be newer than the reference's tables.
    const bool is_compatible = compatibility && is_active(form, code_point.value, table);
    const auto options = static_cast<utf8proc_option_t>(UTF8PROC_DECOMPOSE | UTF8PROC_STABLE |
                                                        (is_compatible ? UTF8PROC_COMPAT : 0));
    const auto count = utf8proc_decompose_char(static_cast<int32_t>(code_point.value), parts,
                                               kDecomposedMax, options, &boundary);
    STATOR_ASSERT(count > 0 && count <= static_cast<long>(kDecomposedMax),
                  "utf8proc decomposes any scalar value");
    scratch.insert(scratch.end(), parts, parts + count);
    at += code_point.bytes;
  }
  order_marks(scratch);
  auto count = static_cast<utf8proc_ssize_t>(scratch.size());
  if (composes(form)) {
    count = utf8proc_normalize_utf32(
        scratch.data(), count, static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_STABLE));
  }
  for (utf8proc_ssize_t i = 0; i < count; ++i) {
    append_utf8(out, static_cast<char32_t>(scratch[static_cast<size_t>(i)]));
  }
}

/// The first byte from `at` on that is not ASCII, or the end.
size_t skip_ascii(std::string_view text, size_t at) {
  constexpr uint64_t kHighBits = 0x8080808080808080ULL;
  std::array<uint64_t, 4> words;
  for (; at + sizeof(words) <= text.size(); at += sizeof(words)) {
    std::memcpy(words.data(), text.data() + at, sizeof(words));
    if (((words[0] | words[1] | words[2] | words[3]) & kHighBits) != 0) {
      break;
    }
  }
  for (; at + sizeof(uint64_t) <= text.size(); at += sizeof(uint64_t)) {
    std::memcpy(words.data(), text.data() + at, sizeof(uint64_t));
    if (const uint64_t high = words[0] & kHighBits; high != 0) {
      static_assert(std::endian::native == std::endian::little);
      return at + static_cast<size_t>(std::countr_zero(high)) / 8;
    }
  }
  while (at < text.size() && static_cast<unsigned char>(text[at]) < 0x80) {
    ++at;
  }
  return at;
}

}  // namespace

bool is_in_unicode_form(Form form, std::string_view text) {
  const UnicodeTable& table = UnicodeTable::get();
  const uint32_t active = active_class(form);
  for (size_t at = skip_ascii(text, 0); at < text.size(); at = skip_ascii(text, at)) {
    do {
      const CodePoint code_point = decode_at(text, at);
      if ((table.flags(code_point.value) & active) != 0) {
        return false;
      }
      at += code_point.bytes;
    } while (at < text.size() && static_cast<unsigned char>(text[at]) >= 0x80);
  }
  return true;
}

void append_unicode_form(Form form, std::string_view text, std::string& out) {
  const UnicodeTable& table = UnicodeTable::get();
  std::vector<int32_t> scratch;
  size_t copied = 0;    // everything before is in `out`
  size_t previous = 0;  // start of the last inactive character: a composition may change it
  for (size_t at = 0; at < text.size();) {
    CodePoint code_point = decode_at(text, at);
    if (!is_active(form, code_point.value, table)) {
      previous = at;
      at += code_point.bytes;
      continue;
    }
    size_t end = at;
    while (end < text.size() && is_active(form, (code_point = decode_at(text, end)).value, table)) {
      end += code_point.bytes;
    }
    size_t begin = std::max(copied, previous);
    if (!composes(form)) {
      begin = at;
    } else if (begin < at &&
               combining_class(static_cast<int32_t>(decode_at(text, begin).value)) != 0) {
      begin = at;  // a mark newer than the reference's tables: it neither moves nor composes there
    }
    out.append(text.substr(copied, begin - copied));
    append_stretch(form, text.substr(begin, end - begin), scratch, out);
    copied = previous = at = end;
  }
  out.append(text.substr(copied));
}

}  // namespace stator::tokenizer
