// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace stator {

/// 128 secret bits.
using HashKey = std::array<uint64_t, 2>;

/// A hash of text for tables whose keys strangers choose: SipHash-1-3 (Aumasson and Bernstein,
/// 2012), as in the hash tables of Rust, Python and Ruby. Without the key nobody finds texts that
/// collide. XXH3 and MurmurHash promise no such thing: they are linear in parts, and with a seed
/// instead of a secret some of their collisions hold for every seed. About 10 ns for 16 bytes and
/// 1 ns for every 8 more.
uint64_t keyed_hash(const HashKey& key, std::string_view text);

/// The same under a key that this process draws at its first use: never stored, never sent, and
/// different in the next process. For what outlives the process take xxh3_64.
uint64_t keyed_hash(std::string_view text);

}  // namespace stator
