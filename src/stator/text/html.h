// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace stator::text {

/// `text` as content or quoted attribute of HTML: & < > " ' become entities, the quotes as &#34;
/// and &#39; (what Python's markupsafe writes, so that templates render as there).
std::string escape_html(std::string_view text);

}  // namespace stator::text
