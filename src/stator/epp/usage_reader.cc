// SPDX-License-Identifier: Apache-2.0
#include "stator/epp/usage_reader.h"

#include <algorithm>
#include <initializer_list>

#include "stator/json/value.h"

namespace stator::epp {
namespace {

constexpr std::string_view kKey = "\"usage\"";
constexpr uint32_t kDepthMax = 8;
constexpr size_t kValuesMax = 1000;

bool is_space(char c) {
  return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

/// The object that begins at `at`, to its closing brace; empty if it does not end or is none.
std::string_view object_at(std::string_view text, size_t at) {
  if (at >= text.size() || text[at] != '{') {
    return {};
  }
  int depth = 0;
  bool in_string = false;
  for (size_t i = at; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') {
        ++i;
      } else if (c == '"') {
        in_string = false;
      }
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{') {
      ++depth;
    } else if (c == '}' && --depth == 0) {
      return text.substr(at, i + 1 - at);
    }
  }
  return {};
}

void take(const json::Value& object, std::initializer_list<std::string_view> path,
          std::optional<uint64_t>& into) {
  const json::Value* value = object.find_at(path);
  if (const auto number = value == nullptr ? std::nullopt : value->as_uint64()) {
    into = number;
  }
}

}  // namespace

bool read_usage(std::string_view json, TokenUsage& usage) {
  for (size_t key = json.rfind(kKey); key != std::string_view::npos;
       key = key == 0 ? std::string_view::npos : json.rfind(kKey, key - 1)) {
    size_t at = key + kKey.size();
    while (at < json.size() && (is_space(json[at]) || json[at] == ':')) {
      ++at;
    }
    const std::string_view text = object_at(json, at);
    if (text.empty()) {
      continue;  // null, or cut off
    }
    const auto object = json::parse(text, {.depth_max = kDepthMax, .values_max = kValuesMax});
    if (!object) {
      continue;
    }
    take(*object, {"input_tokens"}, usage.prompt);
    take(*object, {"prompt_tokens"}, usage.prompt);
    take(*object, {"output_tokens"}, usage.output);
    take(*object, {"completion_tokens"}, usage.output);
    take(*object, {"cache_read_input_tokens"}, usage.cached);
    take(*object, {"input_tokens_details", "cached_tokens"}, usage.cached);
    take(*object, {"prompt_tokens_details", "cached_tokens"}, usage.cached);
    return true;
  }
  return false;
}

void UsageReader::set_content_type(std::string_view type) {
  is_stream_ = type.starts_with("text/event-stream");
}

void UsageReader::add(std::string_view piece) {
  if (is_stream_) {
    add_lines(piece);
    return;
  }
  if (piece.size() >= kKeptMax) {
    kept_ = piece.substr(piece.size() - kKeptMax);
    return;
  }
  if (kept_.size() + piece.size() > 2 * kKeptMax) {
    kept_.erase(0, kept_.size() - kKeptMax);
  }
  kept_ += piece;
}

void UsageReader::add_lines(std::string_view piece) {
  while (!piece.empty()) {
    const size_t end = piece.find('\n');
    const std::string_view part = piece.substr(0, std::min(end, piece.size()));
    if (end != std::string_view::npos && kept_.empty() && !is_cut_) {
      on_line(part);  // whole: nothing to put together
    } else {
      const size_t room = kKeptMax - kept_.size();
      is_cut_ = is_cut_ || part.size() > room;
      kept_ += part.substr(0, room);
      if (end != std::string_view::npos) {
        if (!is_cut_) {
          on_line(kept_);
        }
        kept_.clear();
        is_cut_ = false;
      }
    }
    piece.remove_prefix(end == std::string_view::npos ? piece.size() : end + 1);
  }
}

void UsageReader::on_line(std::string_view line) {
  if (line.starts_with("data:")) {
    read_usage(line, usage_);
  }
}

TokenUsage UsageReader::finish() {
  if (!is_stream_) {
    read_usage(kept_, usage_);
  } else if (!kept_.empty() && !is_cut_) {
    on_line(kept_);
  }
  kept_.clear();
  return usage_;
}

}  // namespace stator::epp
