// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "stator/cli/command.h"

namespace stator::cli {

/// The flags of `stator bench`, made from loadgen's own table of settings.
std::vector<CommandOption> bench_options();

}  // namespace stator::cli
