// SPDX-License-Identifier: Apache-2.0
#include "stator/tokenizer/regex.h"

#include "stator/tokenizer/detail/regex_classes.h"
#include "stator/tokenizer/unicode.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <fmt/format.h>
#include <pcre2.h>

#include <algorithm>

namespace stator::tokenizer {
namespace {

constexpr uint32_t kMatchLimit = 10'000'000;   // backtracking steps per match
constexpr size_t kJitStackBytesMax = 4 << 20;  // enough for runs of about 100,000 characters
constexpr size_t kPatternBytesMax = 65536;

// Members of Oniguruma's classes as the inside of a PCRE2 class.
constexpr std::string_view kSpaces =
    R"(\x{9}-\x{d}\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
constexpr std::string_view kNotSpaces =
    R"(\x{0}-\x{8}\x{e}-\x{1f}\x{21}-\x{84}\x{86}-\x{9f}\x{a1}-\x{167f}\x{1681}-\x{1fff})"
    R"(\x{200b}-\x{2027}\x{202a}-\x{202e}\x{2030}-\x{205e}\x{2060}-\x{2fff}\x{3001}-\x{d7ff})"
    R"(\x{e000}-\x{10ffff})";
// Letters, marks, digits, connectors and the circled or squared letters.
constexpr CategorySet kWordCategories =
    as_set(GeneralCategory::kLu) | as_set(GeneralCategory::kLl) | as_set(GeneralCategory::kLt) |
    as_set(GeneralCategory::kLm) | as_set(GeneralCategory::kLo) | as_set(GeneralCategory::kMn) |
    as_set(GeneralCategory::kMc) | as_set(GeneralCategory::kMe) | as_set(GeneralCategory::kNd) |
    as_set(GeneralCategory::kNl) | as_set(GeneralCategory::kPc);
constexpr std::string_view kWordSymbols =
    R"(\x{24b6}-\x{24e9}\x{1f130}-\x{1f149}\x{1f150}-\x{1f169}\x{1f170}-\x{1f189})";
constexpr std::string_view kHexMembers = "0-9a-fA-F";

/// The characters of the script Han, as members of a class.
const std::string& han_members() {
  static const std::string members = [] {
    const UnicodeTable& table = UnicodeTable::get();
    std::string ranges;
    const auto is_han = [&](char32_t c) { return c < 0x110000 && (table.flags(c) & kHan) != 0; };
    for (char32_t c = 0; c < 0x110000; ++c) {
      const char32_t first = c;
      while (is_han(c)) {
        ++c;
      }
      if (c > first) {
        ranges += fmt::format("\\x{{{:X}}}-\\x{{{:X}}}", static_cast<uint32_t>(first),
                              static_cast<uint32_t>(c - 1));
      }
    }
    return ranges;
  }();
  return members;
}

const std::string& word_members() {
  static const std::string members =
      class_members(kWordCategories, Members::kThese) + std::string(kWordSymbols);
  return members;
}

/// Scripts as PCRE2 takes them by name, it would count the characters shared between scripts.
constexpr std::string_view kScripts[] = {
    "Arabic",   "Armenian", "Bengali",  "Bopomofo", "Cyrillic", "Devanagari", "Ethiopic",
    "Georgian", "Greek",    "Gujarati", "Gurmukhi", "Hangul",   "Hebrew",     "Hiragana",
    "Kannada",  "Katakana", "Khmer",    "Lao",      "Latin",    "Malayalam",  "Mongolian",
    "Myanmar",  "Sinhala",  "Tamil",    "Telugu",   "Thai",     "Tibetan"};

/// As much of a pattern as a message can hold.
std::string shown(std::string_view pattern) {
  constexpr size_t kBytesMax = 200;
  if (pattern.size() <= kBytesMax) {
    return std::string(pattern);
  }
  size_t end = kBytesMax;
  while (end > 0 && (static_cast<unsigned char>(pattern[end]) & 0xC0) == 0x80) {
    --end;  // not inside a character
  }
  return fmt::format("{}… ({} bytes)", pattern.substr(0, end), pattern.size());
}

/// Walks an Oniguruma pattern once and writes the PCRE2 one.
class Translator {
 public:
  explicit Translator(std::string_view pattern) : pattern_(pattern) {}

  Result<std::string> run() {
    while (at_ < pattern_.size()) {
      const char c = pattern_[at_];
      if (c == '\\') {
        STATOR_CHECK(escape());
      } else if (in_class_) {
        STATOR_CHECK(class_character(c));
      } else if (c == '[') {
        open_class();
      } else if (c == '(') {
        STATOR_CHECK(open_group());
      } else if (next_is("}+") && after_interval()) {
        return unsupported(
            "an interval followed by + (it repeats in one syntax and not in the other)");
      } else {
        out_.push_back(c);
        ++at_;
      }
    }
    return std::move(out_);
  }

 private:
  Error unsupported(std::string_view what) const {
    return Error(Code::kUnsupported,
                 fmt::format("regular expression uses {}, which this tokenizer cannot run: {}",
                             what, shown(pattern_)));
  }

  bool next_is(std::string_view text) const { return pattern_.substr(at_).starts_with(text); }

  /// Whether what was written last is "{1,3" or alike.
  bool after_interval() const {
    const size_t digits = out_.find_last_not_of("0123456789,");
    return digits != std::string::npos && out_[digits] == '{' && digits + 1 < out_.size();
  }

  void open_class() {
    out_.push_back('[');
    ++at_;
    in_class_ = true;
    if (next_is("^")) {
      out_.push_back('^');
      ++at_;
    }
    if (next_is("]")) {
      out_ += "\\]";
      ++at_;
    }
  }

  Status class_character(char c) {
    if (next_is("&&")) {
      return unsupported("class intersection (&&)");
    }
    if (c == '[') {
      if (!next_is("[:")) {
        return unsupported("a nested class");
      }
      const size_t end = pattern_.find(":]", at_);
      if (end == std::string_view::npos) {
        return unsupported("an unfinished POSIX class");
      }
      out_.append(pattern_.substr(at_, end + 2 - at_));
      at_ = end + 2;
      return {};
    }
    in_class_ = c != ']';
    out_.push_back(c);
    ++at_;
    return {};
  }

  Status open_group() {
    if (next_is("(?")) {
      const size_t flags_end = pattern_.find_first_not_of("imx-", at_ + 2);
      const std::string_view flags =
          pattern_.substr(at_ + 2, std::min(flags_end, pattern_.size()) - at_ - 2);
      if (flags.find_first_of("mx") != std::string_view::npos) {
        return unsupported("inline options other than i");
      }
    }
    out_.push_back('(');
    ++at_;
    return {};
  }

  /// A class shorthand, inside or outside of brackets.
  void emit_set(std::string_view members, bool negated) {
    if (in_class_) {
      out_ += members;
    } else {
      out_ += fmt::format("[{}{}]", negated ? "^" : "", members);
    }
  }

  void emit_categories(CategorySet categories, bool negated) {
    const bool spell_others = in_class_ && negated;
    emit_set(class_members(categories, spell_others ? Members::kAllOthers : Members::kThese),
             negated);
  }

  /// `\p{…}`, `\p{^…}`, `\P{…}`.
  Status property() {
    const size_t end = pattern_.find('}', at_);
    if (end == std::string_view::npos || pattern_.size() <= at_ + 2 || pattern_[at_ + 2] != '{') {
      return unsupported("a \\p without a name in braces");
    }
    std::string_view name = pattern_.substr(at_ + 3, end - at_ - 3);
    bool negated = pattern_[at_ + 1] == 'P';
    if (name.starts_with('^')) {
      name.remove_prefix(1);
      negated = !negated;
    }
    at_ = end + 1;
    if (const auto categories = find_categories(name)) {
      emit_categories(*categories, negated);
    } else if (name == "Han" && !(negated && in_class_)) {
      emit_set(han_members(), negated);
    } else {
      const bool is_script = std::ranges::find(kScripts, name) != std::end(kScripts);
      out_ += fmt::format("\\{}{{{}{}}}", negated ? 'P' : 'p', is_script ? "sc:" : "", name);
    }
    return {};
  }

  Status escape() {
    if (at_ + 1 >= pattern_.size()) {
      return unsupported("a trailing backslash");
    }
    const char c = pattern_[at_ + 1];
    switch (c) {
      case 's':
        emit_set(kSpaces, false);
        break;
      case 'S':
        emit_set(in_class_ ? kNotSpaces : kSpaces, true);
        break;
      case 'w':
        emit_set(word_members(), false);
        break;
      case 'd':
      case 'D':
        emit_categories(as_set(GeneralCategory::kNd), c == 'D');
        break;
      case 'h':
        emit_set(kHexMembers, false);
        break;
      case 'W':
      case 'H':
        if (in_class_) {
          return unsupported("a negated shorthand (\\W, \\H) inside a class");
        }
        emit_set(c == 'W' ? std::string_view(word_members()) : kHexMembers, true);
        break;
      case 'p':
      case 'P':
        return property();
      case 'b':
      case 'B':
        if (!in_class_) {
          return unsupported("word boundaries (\\b, \\B)");
        }
        [[fallthrough]];
      default:
        out_.append({'\\', c});
        break;
    }
    at_ += 2;
    return {};
  }

  std::string_view pattern_;
  std::string out_;
  size_t at_ = 0;
  bool in_class_ = false;
};

/// What one thread needs to run any expression; created at its first match.
struct MatchState {
  MatchState() {
    pcre2_set_match_limit(context, kMatchLimit);
    pcre2_set_depth_limit(context, kMatchLimit);
    if (stack != nullptr) {
      pcre2_jit_stack_assign(context, nullptr, stack);
    }
  }
  MatchState(const MatchState&) = delete;
  MatchState& operator=(const MatchState&) = delete;
  ~MatchState() {
    pcre2_match_data_free(data);
    pcre2_match_context_free(context);
    pcre2_jit_stack_free(stack);
  }

  pcre2_match_data* data = pcre2_match_data_create(1, nullptr);
  pcre2_match_context* context = pcre2_match_context_create(nullptr);
  pcre2_jit_stack* stack = pcre2_jit_stack_create(32 << 10, kJitStackBytesMax, nullptr);
};

}  // namespace

void Regex::FreeCode::operator()(void* code) const {
  pcre2_code_free(static_cast<pcre2_code*>(code));
}

Result<Regex> Regex::compile(std::string_view pattern) {
  if (pattern.size() > kPatternBytesMax) {
    return Error(Code::kCorrupt,
                 fmt::format("regular expression of {} bytes; at most {} are accepted",
                             pattern.size(), kPatternBytesMax));
  }
  STATOR_TRY(const std::string translated, Translator(pattern).run());
  int error_number = 0;
  PCRE2_SIZE error_offset = 0;
  pcre2_code* code =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                    PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C,
                    &error_number, &error_offset, nullptr);
  if (code == nullptr) {
    PCRE2_UCHAR message[128] = {};
    pcre2_get_error_message(error_number, message, sizeof(message));
    return Error(Code::kCorrupt,
                 fmt::format("regular expression does not compile ({} at {}): {}",
                             reinterpret_cast<const char*>(message), error_offset, shown(pattern)));
  }
  Regex regex;
  regex.pattern_ = pattern;
  regex.code_ = std::shared_ptr<void>(code, FreeCode{});
  // Without JIT (an architecture it does not support) the interpreter runs the same expression.
  static_cast<void>(pcre2_jit_compile(code, PCRE2_JIT_COMPLETE));
  return regex;
}

Regex::Found Regex::find(std::string_view text, size_t from) const {
  thread_local MatchState state;
  const int rc = pcre2_match(static_cast<const pcre2_code*>(code_.get()),
                             reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), from,
                             PCRE2_NO_UTF_CHECK, state.data, state.context);
  if (rc == PCRE2_ERROR_NOMATCH) {
    return {Outcome::kNoMatch, 0, 0};
  }
  if (rc < 0) {
    return {Outcome::kGaveUp, 0, 0};
  }
  const PCRE2_SIZE* offsets = pcre2_get_ovector_pointer(state.data);
  // \K can put the start of a match behind its end or before `from`.
  if (offsets[0] > offsets[1] || offsets[0] < from) {
    return {Outcome::kGaveUp, 0, 0};
  }
  return {Outcome::kMatch, offsets[0], offsets[1]};
}

}  // namespace stator::tokenizer
