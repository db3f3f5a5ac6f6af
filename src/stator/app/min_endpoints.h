// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "stator/scaling/planner_service.h"
#include "stator/services/service_api.h"

namespace stator::app {

/// {"mode":"agg","min_endpoint":N}, or {"mode":"disagg","prefill_min_endpoint":N,
/// "decode_min_endpoint":N}, as the reference's planner answers.
std::string render_min_endpoints(const scaling::PlannerService& planner);
/// Changes what the body names. 400: it is no object, names nothing, or a field that is not known;
/// 422: a value that is none, or more than the budget allows. Nothing is changed then.
services::ServiceReply patch_min_endpoints(scaling::PlannerService& planner, std::string_view body);

}  // namespace stator::app
