// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "stator/core/clock.h"

namespace stator::chat_template::detail {

/// Python's datetime.strftime in the C locale, UTC. Unknown directives are copied.
std::string format_time(WallTime time, std::string_view format);

/// Seconds since 1970 of "2026-03-07", "2026-03-07T09:05:02" or the same with Z or +01:00; without
/// a zone UTC. Nothing for other texts.
std::optional<int64_t> parse_rfc3339(std::string_view text);

}  // namespace stator::chat_template::detail
