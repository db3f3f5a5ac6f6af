// SPDX-License-Identifier: Apache-2.0
#include "stator/lab/loadgen/sse_scanner.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>

namespace stator::loadgen {
namespace {

constexpr size_t kErrorBytesMax = 300;
constexpr std::string_view kWhite = " \t\r\n";

/// A quote opens a string that is not empty.
bool opens_text(std::string_view json, size_t at) {
  return at + 1 < json.size() && json[at] == '"' && json[at + 1] != '"';
}

uint64_t read_number(std::string_view json, std::string_view quoted_name) {
  const size_t at = find_value(json, quoted_name);
  uint64_t value = 0;
  if (at != std::string_view::npos) {
    std::from_chars(json.data() + at, json.data() + json.size(), value);
  }
  return value;
}

bool has_object(std::string_view json, std::string_view quoted_name) {
  const size_t at = find_value(json, quoted_name);
  return at != std::string_view::npos && at < json.size() && (json[at] == '{' || json[at] == '"');
}

bool has_piece_of_call(std::string_view line) {
  if (line.find("\"tool_calls\"") == std::string_view::npos &&
      line.find("\"function_call\"") == std::string_view::npos) {
    return false;
  }
  const size_t arguments = find_value(line, "\"arguments\"");
  const size_t name = find_value(line, "\"name\"");
  return (arguments != std::string_view::npos && opens_text(line, arguments)) ||
         (name != std::string_view::npos && opens_text(line, name));
}

}  // namespace

size_t find_value(std::string_view json, std::string_view quoted_name, size_t from) {
  for (size_t at = json.find(quoted_name, from); at != std::string_view::npos;
       at = json.find(quoted_name, at + 1)) {
    size_t value = json.find_first_not_of(kWhite, at + quoted_name.size());
    if (value != std::string_view::npos && json[value] == ':') {
      value = json.find_first_not_of(kWhite, value + 1);
      return value;
    }
  }
  return std::string_view::npos;
}

bool read_usage(std::string_view json, AnswerCounts& counts) {
  const size_t at = find_value(json, "\"usage\"");
  if (at == std::string_view::npos || json[at] != '{') {
    return false;
  }
  const std::string_view usage = json.substr(at);
  const auto has = [usage](std::string_view name) {
    return usage.find(name) != std::string_view::npos;
  };
  if (has("\"completion_tokens\"") || has("\"prompt_tokens\"")) {
    counts.prompt_tokens = read_number(usage, "\"prompt_tokens\"");
    counts.completion_tokens = read_number(usage, "\"completion_tokens\"");
  } else if (has("\"output_tokens\"") || has("\"input_tokens\"")) {
    // Anthropic's and those of OpenAI's Responses; of Anthropic's, cached ones count apart.
    counts.prompt_tokens =
        read_number(usage, "\"input_tokens\"") + read_number(usage, "\"cache_read_input_tokens\"");
    counts.completion_tokens = read_number(usage, "\"output_tokens\"");
  } else {
    return false;
  }
  counts.has_usage = true;
  return true;
}

size_t json_string_length(std::string_view after_quote) {
  for (size_t i = 0; i < after_quote.size(); ++i) {
    if (after_quote[i] == '\\') {
      ++i;
    } else if (after_quote[i] == '"') {
      return i;
    }
  }
  return after_quote.size();
}

void SseScanner::reset() {
  counts_ = {};
  partial_line_.clear();
  error_.clear();
  text_ = nullptr;
  error_event_ = false;
}

void SseScanner::capture(std::string* text, size_t bytes_max) {
  text_ = text;
  text_bytes_max_ = bytes_max;
  if (text != nullptr && known_field_.starts_with("\"reasoning")) {
    known_field_.clear();  // learnt when nobody asked which text it is
  }
}

void SseScanner::feed(std::string_view bytes) {
  const char* at = bytes.data();
  const char* const end = at + bytes.size();
  while (at < end) {
    const auto* newline =
        static_cast<const char*>(std::memchr(at, '\n', static_cast<size_t>(end - at)));
    if (newline == nullptr) {
      partial_line_.append(at, end);
      if (partial_line_.size() > kLineBytesMax) {
        fail("a line of the event stream is longer than 1 MiB");
        partial_line_.clear();
      }
      return;
    }
    const std::string_view line(at, static_cast<size_t>(newline - at));
    if (partial_line_.empty()) {
      take_line(line);
    } else {
      partial_line_ += line;
      take_line(partial_line_);
      partial_line_.clear();
    }
    at = newline + 1;
  }
}

void SseScanner::finish() {
  if (counts_.chunks == 0 && !counts_.has_usage) {
    fail("neither text nor token counts");
  }
}

void SseScanner::take_line(std::string_view line) {
  if (line.size() < 6) {
    error_event_ = error_event_ && !(line.empty() || line == "\r");  // an empty line ends an event
    return;
  }
  if (line.starts_with("event:")) {
    error_event_ = line.find("error") != std::string_view::npos;
    return;
  }
  if (!line.starts_with("data:")) {
    return;
  }
  if (line.back() == '\r') {
    line.remove_suffix(1);
  }
  if (take_known_place(line)) {
    // Some servers put the usage into the last event with text: then two objects end the line.
    if (line.ends_with("}}")) {
      read_usage(line, counts_);
    }
    return;
  }
  search(line);
}

bool SseScanner::take_known_place(std::string_view line) {
  const size_t value = known_at_ + known_field_.size();
  if (known_field_.empty() || line.size() <= value || line[value] == '"' ||
      std::memcmp(line.data() + known_at_, known_field_.data(), known_field_.size()) != 0) {
    return false;
  }
  ++counts_.chunks;
  if (text_ != nullptr) {
    keep_text(line.substr(value));
  }
  return true;
}

void SseScanner::search(std::string_view line) {
  static constexpr std::array<std::string_view, 4> kTextFields = {
      "\"content\"", "\"text\"", "\"reasoning_content\"", "\"reasoning\""};
  for (const std::string_view field : kTextFields) {
    const size_t value = find_value(line, field);
    if (value == std::string_view::npos || !opens_text(line, value)) {
      continue;
    }
    ++counts_.chunks;
    // Only text that belongs to the answer is worth remembering for the next turn.
    const bool is_answer = field == kTextFields[0] || field == kTextFields[1];
    if (text_ != nullptr && is_answer) {
      keep_text(line.substr(value + 1));
    }
    if (is_answer || text_ == nullptr) {
      known_at_ = line.rfind(field, value);
      known_field_.assign(line.substr(known_at_, value + 1 - known_at_));
    }
    read_usage(line, counts_);
    return;
  }
  if (has_piece_of_call(line)) {
    ++counts_.chunks;
    return;
  }
  const std::string_view data = line.substr(std::min(line.size(), line.find_first_not_of(" ", 5)));
  if (data == "[DONE]") {
    counts_.done = true;
  } else if (error_event_ || has_object(line, "\"error\"")) {
    fail(data);
  } else {
    read_usage(line, counts_);
  }
}

void SseScanner::fail(std::string_view data) {
  if (!counts_.failed) {
    error_.assign(data.substr(0, kErrorBytesMax));
  }
  counts_.failed = true;
}

void SseScanner::keep_text(std::string_view from_quote) {
  const std::string_view text = from_quote.substr(0, json_string_length(from_quote));
  if (text_->size() + text.size() <= text_bytes_max_) {
    text_->append(text);
  }
}

}  // namespace stator::loadgen
