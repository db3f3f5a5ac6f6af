// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace stator {

/// XXH3, 64 bits. Stable across machines and versions: block identities on the wire depend on it.
uint64_t xxh3_64(std::span<const std::byte> bytes, uint64_t seed = 0);
uint64_t xxh3_64(std::string_view bytes, uint64_t seed = 0);

}  // namespace stator
