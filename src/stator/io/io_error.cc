// SPDX-License-Identifier: Apache-2.0
#include "stator/io/io_error.h"

#include <fmt/format.h>

#include <cerrno>
#include <system_error>

namespace stator::io {

Error io_error(std::string_view verb, const std::string& path, int error) {
  const Code code = error == ENOENT || error == ENOTDIR ? Code::kNotFound : Code::kIo;
  return Error(code,
               fmt::format("cannot {} {}: {}", verb, path, std::generic_category().message(error)));
}

}  // namespace stator::io
