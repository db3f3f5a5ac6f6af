// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace stator::chat_template::detail {

/// How links look; empty rel and target leave the attributes out.
struct UrlizeStyle {
  int64_t trim_limit = -1;  ///< longest link text in characters; negative = any
  std::string rel;
  std::string target;
};

/// The words of `rel`, "noopener" and, if asked for, "nofollow": sorted, each once.
std::string urlize_rel(std::string_view rel, bool nofollow);
/// Makes links of what looks like a web or mail address in already escaped text, as Jinja does.
std::string urlize(std::string_view escaped_text, const UrlizeStyle& style);

}  // namespace stator::chat_template::detail
