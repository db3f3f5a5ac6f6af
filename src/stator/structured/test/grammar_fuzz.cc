// SPDX-License-Identifier: Apache-2.0
#include "stator/structured/grammar.h"

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "stator/core/assert.h"

// Any bytes are either a grammar or a refusal that says where; an EBNF grammar in llama.cpp's
// spelling is one, too.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace stator::structured;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto lark = check_grammar(text, Grammar::Syntax::kLark);
  STATOR_ASSERT(lark.has_value() || !lark.error().text.empty(), "refusals say why");
  const auto ebnf = check_grammar(text, Grammar::Syntax::kEbnf);
  if (!ebnf.has_value()) {
    STATOR_ASSERT(!ebnf.error().text.empty(), "refusals say why");
    return 0;
  }
  const auto gbnf = ebnf_to_gbnf(text);
  STATOR_ASSERT(!gbnf.has_value() || check_grammar(*gbnf, Grammar::Syntax::kEbnf).has_value(),
                "what is written reads back");
  return 0;
}
