// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "stator/grove/clique_state.h"
#include "stator/grove/set_objects.h"
#include "stator/grove/set_plan.h"

namespace stator::grove {

/// The statuses of a set, its groups, cliques and gangs, as Grove's fields have them.
void add_statuses(const SetContext& context, const std::map<std::string, CliqueState>& states,
                  SetPlan& plan);

/// RFC 3339 to the second, in UTC; nothing when it is none.
std::optional<WallTime> parse_time(std::string_view text);

/// When a condition turned to its present status; nothing when it has another one.
std::optional<WallTime> condition_since(const json::Value* object, std::string_view type,
                                        std::string_view status);

}  // namespace stator::grove
