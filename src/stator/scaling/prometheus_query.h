// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "stator/core/result.h"
#include "stator/scaling/metrics_page.h"
#include "stator/scaling/page_observer.h"

namespace stator::scaling {

/// The one PromQL query that asks for all series a planner reads: raw counters of every frontend,
/// whose growth PageObserver takes itself, so that it sees resets and frontends that went away.
std::string make_query(const ObserverConfig& config);

/// The answer of `/api/v1/query` as one page per value of the label `instance`. kUnavailable with
/// Prometheus' own words if it reports an error; kCorrupt for what is no such answer.
Result<std::map<std::string, MetricsPage>> parse_vector(std::string_view body);

}  // namespace stator::scaling
