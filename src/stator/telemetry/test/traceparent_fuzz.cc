// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "stator/core/assert.h"
#include "stator/telemetry/trace_context.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace stator;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto context = telemetry::parse_traceparent(text)) {
    const auto again = telemetry::parse_traceparent(telemetry::format_traceparent(*context));
    STATOR_ASSERT(again == context, "what was read is written so that it reads the same");
  }
  const size_t half = size / 2;
  const std::string joined =
      telemetry::join_tracestate(std::array{text.substr(0, half), text.substr(half)});
  STATOR_ASSERT(joined.size() <= 512, "bounded");
  STATOR_ASSERT(telemetry::join_tracestate(std::array<std::string_view, 1>{joined}) == joined,
                "what is passed on is passed on by the next");
  return 0;
}
