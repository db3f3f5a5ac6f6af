// SPDX-License-Identifier: Apache-2.0
// Bodies of POST /inference/v1/generate, /generate and /: what is accepted has a prompt.
#include <cstddef>
#include <cstdint>
#include <string>

#include "stator/core/assert.h"
#include "stator/protocols/tokens/tokens.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace stator::protocols;
  for (const Protocol* protocol : {&tokens::kVllm, &tokens::kSglang, &tokens::kTgi}) {
    std::string body(reinterpret_cast<const char*>(data), size);
    const auto reading = protocol->read(body, {.limits = {.guided_decoding = true}});
    if (reading) {
      const auto& request = reading->request;
      STATOR_ASSERT(
          !request.options.nvext.token_data.empty() || request.options.nvext.use_raw_prompt,
          "there is a prompt");
      STATOR_ASSERT(request.options.n == 1 && reading->echo != nullptr,
                    "one answer, with its echo");
    }
  }
  return 0;
}
