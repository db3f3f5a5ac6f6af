// SPDX-License-Identifier: Apache-2.0
#include "stator/core/credentials.h"

#include <algorithm>

namespace stator {

std::string hide_credentials(std::string_view text) {
  static constexpr std::string_view kScheme = "://";
  std::string out;
  while (true) {
    const size_t scheme = text.find(kScheme);
    if (scheme == std::string_view::npos) {
      return out.append(text);
    }
    const size_t from = scheme + kScheme.size();
    const size_t end = std::min(text.find_first_of("/?#,;\"' \t\n", from), text.size());
    const size_t at = text.substr(0, end).rfind('@');
    out.append(text.substr(0, from));
    if (at != std::string_view::npos && at >= from) {
      out.append("***");
      text.remove_prefix(at);
    } else {
      text.remove_prefix(from);
    }
  }
}

}  // namespace stator
