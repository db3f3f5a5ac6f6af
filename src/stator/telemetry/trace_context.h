// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace stator::telemetry {

using TraceId = std::array<unsigned char, 16>;
using SpanId = std::array<unsigned char, 8>;

/// Where a span belongs (W3C Trace Context, level 2).
struct TraceContext {
  TraceId trace{};
  SpanId span{};  ///< of the parent, where it came from outside
  bool sampled = false;
  bool random = false;  ///< its trace's id is random: others may sample by it

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

/// One tracestate of the lines of that header, in their order, to be passed on. Empty if a member
/// is none by the grammar or there are more than 32. Beyond 512 bytes whole members go: those of
/// more than 128 bytes first, then the last ones.
std::string join_tracestate(std::span<const std::string_view> lines);

}  // namespace stator::telemetry
