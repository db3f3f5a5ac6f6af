// SPDX-License-Identifier: Apache-2.0
#include "stator/app/min_endpoints.h"

#include <fmt/format.h>

#include "stator/json/value.h"

namespace stator::app {
namespace {

constexpr uint64_t kMost = 4096;

services::ServiceReply refuse(int status, std::string text) {
  json::Value out = json::Value::object();
  out["error"] = std::move(text);
  return {.status = status, .body = json::to_text(out)};
}

}  // namespace

std::string render_min_endpoints(const scaling::PlannerService& planner) {
  const scaling::LeastWorkers least = planner.least_workers();
  return least.split
             ? fmt::format(
                   R"({{"mode":"disagg","prefill_min_endpoint":{},"decode_min_endpoint":{}}})",
                   least.prefill, least.workers)
             : fmt::format(R"({{"mode":"agg","min_endpoint":{}}})", least.workers);
}

services::ServiceReply patch_min_endpoints(scaling::PlannerService& planner,
                                           std::string_view body) {
  const auto read = json::parse(body);
  if (!read || !read->is_object()) {
    return refuse(400, "request body must be a JSON object");
  }
  scaling::LeastWorkers least = planner.least_workers();
  bool named = false;
  for (const auto& [key, value] : read->members()) {
    const bool both = key == "min_endpoint";
    const bool prefill = key == "prefill_min_endpoint", decode = key == "decode_min_endpoint";
    if (!both && !prefill && !decode) {
      return refuse(400, fmt::format("'{}' is no field: min_endpoint, prefill_min_endpoint and "
                                     "decode_min_endpoint are",
                                     key));
    }
    named = true;
    const auto wanted = value.as_uint64();
    if (!wanted || *wanted > kMost || (!both && *wanted == 0)) {
      return refuse(
          422, fmt::format("{} must be a whole number from {} to {}", key, both ? 0 : 1, kMost));
    }
    if (!both && !least.split) {
      return refuse(422, fmt::format("{} is for pools of their own: use min_endpoint", key));
    }
    least.prefill = both || prefill ? static_cast<uint32_t>(*wanted) : least.prefill;
    least.workers = both || decode ? static_cast<uint32_t>(*wanted) : least.workers;
  }
  if (!named) {
    return refuse(400, "request body must include at least one endpoint field");
  }
  if (const Status set = planner.set_least_workers(least); !set) {
    return refuse(422, std::string(set.error().message()));
  }
  return {.status = 200, .body = render_min_endpoints(planner)};
}

}  // namespace stator::app
