// SPDX-License-Identifier: Apache-2.0
#include "stator/structured/grammar.h"

#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>

#include "stator/structured/detail/grammar_scan.h"

namespace stator::structured {

std::string place_in(std::string_view text, size_t at) {
  const std::string_view before = text.substr(0, at);
  const auto line = std::ranges::count(before, '\n') + 1;
  const size_t line_begin = before.rfind('\n') + 1;  // npos + 1 is 0
  const auto column = std::ranges::count_if(before.substr(line_begin), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U;
  });
  return fmt::format("line {}, column {}", line, column + 1);
}

void GrammarScanner::skip_line() {
  at_ = std::min(text_.find('\n', at_), text_.size());
}

bool GrammarScanner::take_quoted(char quote, std::string_view what) {
  const size_t begin = at_++;
  while (at_ < text_.size() && text_[at_] != quote && text_[at_] != '\n') {
    at_ += text_[at_] == '\\' ? 2 : 1;
  }
  if (at_ >= text_.size() || text_[at_] != quote) {
    at_ = std::min(at_, text_.size());
    return fail(begin, fmt::format("{} does not end on its line", what));
  }
  ++at_;
  return true;
}

bool GrammarScanner::check_escapes(size_t begin, std::string_view known) {
  const auto is_hex = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
  };
  for (size_t i = begin; i < at_; ++i) {
    if (text_[i] != '\\') {
      continue;
    }
    const size_t escape = i;
    const char letter = text_[++i];
    const size_t digits = letter == 'x' ? 2 : letter == 'u' ? 4 : letter == 'U' ? 8 : 0;
    if (digits == 0 && !known.contains(letter)) {
      return fail(escape, fmt::format("unknown escape \\{}", letter));
    }
    for (size_t digit = 0; digit < digits; ++digit) {
      if (++i >= at_ || !is_hex(text_[i])) {
        return fail(escape, fmt::format("\\{} needs {} hexadecimal digits", letter, digits));
      }
    }
  }
  return true;
}

bool GrammarScanner::fail(size_t at, std::string_view why) {
  if (!refusal_) {
    refusal_ = refuse_at(place_in(text_, at), why);
  }
  return false;
}

const GrammarToken* GrammarNames::find_undefined() const {
  const auto found =
      std::ranges::find_if(used_, [this](const GrammarToken& use) { return !defines(use.text); });
  return found == used_.end() ? nullptr : &*found;
}

Grammar::Syntax detect_syntax(std::string_view text) {
  while (!text.empty()) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    line = line.substr(0, std::min(line.find('#'), line.find("//")));
    if (line.contains("::=")) {
      return Grammar::Syntax::kEbnf;
    }
  }
  return Grammar::Syntax::kLark;
}

Check check_grammar(std::string_view text, Grammar::Syntax syntax) {
  if (text.size() > kTextBytesMax) {
    return Refusal{Code::kTooLarge, {}, fmt::format("is longer than {} MiB", kTextBytesMax >> 20U)};
  }
  if (!simdjson::validate_utf8(text.data(), text.size())) {
    return refuse("is not valid UTF-8");
  }
  if (syntax == Grammar::Syntax::kLark) {
    return check_lark(text);
  }
  STATOR_CHECK(parse_ebnf(text));
  return {};
}

Outcome<std::string> ebnf_to_gbnf(std::string_view text) {
  STATOR_TRY(const std::vector<GrammarToken> tokens, parse_ebnf(text));
  KeyedMap<std::string_view> original;  // by new name
  std::string out;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const GrammarToken& token = tokens[i];
    const bool begins_rule = i + 1 < tokens.size() && tokens[i + 1].kind == GrammarToken::kDefine;
    if (!out.empty()) {
      out += begins_rule ? '\n' : ' ';
    }
    if (token.kind != GrammarToken::kName) {
      out += token.text;
      continue;
    }
    std::string name(token.text);
    std::ranges::replace_if(name, [](char c) { return c == '_' || c == '.'; }, '-');
    if (name.front() == '-') {
      name.insert(0, 1, 'r');  // a name begins with a letter in every dialect
    }
    const auto [known, added] = original.try_emplace(name, token.text);
    if (!added && known->second != token.text) {
      return refuse_at(place_in(text, token.at),
                       fmt::format("{} and {} are the same name to llama.cpp, which has neither _ "
                                   "nor . in names: rename one",
                                   known->second, token.text));
    }
    out += name;
  }
  return out;
}

}  // namespace stator::structured
