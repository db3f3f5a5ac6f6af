// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "stator/core/result.h"
#include "stator/scaling/planner_reports.h"
#include "stator/scaling/plugin_host.h"

namespace stator::app {

/// `scheduling.external_plugins` of a planner's file, YAML or JSON, with the keys of the
/// reference; none where the file has none. kInvalidArgument names the entry and the key.
Result<std::vector<scaling::PluginConfig>> read_planner_plugins(const std::string& path);

/// `report_output_dir` and `report_interval_hours` of the file.
Result<scaling::ReportConfig> read_planner_reports(const std::string& path);

}  // namespace stator::app
