// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "stator/core/clock.h"
#include "stator/telemetry/trace_context.h"

namespace stator::telemetry {

/// A stretch of a request's life. Never holds text of prompts or answers.
struct Span {
  enum class Kind : uint8_t { kInternal = 1, kServer = 2, kClient = 3 };  ///< OTLP's numbers
  using Value = std::variant<bool, int64_t, double, std::string>;

  TraceId trace{};
  SpanId id{};
  SpanId parent{};        ///< all zero: the root
  std::string_view name;  ///< static text
  Kind kind = Kind::kInternal;
  WallTime start;
  WallTime end;
  std::vector<std::pair<std::string_view, Value>> attributes;  ///< keys are static text
  std::vector<SpanId> links;                                   ///< to spans of the same trace
  std::string error;                                           ///< empty: it went well
  std::string state;                                           ///< tracestate, as it came
};

/// The bytes of an OTLP ExportTraceServiceRequest (opentelemetry-proto, trace/v1) with one resource
/// and one scope.
std::string encode_otlp(std::string_view service, std::string_view version,
                        const std::vector<Span>& spans);

}  // namespace stator::telemetry
