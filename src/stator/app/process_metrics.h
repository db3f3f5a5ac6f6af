// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "stator/app/settings.h"
#include "stator/core/metrics.h"

namespace stator::app {

/// What this process uses, under the names and units of Prometheus' client libraries
/// (`process_cpu_seconds_total`, `process_resident_memory_bytes`, `process_open_fds` and so on),
/// and `stator_build_info`. Read when somebody scrapes; costs a few system calls then, however much
/// is open.
void add_process_metrics(Metrics& metrics);
/// Labels by which Dynamo's dashboards and planner tell fleets and processes apart; before a
/// frontend or worker registers series.
void label_fleet_metrics(Metrics& metrics, const Settings& settings);

}  // namespace stator::app
