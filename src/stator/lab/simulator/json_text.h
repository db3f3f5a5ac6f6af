// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace stator::simulator {

/// `text` as a JSON string with its quotes.
std::string quote_json(std::string_view text);

}  // namespace stator::simulator
