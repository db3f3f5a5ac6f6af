// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>
#include <vector>

#include "stator/frontend/endpoints.h"

namespace stator::frontend {

/// Methods of a path of the Open Inference Protocol over HTTP, for the Allow header; empty for
/// other paths.
std::string_view kserve_methods_of(std::string_view path);

/// Whether a POST to `path` runs a model, over HTTP or gRPC.
bool is_kserve_run(std::string_view path);
/// Whether it is a call over which many requests come, each with a budget of its own.
bool is_kserve_stream(std::string_view path);

/// Whether everybody may ask `path`: whether the server lives and is ready.
bool is_kserve_health(std::string_view path);

/// Its rows of the table of routes.
void add_kserve_routes(std::vector<RouteRow>& rows);

}  // namespace stator::frontend
