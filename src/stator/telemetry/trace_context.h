// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace stator::telemetry {

using TraceId = std::array<unsigned char, 16>;
using SpanId = std::array<unsigned char, 8>;

/// Where a span belongs (W3C Trace Context, level 1).
struct TraceContext {
  TraceId trace{};
  SpanId span{};  ///< of the parent, where it came from outside
  bool sampled = false;

  bool valid() const { return trace != TraceId{} && span != SpanId{}; }
  bool operator==(const TraceContext&) const = default;
};

/// `00-<32 hex>-<16 hex>-<2 hex>` in lower case; later versions may go on after a dash. None for
/// anything else, and for ids that are all zero.
std::optional<TraceContext> parse_traceparent(std::string_view text);
std::string format_traceparent(const TraceContext& context);
/// In lower-case hex.
std::string to_hex(const TraceId& id);
std::string to_hex(const SpanId& id);

/// A tracestate that may be passed on: at most 512 bytes of visible ASCII; else empty.
std::string_view check_tracestate(std::string_view text);

}  // namespace stator::telemetry
