// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <cstdint>
#include <string>

#include "stator/api/chunk_encoder.h"
#include "stator/api/request_parser.h"
#include "stator/core/assert.h"
#include "stator/text/utf8.h"

// Any bytes parse or are refused; what parsed keeps the limits, and its text survives encoding.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace stator::api;
  std::string body(reinterpret_cast<const char*>(data), size);
  const auto result = parse_completion_request(body, {});
  if (!result.has_value()) {
    return 0;
  }
  STATOR_ASSERT(result->prompts.size() * result->options.n <= kMaxChoices, "batch limit");
  const CompletionChunkEncoder encoder({.id = "x", .model = result->options.model}, {});
  std::string out;
  for (const Prompt& prompt : result->prompts) {
    if (const auto* text = std::get_if<std::string>(&prompt)) {
      STATOR_ASSERT(!text->empty(), "prompts are not empty");
      encoder.append_delta(out, {.text = *text});
    }
  }
  STATOR_ASSERT(stator::text::is_valid_utf8(out), "frames are UTF-8");
  return 0;
}
