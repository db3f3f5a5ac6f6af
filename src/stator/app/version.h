// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace stator::app {

/// Of the program: the project's in CMake.
std::string_view version();

}  // namespace stator::app
