// SPDX-License-Identifier: Apache-2.0
#include "stator/core/log.h"

#include <fmt/chrono.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "stator/core/clock.h"
#include "stator/core/credentials.h"

namespace stator::log {
namespace {

constexpr size_t kLineBytesMax = 16 * 1024;
constexpr std::array<std::string_view, 6> kLevelNames = {"trace", "debug", "info",
                                                         "warn",  "error", "off"};
constexpr int kOff = 5;

struct Filter {
  int level = static_cast<int>(LogLevel::kInfo);
  std::vector<std::pair<std::string, int>> targets;
};

struct Settings {
  Format format = Format::kHuman;
  Filter filter;
};

std::shared_ptr<const Settings> initial_settings() {
  return std::make_shared<Settings>();
}
std::atomic<std::shared_ptr<const Settings>>& settings() {
  static std::atomic<std::shared_ptr<const Settings>> value{initial_settings()};
  return value;
}
// The lowest level any target lets through, so that a disabled debug line costs one load.
std::atomic<int> g_lowest{static_cast<int>(LogLevel::kInfo)};

std::optional<int> parse_level(std::string_view name) {
  for (size_t i = 0; i < kLevelNames.size(); ++i) {
    if (kLevelNames[i] == name) {
      return static_cast<int>(i);
    }
  }
  return std::nullopt;
}

std::optional<Filter> parse_filter(std::string_view text) {
  Filter filter;
  while (!text.empty()) {
    const size_t comma = text.find(',');
    const std::string_view part = text.substr(0, comma);
    text = comma == std::string_view::npos ? std::string_view{} : text.substr(comma + 1);
    const size_t equals = part.find('=');
    const auto level =
        parse_level(equals == std::string_view::npos ? part : part.substr(equals + 1));
    if (!level) {
      return std::nullopt;
    }
    if (equals == std::string_view::npos) {
      filter.level = *level;
    } else {
      filter.targets.emplace_back(part.substr(0, equals), *level);
    }
  }
  return filter;
}

int level_for(const Filter& filter, std::string_view target) {
  int level = filter.level;
  size_t longest = 0;
  for (const auto& [prefix, target_level] : filter.targets) {
    const bool matches = target.starts_with(prefix) &&
                         (target.size() == prefix.size() || target[prefix.size()] == '.');
    if (matches && prefix.size() >= longest) {
      longest = prefix.size();
      level = target_level;
    }
  }
  return level;
}

void append_escaped(std::string& out, std::string_view text) {
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (byte < 0x20 || byte == 0x7F) {
      fmt::format_to(std::back_inserter(out), "\\u{:04x}", byte);
    } else {
      out += c;
    }
  }
}

std::string format_time(int64_t unix_micros) {
  const std::time_t seconds = static_cast<std::time_t>(unix_micros / 1'000'000);
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:06d}Z", fmt::gmtime(seconds), unix_micros % 1'000'000);
}

}  // namespace

bool configure(Format format, std::string_view filter_text) {
  auto filter = parse_filter(filter_text);
  if (!filter) {
    return false;
  }
  int lowest = filter->level;
  for (const auto& [prefix, level] : filter->targets) {
    lowest = std::min(lowest, level);
  }
  auto next = std::make_shared<Settings>();
  next->format = format;
  next->filter = std::move(*filter);
  settings().store(std::move(next));
  g_lowest.store(lowest, std::memory_order_relaxed);
  return true;
}

bool enabled(LogLevel level, std::string_view target) {
  if (static_cast<int>(level) < g_lowest.load(std::memory_order_relaxed)) {
    return false;
  }
  const auto current = settings().load();
  const int threshold = level_for(current->filter, target);
  return threshold != kOff && static_cast<int>(level) >= threshold;
}

std::string format_line(Format format, LogLevel level, std::string_view target,
                        std::string_view message, std::initializer_list<Field> fields,
                        int64_t unix_micros) {
  static constexpr std::array<std::string_view, 5> kUpper = {"TRACE", "DEBUG", "INFO", "WARN",
                                                             "ERROR"};
  const std::string_view level_name = kUpper[static_cast<size_t>(level)];
  std::string line;
  const bool json = format == Format::kJson;
  if (json) {
    fmt::format_to(std::back_inserter(line), R"({{"time":"{}","level":"{}","target":")",
                   format_time(unix_micros), level_name);
    append_escaped(line, target);
    line += R"(","message":")";
    append_escaped(line, message);
    line += '"';
  } else {
    fmt::format_to(std::back_inserter(line), "{} {:<5} {}: ", format_time(unix_micros), level_name,
                   target);
    append_escaped(line, message);
  }
  for (const Field& field : fields) {
    const bool bare = !field.quoted || (!json && !field.text.empty() &&
                                        field.text.find_first_of(" \"=\n") == std::string::npos);
    line += json ? ",\"" : " ";
    line += field.key;
    line += json ? "\":" : "=";
    if (bare) {
      line += field.text;
    } else {
      line += '"';
      append_escaped(line, field.text);
      line += '"';
    }
    if (line.size() > kLineBytesMax) {
      break;
    }
  }
  if (line.size() > kLineBytesMax) {
    line.resize(kLineBytesMax - 24);
    line += json ? R"(","truncated":true)" : " truncated=true";
  }
  if (json) {
    line += '}';
  }
  line += '\n';
  return hide_credentials(line);
}

void write(LogLevel level, std::string_view target, std::string_view message,
           std::initializer_list<Field> fields) {
  if (!enabled(level, target)) {
    return;
  }
  const auto now = SystemClock().wall_now().time_since_epoch();
  const std::string line =
      format_line(settings().load()->format, level, target, message, fields,
                  std::chrono::duration_cast<std::chrono::microseconds>(now).count());
  // One write(2) per line: lines of several threads never interleave.
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace stator::log
