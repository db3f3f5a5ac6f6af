// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace stator::session::detail {

/// Who gives way when all places are taken: the oldest holder of the connection that holds the most
/// places, if that holds more than the newcomer's connection would; with one place for each
/// connection the same by host. So one client that takes all places keeps nobody out. None: the
/// newcomer is refused. `holders` are addresses (host:port) by age, oldest first. O(n log n).
std::optional<size_t> find_crowder(const std::vector<std::string>& holders,
                                   const std::string& newcomer);

/// When find_crowder names none: the oldest holder of the newcomer's host that has asked for
/// nothing yet, if that host holds a crowd (kCrowdPlaces). So whoever only greets, from however
/// many connections of a host, keeps none of that host's frontends out. `idle` by holder.
std::optional<size_t> find_idler(const std::vector<std::string>& holders,
                                 const std::string& newcomer, const std::vector<bool>& idle);
inline constexpr size_t kCrowdPlaces = 64;

}  // namespace stator::session::detail
