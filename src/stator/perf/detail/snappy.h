// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace stator::perf {

/// Undoes Snappy's compression (the raw format, without frames) of one block that has `plain_bytes`
/// of content. Nothing if the block is damaged or of another length. Reads nothing outside
/// `stored`, allocates `plain_bytes`.
std::optional<std::string> unpack_snappy(std::string_view stored, size_t plain_bytes);

}  // namespace stator::perf
