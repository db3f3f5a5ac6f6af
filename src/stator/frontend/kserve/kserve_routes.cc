// SPDX-License-Identifier: Apache-2.0
#include "stator/frontend/kserve/kserve_routes.h"

#include "stator/protocols/kserve/grpc_form.h"
#include "stator/protocols/kserve/kserve.h"

namespace stator::frontend {

namespace kserve = protocols::kserve;

std::string_view kserve_methods_of(std::string_view path) {
  constexpr std::string_view kGet = "GET, HEAD";
  if (path == "/v2" || path == "/v2/health/live" || path == "/v2/health/ready") {
    return kGet;
  }
  const auto model = kserve::parse_model_path(path);
  if (!model) {
    return {};
  }
  switch (model->verb) {
    case kserve::Verb::kInfer:
    case kserve::Verb::kGenerate:
    case kserve::Verb::kGenerateStream:
      return "POST";
    case kserve::Verb::kMetadata:
    case kserve::Verb::kReady:
    case kserve::Verb::kConfig:
      break;
  }
  return kGet;
}

bool is_kserve_run(std::string_view path) {
  const auto method = kserve::find_method(path);
  return method == kserve::Method::kModelInfer || method == kserve::Method::kModelStreamInfer ||
         kserve_methods_of(path) == "POST";
}

bool is_kserve_stream(std::string_view path) {
  return kserve::find_method(path) == kserve::Method::kModelStreamInfer;
}

bool is_kserve_health(std::string_view path) {
  const auto method = kserve::find_method(path);
  return path == "/v2/health/live" || path == "/v2/health/ready" ||
         method == kserve::Method::kServerLive || method == kserve::Method::kServerReady;
}

void add_kserve_routes(std::vector<RouteRow>& rows) {
  for (const std::string_view path :
       {"/v2", "/v2/health/live", "/v2/health/ready", "/v2/models/{id}", "/v2/models/{id}/ready",
        "/v2/models/{id}/config", "/v2/models/{id}/infer", "/v2/models/{id}/generate",
        "/v2/models/{id}/generate_stream"}) {
    const bool runs = is_kserve_run(path);
    rows.push_back(
        {runs ? "POST" : "GET", std::string(path),
         RouteAccess{.role = is_kserve_health(path) ? access::Role::kAnyone : access::Role::kUser,
                     .metered = runs}});
  }
}

}  // namespace stator::frontend
