// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "stator/core/clock.h"
#include "stator/core/hash.h"
#include "stator/core/random.h"

namespace stator::fault_sim {

/// What happened in a run, as lines and as one hash over them: equal runs have equal hashes.
/// Violations of invariants are kept.
class RunLog {
 public:
  /// `print` gets every line; may be empty.
  RunLog(const Clock& clock, std::function<void(std::string_view)> print)
      : clock_(clock), print_(std::move(print)) {}

  template <typename... Args>
  void note(fmt::format_string<Args...> format, Args&&... args) {
    add(fmt::format(format, std::forward<Args>(args)...));
  }
  template <typename... Args>
  void violation(fmt::format_string<Args...> format, Args&&... args) {
    std::string text = fmt::format(format, std::forward<Args>(args)...);
    add("VIOLATION " + text);
    violations_.push_back(std::move(text));
  }

  uint64_t hash() const { return hash_; }
  const std::vector<std::string>& violations() const { return violations_; }

 private:
  void add(const std::string& text) {
    const double at = std::chrono::duration<double>(clock_.now().time_since_epoch()).count();
    const std::string line = fmt::format("{:10.6f} {}", at, text);
    hash_ = mix64(hash_ ^ xxh3_64(std::as_bytes(std::span(line))));
    if (print_) {
      print_(line);
    }
  }

  const Clock& clock_;
  const std::function<void(std::string_view)> print_;
  uint64_t hash_ = 0;
  std::vector<std::string> violations_;
};

}  // namespace stator::fault_sim
