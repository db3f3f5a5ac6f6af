// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string_view>

#include "stator/epp/usage_reader.h"

namespace stator::epp {

/// The usage of a body that arrives in pieces of so many bytes.
inline TokenUsage read_usage(std::string_view type, std::string_view text, size_t piece) {
  UsageReader reader;
  reader.set_content_type(type);
  for (size_t at = 0; at < text.size(); at += piece) {
    reader.add(text.substr(at, piece));
  }
  return reader.finish();
}

}  // namespace stator::epp
