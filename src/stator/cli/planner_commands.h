// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "stator/app/planner_process.h"
#include "stator/cli/command.h"

namespace stator::cli {

/// Reads requests of the past (a file, a folder, a pattern; "": none) into `config.past`, divided by
/// `speedup`, and chooses the predictor where that is asked for.
Status warm_up(const std::string& trace, double speedup, planner::PlannerConfig& config);

// Parts of `stator planner` and `stator serve`.
Status run_profile(Invocation& invocation);
Status run_global_planner(Invocation& invocation);
/// `stator serve --planner`.
Status run_scaled_serve(Invocation& invocation);

}  // namespace stator::cli
