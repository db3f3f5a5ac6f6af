// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <cstdint>
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
  STATOR_ASSERT(telemetry::check_tracestate(text).size() <= 512, "bounded");
  return 0;
}
