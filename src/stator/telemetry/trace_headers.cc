// SPDX-License-Identifier: Apache-2.0
#include "stator/telemetry/trace_headers.h"

#include <algorithm>
#include <vector>

namespace stator::telemetry {
namespace {

/// `lower` is in lower case.
bool is_named(std::string_view name, std::string_view lower) {
  return name.size() == lower.size() && std::ranges::equal(name, lower, [](char a, char b) {
           return (a >= 'A' && a <= 'Z' ? static_cast<char>(a | 0x20) : a) == b;
         });
}

}  // namespace

TraceHeaders read_trace_headers(const net::HttpRequest& request) {
  TraceHeaders out;
  size_t parents = 0;
  std::vector<std::string_view> states;
  for (size_t i = 0; i < request.header_count(); ++i) {
    const net::HttpHeader header = request.header_at(i);
    if (is_named(header.name, "traceparent")) {
      out.traceparent = header.value;
      ++parents;
    } else if (is_named(header.name, "tracestate")) {
      states.push_back(header.value);
    }
  }
  if (parents == 1) {
    out.parent = parse_traceparent(out.traceparent);
  }
  if (!out.parent) {
    return {};
  }
  out.tracestate = join_tracestate(states);
  return out;
}

}  // namespace stator::telemetry
