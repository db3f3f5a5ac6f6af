// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <initializer_list>
#include <optional>
#include <string_view>

namespace stator::engine::adapters {

/// Sum over all series of the first of `names` that the exposition text has: names of a metric in
/// the order newest first. Nothing if it has none of them.
std::optional<double> find_metric(std::string_view text,
                                  std::initializer_list<std::string_view> names);

/// The lowest value among the series of `name` whose labels contain `label` (`key="value"`).
std::optional<double> find_lowest(std::string_view text, std::string_view name,
                                  std::string_view label);

/// The value of a label of the first series of `name`; empty if there is none.
std::string_view find_label(std::string_view text, std::string_view name, std::string_view label);

}  // namespace stator::engine::adapters
