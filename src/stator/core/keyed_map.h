// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <absl/container/flat_hash_map.h>
#include <absl/container/flat_hash_set.h>

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

#include "stator/core/keyed_hash.h"

namespace stator {

/// Hashes strings by content under the process's key, so that a map can be asked with a
/// std::string_view.
struct KeyedTextHash {
  using is_transparent = void;
  size_t operator()(std::string_view text) const { return keyed_hash(text); }
};

/// FlatMap and FlatSet for texts that clients choose and can add: session ids, lease ids, names in
/// a grammar. A lookup costs some nanoseconds more, and no choice of texts makes it slow. Not
/// needed where strangers only ask, as for a vocabulary.
template <typename Value>
using KeyedMap = absl::flat_hash_map<std::string, Value, KeyedTextHash, std::equal_to<>>;
using KeyedSet = absl::flat_hash_set<std::string, KeyedTextHash, std::equal_to<>>;

}  // namespace stator
