// SPDX-License-Identifier: Apache-2.0
// Input: a tokenizer.json, a NUL byte, a text. Whatever loads must encode, and decode the same in
// steps.
#include "stator/core/assert.h"
#include "stator/tokenizer/incremental_detokenizer.h"
#include "stator/tokenizer/tokenizer.h"
#include "stator/tokenizer/unicode.h"

#include <cstddef>
#include <cstdint>

using namespace stator;             // NOLINT(google-build-using-namespace): one function
using namespace stator::tokenizer;  // NOLINT(google-build-using-namespace): one function

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t cut = input.find('\0');
  const auto tokenizer = Tokenizer::from_json(input.substr(0, cut));
  if (!tokenizer.has_value()) {
    return 0;
  }
  const std::string_view text = cut == std::string_view::npos ? input : input.substr(cut + 1);
  std::vector<TokenId> ids;
  if (!(*tokenizer)->encode(text, {.add_special = AddSpecial::kYes}, ids).has_value()) {
    STATOR_ASSERT(ids.empty(), "a failed encode leaves the output alone");
    return 0;
  }
  const std::string whole = (*tokenizer)->decode(ids, SkipSpecial::kNo);
  IncrementalDetokenizer detokenizer(**tokenizer, SkipSpecial::kNo, StreamStart::kStartOfText);
  std::string steps;
  for (const TokenId id : ids) {
    detokenizer.step(id, steps);
  }
  detokenizer.finish(steps);
  STATOR_ASSERT(steps == whole && is_valid_utf8(whole), "I1 and I2 hold for any model");
  return 0;
}
