// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "stator/core/clock.h"

namespace stator::chat_template::detail {

/// Python's datetime.strftime in the C locale, UTC. Unknown directives are copied.
std::string format_time(WallTime time, std::string_view format);

}  // namespace stator::chat_template::detail
