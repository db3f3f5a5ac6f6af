// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "stator/configurator/search.h"
#include "stator/core/result.h"
#include "stator/json/value.h"

namespace stator::cli {

/// Every configuration of the shortlist, on a trace: simulated engines of its shape behind the
/// production router. One object each, in the shortlist's order: requests, TTFT and ITL
/// percentiles, the part of requests that meet both goals, output tokens per second and GPU.
Result<json::Value> simulate_shortlist(const configurator::Goal& goal,
                                       const configurator::SearchResult& result,
                                       const std::string& trace);

}  // namespace stator::cli
