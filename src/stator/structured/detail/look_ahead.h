// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace stator::structured {

/// What a pattern asks of the text before it reads it.
struct LookAhead {
  bool wanted = true;   ///< false: no text may follow it
  std::string pattern;  ///< anchored at the beginning
};

/// Takes look-ahead off the beginning of a pattern: of ^(?!admin)(?=.*[0-9]).+$ is left ^.+$.
/// Nothing where it does not begin so.
std::vector<LookAhead> take_look_aheads(std::string& pattern);

}  // namespace stator::structured
