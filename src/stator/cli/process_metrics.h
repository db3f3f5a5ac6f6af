// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "stator/core/metrics.h"

namespace stator::cli {

/// What this process uses, under the names and units of Prometheus' client libraries
/// (`process_cpu_seconds_total`, `process_resident_memory_bytes`, `process_open_fds` and so on),
/// and `stator_build_info`. Read when somebody scrapes; costs a few system calls then, however much
/// is open.
void add_process_metrics(Metrics& metrics);

}  // namespace stator::cli
