// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace stator::cli {

/// Of the program: the project's in CMake.
inline constexpr std::string_view kVersion = STATOR_VERSION;

}  // namespace stator::cli
