// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "stator/net/http_request.h"
#include "stator/telemetry/trace_context.h"

namespace stator::telemetry {

/// What a client says of the trace that its request belongs to.
struct TraceHeaders {
  std::optional<TraceContext> parent;  ///< none without a traceparent, with a bad one or with two
  std::string_view traceparent{};  ///< as it came, where it is one; lives as long as the request
  std::string tracestate{};        ///< empty without a parent
};

TraceHeaders read_trace_headers(const net::HttpRequest& request);

}  // namespace stator::telemetry
