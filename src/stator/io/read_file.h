// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "stator/core/result.h"

namespace stator::io {

/// What a configuration, a key or a template may have at most; whoever reads more says so.
inline constexpr uint64_t kReadBytesMax = 64ULL << 20;

/// The whole of a file, a pipe or a file of /proc. Never more than `bytes_max` bytes in memory.
/// kNotFound: there is none; kTooLarge: it has more than `bytes_max` bytes; kIo: the rest, a folder
/// among it. The message names the path.
Result<std::string> read_file(const std::filesystem::path& path,
                              uint64_t bytes_max = kReadBytesMax);

/// The same, and empty where there is no such file: for files that may be absent.
Result<std::optional<std::string>> read_file_if_present(const std::filesystem::path& path,
                                                        uint64_t bytes_max = kReadBytesMax);

/// The first `bytes_max` bytes, fewer if the file is shorter.
Result<std::string> read_start(const std::filesystem::path& path, uint64_t bytes_max);

}  // namespace stator::io
