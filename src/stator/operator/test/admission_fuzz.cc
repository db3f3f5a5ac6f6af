// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <string_view>

#include "stator/core/assert.h"
#include "stator/json/value.h"
#include "stator/operator/admission.h"

using namespace stator;

/// Whatever an API server sends, each webhook has an answer to it.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto review = json::parse(text, {.depth_max = 64, .values_max = 20'000});
  if (!review) {
    return 0;
  }
  for (const json::Value& answer :
       {op::review_defaults(*review, {}), op::review_validity(*review, {}),
        op::review_restore(*review, json::Value()), op::review_conversion(*review)}) {
    STATOR_ASSERT(answer.find("response") != nullptr, "a review is answered");
  }
  return 0;
}
