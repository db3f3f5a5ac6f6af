// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "stator/core/assert.h"
#include "stator/media/data_url.h"
#include "stator/media/image_header.h"
#include "stator/media/url_rules.h"

// What strangers send as the source of a medium: URLs, data: URLs, and the first bytes of files.

using stator::media::FetchUrl;
using stator::media::UrlRules;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const UrlRules strict = std::move(*UrlRules::create({}));
  static const UrlRules open = std::move(*UrlRules::create({.allow_private = true}));
  const std::string_view text(static_cast<const char*>(static_cast<const void*>(data)), size);
  static_cast<void>(stator::media::read_data_url(text, 1 << 16));
  static_cast<void>(stator::media::read_image_size(text));
  for (const UrlRules* rules : {&strict, &open}) {
    const auto url = rules->check(text);
    if (!url) {
      continue;
    }
    const auto again = rules->check(url->text);
    STATOR_ASSERT(
        again && again->text == url->text && again->host == url->host && again->port == url->port,
        "what is fetched is what was checked");
    static_cast<void>(rules->check_redirect(*url, text));
  }
  return 0;
}
