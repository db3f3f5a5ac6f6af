// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

namespace stator::storage {

/// Bytes that this process may use: the smallest limit of its cgroups, else the machine's memory.
uint64_t memory_limit();

/// Free bytes where `folder` is or will be made, what is in it already included. Nothing: the file
/// system does not say.
std::optional<uint64_t> disk_room(const std::filesystem::path& folder);

}  // namespace stator::storage
