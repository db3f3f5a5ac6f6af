// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace stator::report {

/// The beginning of a page without scripts, light or dark as the reader likes. It styles what
/// reports are made of: `.sub`, `.tiles` of `.tile`, `.plots` of draw() (svg_plot.h), `.wide`,
/// tables, `.bad` messages. `title` is plain text.
std::string page_begin(std::string_view title);
std::string_view page_end();

}  // namespace stator::report
