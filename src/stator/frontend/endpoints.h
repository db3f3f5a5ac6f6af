// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "stator/access/caller.h"
#include "stator/api/error_body.h"
#include "stator/core/metrics.h"
#include "stator/frontend/frontend_config.h"
#include "stator/frontend/model_catalog.h"
#include "stator/net/http_server.h"
#include "stator/router/receipt.h"
#include "stator/router/receipt_findings.h"

namespace stator::frontend {

/// Where a route is served while operators have a listener of their own.
enum class Plane : uint8_t { kPublic, kAdmin, kBoth };

/// "public", "admin" or "both".
std::string_view describe(Plane plane);

/// Who may use a route.
struct RouteAccess {
  access::Role role = access::Role::kUser;  ///< and those above it
  Plane plane = Plane::kPublic;
  bool metered = false;  ///< counts against the tenant's budget
};

/// Of the request's route; of one that nobody serves, what is right for finding that out.
RouteAccess find_access(const net::HttpRequest& request);

/// A row of the table of all routes.
struct RouteRow {
  std::string_view method;
  std::string path;  ///< with {id} where something follows
  RouteAccess access;
};
std::vector<RouteRow> list_routes();

/// How far a frontend is on its way out.
enum class Stage : uint8_t {
  kServing,
  kLeaving,   ///< answers all, and tells load balancers to look elsewhere
  kStopping,  ///< takes nothing
};

/// What the endpoints that do not generate look at.
struct EndpointContext {
  const FrontendConfig& config;
  const ModelCatalog& catalog;
  const router::ReceiptLog& receipts;
  const Metrics& metrics;
  const router::ReceiptFindings* findings = nullptr;  ///< null: receipts stay as they are
  WallTime wall_now;
  Stage stage = Stage::kServing;
  bool client_is_local = false;  ///< of this host: may ask for the newest receipt
  bool may_see_newest = false;   ///< the newest receipt, from anywhere
  bool shows_details = true;     ///< where workers are
};

/// /v1/models, /v1/models/{id}, /health, /live, /metrics, /receipts/{id}, and, unless
/// the configuration hides it, /busy_threshold.
/// Answers the exchange and returns true, or returns false for a path that is not one of them.
bool answer_endpoint(net::HttpExchange& exchange, const EndpointContext& context);

/// What a request may bring: bodies of http.body_bytes_max to generate from, less to tokenize, and
/// a few KiB to everything else, known or not, so that nothing large is read there.
net::BodyRule body_rule(const net::HttpRequest& head, const FrontendConfig& config);

/// 404, or 405 with the header Allow for a known path with another method.
void answer_unknown_route(net::HttpExchange& exchange, const api::ErrorStyle& style);

/// True for application/json and application/*+json.
bool is_json_content_type(const net::HttpRequest& request);

}  // namespace stator::frontend
