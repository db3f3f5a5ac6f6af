// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <absl/container/flat_hash_map.h>
#include <absl/container/flat_hash_set.h>

#include <functional>
#include <string>
#include <string_view>
#include <type_traits>

#include "stator/core/hash.h"

namespace stator {

/// Hashes strings by content, so that a map of std::string can be asked with a std::string_view.
/// (absl's own hasher knows only its own string_view in Debian's build.)
struct TextHash {
  using is_transparent = void;
  size_t operator()(std::string_view text) const { return xxh3_64(text); }
};

template <typename Key>
using FlatHash = std::conditional_t<std::is_same_v<Key, std::string>, TextHash,
                                    absl::container_internal::hash_default_hash<Key>>;
template <typename Key>
using FlatEqual = std::conditional_t<std::is_same_v<Key, std::string>, std::equal_to<>,
                                     absl::container_internal::hash_default_eq<Key>>;

/// The map for hot paths: open addressing, heterogeneous lookup by string_view. References to
/// values do not survive insertion.
template <typename Key, typename Value>
using FlatMap = absl::flat_hash_map<Key, Value, FlatHash<Key>, FlatEqual<Key>>;

template <typename Key>
using FlatSet = absl::flat_hash_set<Key, FlatHash<Key>, FlatEqual<Key>>;

}  // namespace stator
