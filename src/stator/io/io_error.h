// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "stator/core/result.h"

namespace stator::io {

/// "cannot open /models/x: Permission denied". kNotFound if nothing is at the path, else kIo.
/// `error` is an errno.
Error io_error(std::string_view verb, const std::string& path, int error);

}  // namespace stator::io
