// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <istream>
#include <memory>
#include <string>

#include "stator/core/result.h"

namespace stator::loadgen {

/// Opens a trace for reading, from its beginning to its end. One that is compressed with gzip
/// (known by its first bytes, whatever its name) is unpacked as it is read, in bounded memory. The
/// stream turns bad() where a file is damaged, cut off or cannot be read. "-" is
/// standard input, which can be read once. kNotFound if it cannot be opened.
Result<std::unique_ptr<std::istream>> open_trace_file(const std::string& path);

}  // namespace stator::loadgen
