// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <initializer_list>
#include <optional>
#include <string_view>

namespace stator::text {

/// Sum over all series of the first of `names` that the exposition text has: names of a metric in
/// the order newest first. Nothing if it has none of them.
std::optional<double> find_metric(std::string_view text,
                                  std::initializer_list<std::string_view> names);

/// The same, but the mean over all series: of shares, which have one for each rank.
std::optional<double> find_mean(std::string_view text,
                                std::initializer_list<std::string_view> names);

/// The line of the series of `name` with the highest value; empty if there is none. Where servers
/// tell the time as the value, that is what they said last.
std::string_view find_highest(std::string_view text, std::string_view name);

/// The lowest value among the series of `name` whose labels contain `label` (`key="value"`).
std::optional<double> find_lowest(std::string_view text, std::string_view name,
                                  std::string_view label);

/// The value of a label of the first series of `name`; empty if there is none.
std::string_view find_label(std::string_view text, std::string_view name, std::string_view label);

}  // namespace stator::text
