// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "stator/core/result.h"

namespace stator::media {

/// What a source holds, before anybody looked at it.
struct RawMedia {
  std::string type;  ///< as its sender says, lower case, without parameters; empty: not said
  std::string bytes;
};

bool is_data_url(std::string_view source);

/// "data:image/png;base64,iVBOR…" (RFC 2397), only in base64, padded, without anything between its
/// digits. kInvalidArgument for others; kTooLarge beyond `bytes_max`, before anything is decoded.
Result<RawMedia> read_data_url(std::string_view url, uint64_t bytes_max);

}  // namespace stator::media
