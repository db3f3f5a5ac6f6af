// SPDX-License-Identifier: Apache-2.0
#include "stator/telemetry/trace_headers.h"

#include <gtest/gtest.h>

namespace stator::telemetry {
namespace {

constexpr std::string_view kParent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

TEST(TraceHeaders, AreReadWhateverTheirCase) {
  net::HttpRequest request("GET", "/");
  request.add_header("TraceState", "a=1");
  request.add_header("TRACEPARENT", kParent);
  request.add_header("tracestate", "b=2");

  const TraceHeaders headers = read_trace_headers(request);
  EXPECT_EQ(headers.traceparent, kParent);
  EXPECT_EQ(headers.parent, parse_traceparent(kParent));
  EXPECT_EQ(headers.tracestate, "a=1,b=2");
}

TEST(TraceHeaders, OfTwoTracesBelongToNone) {
  net::HttpRequest request("GET", "/");
  request.add_header("traceparent", kParent);
  request.add_header("traceparent", kParent);
  request.add_header("tracestate", "a=1");

  const TraceHeaders headers = read_trace_headers(request);
  EXPECT_FALSE(headers.parent);
  EXPECT_EQ(headers.traceparent, "");
  EXPECT_EQ(headers.tracestate, "");
}

TEST(TraceHeaders, WithoutAParentStateMeansNothing) {
  net::HttpRequest request("GET", "/");
  request.add_header("tracestate", "a=1");
  request.add_header("traceparents", kParent);

  EXPECT_FALSE(read_trace_headers(request).parent);
  EXPECT_EQ(read_trace_headers(request).tracestate, "");
}

}  // namespace
}  // namespace stator::telemetry
