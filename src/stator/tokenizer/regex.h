// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "stator/core/result.h"

namespace stator::tokenizer {

/// A regular expression from a tokenizer.json: written for Oniguruma (Ruby syntax), run by PCRE2
/// with JIT. The differences that matter are translated at compile time: `\s`, `\w`, `\d` and `\p`
/// are the reference's sets (PCRE2's differ), `\h` is a hex digit, `^` and `$` work per line. What
/// has no equivalent (class intersection, nested classes, inline options other than i) is
/// kUnsupported.
///
/// Immutable and thread-safe; match data and JIT stack are per thread.
class Regex {
 public:
  static Result<Regex> compile(std::string_view pattern);

  enum class Outcome : uint8_t { kMatch, kNoMatch, kGaveUp };
  struct Found {
    Outcome outcome;
    size_t begin;
    size_t end;
  };

  /// First match at or after `from` in valid UTF-8 `text`. kGaveUp: the expression needs more than
  /// kMatchLimit steps or too deep a stack for this text.
  Found find(std::string_view text, size_t from) const;

  const std::string& pattern() const { return pattern_; }

 private:
  struct FreeCode {
    void operator()(void* code) const;
  };
  Regex() = default;
  std::string pattern_;
  std::shared_ptr<void> code_;  // pcre2_code
};

}  // namespace stator::tokenizer
