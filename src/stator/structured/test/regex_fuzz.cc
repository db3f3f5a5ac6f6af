// SPDX-License-Identifier: Apache-2.0
#include "stator/structured/regex.h"

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "stator/core/assert.h"
#include "stator/structured/grammar.h"

// Any bytes are either a pattern, whose grammar is a grammar, or a refusal that says where.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace stator::structured;
  const std::string_view pattern(reinterpret_cast<const char*>(data), size);
  const auto facts = check_regex(pattern);
  if (!facts.has_value()) {
    STATOR_ASSERT(!facts.error().text.empty(), "refusals say why");
    return 0;
  }
  const std::string gbnf = regex_to_gbnf(pattern);
  STATOR_ASSERT(check_grammar(gbnf, Grammar::Syntax::kEbnf).has_value(), "the grammar is one");
  return 0;
}
