// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string_view>

namespace stator::app {

/// A file of the operators' page.
struct UiFile {
  std::string_view name;
  std::string_view text;
};

/// index.html first.
std::span<const UiFile> ui_files();

}  // namespace stator::app
