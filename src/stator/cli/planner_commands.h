// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "stator/app/planner_process.h"
#include "stator/cli/command.h"

namespace stator::cli {

// Parts of `stator planner` and `stator serve`.
Status run_profile(Invocation& invocation);
Status run_global_planner(Invocation& invocation);
/// `stator serve --planner`.
Status run_scaled_serve(Invocation& invocation);

}  // namespace stator::cli
