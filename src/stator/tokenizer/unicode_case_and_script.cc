// SPDX-License-Identifier: Apache-2.0
#include "stator/tokenizer/unicode.h"

#include <utf8proc.h>

#include <algorithm>

namespace stator::tokenizer {
namespace {

struct Lower {
  char32_t code_point;
  char32_t lower;
};

constexpr Lower kLowerExceptions[] = {
#include "stator/tokenizer/lowercase_data.inc"  // NOLINT(bugprone-suspicious-include): generated
};

struct ScriptRun {
  char32_t first;
  uint8_t script;
};

constexpr ScriptRun kScriptRuns[] = {
#include "stator/tokenizer/script_data.inc"  // NOLINT(bugprone-suspicious-include): generated
};

}  // namespace

char32_t to_lower(char32_t code_point) {
  if (code_point < 0x80) {
    return code_point >= U'A' && code_point <= U'Z' ? code_point + 0x20 : code_point;
  }
  const auto* exception =
      std::ranges::lower_bound(kLowerExceptions, code_point, {}, &Lower::code_point);
  if (exception != std::end(kLowerExceptions) && exception->code_point == code_point) {
    return exception->lower;
  }
  return static_cast<char32_t>(utf8proc_tolower(static_cast<int32_t>(code_point)));
}

uint8_t script_of(char32_t code_point) {
  const auto* after = std::ranges::upper_bound(kScriptRuns, code_point, {}, &ScriptRun::first);
  return (after - 1)->script;  // the first run starts at 0
}

}  // namespace stator::tokenizer
