// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "stator/core/result.h"

namespace stator::batches {

/// One part of a form (RFC 7578). `content` points into the body.
struct FormPart {
  std::string name;
  std::string filename;  ///< empty: not a file
  std::string_view content;
};

inline constexpr size_t kFormPartsMax = 32;
inline constexpr size_t kFormHeadBytesMax = 8192;  ///< headers of one part

/// The parts of a multipart/form-data body. kInvalidArgument says what is wrong. Linear time.
Result<std::vector<FormPart>> parse_form(std::string_view content_type, std::string_view body);

}  // namespace stator::batches
