// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>

#include "stator/core/error_code.h"

namespace stator::log {

/// One key and value beside the message: searchable, never text to be parsed.
struct Field {
  template <typename T>
  Field(std::string_view key_in, const T& value_in) : key(key_in) {
    if constexpr (std::is_same_v<T, bool>) {
      text = value_in ? "true" : "false";
      quoted = false;
    } else if constexpr (std::is_arithmetic_v<T>) {
      text = fmt::to_string(value_in);
      quoted = false;
    } else {
      text = std::string(std::string_view(value_in));
    }
  }
  std::string_view key;
  std::string text;
  bool quoted = true;
};

enum class Format : uint8_t { kHuman, kJson };

/// Process-wide settings, set once by `main` before threads start. The log is the one deliberate
/// global: a line must be writable from everywhere, and nothing ever reads it back.
/// `filter` is "level[,target=level]*", e.g. "info,router=debug"; the longest target prefix wins.
/// Returns false, and changes nothing, if the filter does not parse.
bool configure(Format format, std::string_view filter);

/// Cheap: one relaxed load when the level is off everywhere.
bool enabled(LogLevel level, std::string_view target);

/// Writes one line to stderr: JSON (`time level target message` and the fields) or human-readable.
/// At most 16 KiB; control characters escaped. Thread-safe; lines never interleave. Never log
/// prompts, outputs or credentials.
void write(LogLevel level, std::string_view target, std::string_view message,
           std::initializer_list<Field> fields = {});

inline void debug(std::string_view target, std::string_view message,
                  std::initializer_list<Field> fields = {}) {
  if (enabled(LogLevel::kDebug, target)) {
    write(LogLevel::kDebug, target, message, fields);
  }
}
inline void info(std::string_view target, std::string_view message,
                 std::initializer_list<Field> fields = {}) {
  write(LogLevel::kInfo, target, message, fields);
}
inline void warn(std::string_view target, std::string_view message,
                 std::initializer_list<Field> fields = {}) {
  write(LogLevel::kWarn, target, message, fields);
}
inline void error(std::string_view target, std::string_view message,
                  std::initializer_list<Field> fields = {}) {
  write(LogLevel::kError, target, message, fields);
}

/// Renders a line without writing it; `write` and the tests share it.
std::string format_line(Format format, LogLevel level, std::string_view target,
                        std::string_view message, std::initializer_list<Field> fields,
                        int64_t unix_micros);

}  // namespace stator::log
