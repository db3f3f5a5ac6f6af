// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace stator::parsers {

/// Replaces the five entities that XML names (&lt; &gt; &amp; &quot; &apos;) by what they stand
/// for, once. Others stay. Linear.
void unescape_entities(std::string& text);

}  // namespace stator::parsers
