// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <absl/container/flat_hash_map.h>
#include <absl/container/flat_hash_set.h>

namespace stator {

/// The map for hot paths: open addressing, heterogeneous lookup by string_view. References to
/// values do not survive insertion.
template <typename Key, typename Value>
using FlatMap = absl::flat_hash_map<Key, Value>;

template <typename Key>
using FlatSet = absl::flat_hash_set<Key>;

}  // namespace stator
