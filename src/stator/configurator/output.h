// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "stator/configurator/search.h"
#include "stator/json/value.h"

namespace stator::configurator {

/// A search as JSON: "configurations_considered", "elapsed_ms", "best", "pareto", "sla_met" and,
/// where no configuration fits, "binding_limit" and "explanation".
json::Value to_json(const Goal& goal, const SearchResult& result, double elapsed_ms);
/// For people: a table of the best.
std::string render_table(const Goal& goal, const SearchResult& result, double elapsed_ms);
/// A page with the Pareto picture, without scripts or anything to load.
std::string render_html(const Goal& goal, const SearchResult& result, double elapsed_ms);

/// Files that deploy a configuration: name and content. Flags of the engine ("engine_decode.sh",
/// …), settings of Stator ("stator.yaml"), a DynamoGraphDeployment ("deployment.yaml").
std::vector<std::pair<std::string, std::string>> render_files(const Goal& goal,
                                                              const Candidate& candidate,
                                                              std::string_view model);

/// "tp4 pp1 dp2 moe_tp1 moe_ep8"; parts that are 1 are left out after tp.
std::string describe(const perf::Parallelism& parallel);

}  // namespace stator::configurator
