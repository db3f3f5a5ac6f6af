// SPDX-License-Identifier: Apache-2.0
// Input: a vocabulary file of any format. Whatever loads must encode, and decode the same in steps.
#include "stator/core/assert.h"
#include "stator/tokenizer/incremental_detokenizer.h"
#include "stator/tokenizer/tokenizer.h"
#include "stator/tokenizer/unicode.h"

#include <cstddef>
#include <cstdint>

using namespace stator;             // NOLINT(google-build-using-namespace): one function
using namespace stator::tokenizer;  // NOLINT(google-build-using-namespace): one function

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view file(reinterpret_cast<const char*>(data), size);
  const auto tokenizer = Tokenizer::from_bytes(file, {});
  if (!tokenizer.has_value()) {
    return 0;
  }
  constexpr std::string_view kText = "ab  abc<|end|> e\u0301\u4e2d\U0001F600 12345 it's\n\n x";
  std::vector<TokenId> ids;
  if (!(*tokenizer)->encode(kText, {.add_special = AddSpecial::kYes}, ids).has_value()) {
    STATOR_ASSERT(ids.empty(), "a failed encode leaves the output alone");
    return 0;
  }
  const std::string whole = (*tokenizer)->decode(ids, SkipSpecial::kNo);
  STATOR_ASSERT(is_valid_utf8(whole), "I2 holds for any model");
  for (const TokenId id : ids) {
    STATOR_ASSERT((*tokenizer)->contains(id), "a vocabulary has the ids that it gives");
  }
  return 0;
}
