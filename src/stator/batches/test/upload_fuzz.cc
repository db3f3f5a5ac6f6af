// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "stator/batches/batch_lines.h"
#include "stator/batches/multipart.h"
#include "stator/core/assert.h"
#include "stator/json/value.h"

// The first line is a content type, the rest a form. Any bytes are parts that lie within the body,
// or an error; a part's lines are requests with bodies that are JSON, or errors.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace stator::batches;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t line = std::min(input.find('\n'), input.size());
  const std::string_view body = input.substr(std::min(line + 1, input.size()));
  const auto parts = parse_form(input.substr(0, line), body);
  if (!parts.has_value()) {
    return 0;
  }
  for (const FormPart& part : *parts) {
    STATOR_ASSERT(part.content.data() >= body.data() &&
                      part.content.data() + part.content.size() <= body.data() + body.size(),
                  "a part is of the body");
    for (const BatchLine& one : check_lines(part.content, "/v1/completions", 100).lines) {
      STATOR_ASSERT(stator::json::parse(one.body).has_value(), "a request's body is JSON");
    }
  }
  return 0;
}
