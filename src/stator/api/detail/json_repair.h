// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace stator::api {

/// A copy of `text` with raw bytes below 0x20 inside JSON strings spelled \u00XX; no value if there
/// are none. Agents that paste terminal output into hand-built JSON send them.
std::optional<std::string> escape_control_bytes(std::string_view text);

}  // namespace stator::api
