// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "stator/cli/command.h"

namespace stator::cli {

/// `stator deploy`: from a model and its latencies to a graph that is ready.
Status run_deploy(Invocation& invocation);

}  // namespace stator::cli
