// SPDX-License-Identifier: Apache-2.0
#include "stator/app/dynamo_source.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

namespace stator::app {
namespace {

constexpr std::string_view kVariable = "DYN_";
constexpr std::string_view kModule = "dynamo.";

bool is_name_char(char c) {
  return (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

/// Words as shells and YAML lists have them; marks are words of their own.
class Words {
 public:
  explicit Words(std::string_view text) : rest_(text) {}

  /// Nothing at the end.
  std::optional<std::string> next() {
    skip();
    if (rest_.empty()) {
      return std::nullopt;
    }
    if (rest_.front() == '"' || rest_.front() == '\'') {
      return quoted();
    }
    if (std::string_view("[],{};&|").find(rest_.front()) != std::string_view::npos) {
      std::string mark(1, rest_.front());
      rest_.remove_prefix(1);
      return mark;
    }
    size_t end = 0;
    while (end < rest_.size() && !ends_word(rest_[end])) {
      ++end;
    }
    std::string word(rest_.substr(0, end));
    rest_.remove_prefix(end);
    return word;
  }

 private:
  static bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }
  static bool ends_word(char c) {
    return is_space(c) || c == ',' || c == ']' || c == '[' || c == ';' || c == '"' || c == '\'';
  }

  /// White space, ends of lines that go on, comments.
  void skip() {
    bool line_begins = false;
    while (!rest_.empty()) {
      const char c = rest_.front();
      if (c == '#' && line_begins) {
        rest_.remove_prefix(std::min(rest_.find('\n'), rest_.size()));
      } else if (is_space(c) || c == '\\') {
        line_begins |= is_space(c);
        rest_.remove_prefix(1);
      } else {
        return;
      }
    }
  }

  std::string quoted() {
    const char quote = rest_.front();
    rest_.remove_prefix(1);
    std::string word;
    while (!rest_.empty() && rest_.front() != quote) {
      if (quote == '"' && rest_.front() == '\\' && rest_.size() > 1) {
        rest_.remove_prefix(1);
      }
      word += rest_.front();
      rest_.remove_prefix(1);
    }
    rest_.remove_prefix(std::min<size_t>(rest_.size(), 1));
    return word;
  }

  std::string_view rest_;
};

/// What stands behind a variable's name: `=value`, `: value`, or a `value:` of the same entry.
std::optional<std::string> value_behind(std::string_view rest) {
  if (rest.starts_with('=')) {
    rest.remove_prefix(1);
    if (rest.empty() || rest.front() == ' ' || rest.front() == '\n') {
      return std::string();
    }
    return Words(rest).next();
  }
  if (rest.starts_with("\":") || rest.starts_with("':") || rest.starts_with(':')) {
    rest.remove_prefix(rest.front() == ':' ? 1 : 2);
    return Words(rest.substr(0, rest.find('\n'))).next();
  }
  // - name: DYN_X
  //   value: "1"
  constexpr size_t kNear = 3;
  Words words(rest);
  for (size_t i = 0; i < kNear; ++i) {
    const auto word = words.next();
    if (!word || word->starts_with(kVariable)) {
      return std::nullopt;
    }
    if (*word == "value:") {
      return words.next();
    }
  }
  return std::nullopt;
}

std::vector<DynamoVariable> read_variables(std::string_view text) {
  std::map<std::string, std::optional<std::string>> found;
  for (size_t at = text.find(kVariable); at != std::string_view::npos;
       at = text.find(kVariable, at)) {
    size_t end = at;
    while (end < text.size() && is_name_char(text[end])) {
      ++end;
    }
    const bool begins = at == 0 || !is_name_char(text[at - 1]);
    if (begins && end > at + kVariable.size()) {
      auto& value = found[std::string(text.substr(at, end - at))];
      if (auto given = value_behind(text.substr(end))) {
        value = std::move(given);
      }
    }
    at = end;
  }
  std::vector<DynamoVariable> out;
  for (auto& [name, value] : found) {
    out.push_back({name, std::move(value)});
  }
  return out;
}

/// What ends a command line in a list or in a script.
bool ends_command(std::string_view word) {
  static constexpr auto kPassed = std::to_array<std::string_view>({"args:", "command:"});
  if (word == ";" || word == "&" || word == "---") {
    return true;
  }
  return word.size() > 1 && word.ends_with(':') && !word.starts_with("--") &&
         std::ranges::find(kPassed, word) == kPassed.end();
}

bool is_mark(std::string_view word) {
  return word == "-" || word == "[" || word == "]" || word == "," || word == "|" || word == ">" ||
         word == "|-" || word == ">-" || word.ends_with(':') || word == "}";
}

/// Of one command line; `rest` begins behind the module's name.
void read_flags(std::string_view module, std::string_view rest, std::vector<DynamoFlag>& out) {
  Words words(rest);
  bool has_flag = false;
  while (const auto word = words.next()) {
    if (ends_command(*word) || word->starts_with(kModule)) {
      return;
    }
    if (word->starts_with("--") && word->size() > 2) {
      const size_t equals = std::min(word->find('='), word->size());
      out.push_back({.module = std::string(module),
                     .flag = word->substr(0, equals),
                     .value = word->substr(std::min(equals + 1, word->size()))});
      has_flag = true;
    } else if (has_flag && !is_mark(*word)) {
      std::string& value = out.back().value;
      value += value.empty() ? "" : " ";
      value += *word;
    }
  }
}

}  // namespace

DynamoSource read_dynamo_source(std::string_view text) {
  DynamoSource source{.variables = read_variables(text), .flags = {}};
  for (size_t at = text.find(kModule); at != std::string_view::npos; at = text.find(kModule, at)) {
    size_t end = at + kModule.size();
    while (end < text.size() &&
           (std::isalnum(static_cast<unsigned char>(text[end])) != 0 || text[end] == '_')) {
      ++end;
    }
    const std::string_view module = text.substr(at + kModule.size(), end - at - kModule.size());
    // Of `python -m dynamo.vllm`; `--endpoint dyn://dynamo.backend.generate` is none.
    const std::string_view before = text.substr(0, at).substr(at - std::min<size_t>(at, 40));
    const size_t dash = before.rfind("-m");
    const bool runs = dash != std::string_view::npos &&
                      before.find_first_not_of(" \t\r\n,\"'-", dash + 2) == std::string_view::npos;
    if (runs && !module.empty()) {
      const size_t quote = end < text.size() && (text[end] == '"' || text[end] == '\'') ? 1 : 0;
      read_flags(module, text.substr(end + quote), source.flags);
    }
    at = end;
  }
  return source;
}

}  // namespace stator::app
