// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "stator/access/access_service.h"
#include "stator/core/clock.h"
#include "stator/core/metrics.h"
#include "stator/frontend/endpoints.h"
#include "stator/frontend/frontend_config.h"
#include "stator/net/http_server.h"
#include "stator/telemetry/telemetry.h"

namespace stator::frontend {

struct RequestRecord;

/// Which listener a request came to.
enum class Listener : uint8_t {
  kPublic,  ///< clients'; the only one unless there is an admin port
  kAdmin,
};

/// What every request passes before its route is looked at: who sends it, whether they may, and
/// whether their tenant has something left; and where what becomes of it is written down.
/// Thread-safe.
class Entrance {
 public:
  /// `access` outlives it; null: everybody may everything. `admin_elsewhere`: operators' routes are
  /// on a listener of their own, and the public one does not know them.
  Entrance(const FrontendConfig& config, access::AccessService* access, bool admin_elsewhere,
           Metrics& metrics, telemetry::Telemetry* telemetry = nullptr);

  /// False: it was answered (401, 403, 404, 429). True: it goes on, with a RequestRecord if
  /// anything needs one.
  [[nodiscard]] bool admit(net::HttpExchange& exchange, Listener listener, TimePoint now) const;
  /// The same for a request that the frontend itself makes: one of several on a WebSocket or a gRPC
  /// stream, whose notes it carries, or a line of a batch, which carries none. Each has a record
  /// and, unless what carries it has passed already, a place in its tenant's budget of its own.
  [[nodiscard]] bool admit_further(net::HttpExchange& exchange, TimePoint now) const;
  /// The same for a route that find_access() does not know and that is no tenant's business.
  [[nodiscard]] bool admit_role(net::HttpExchange& exchange, const RouteAccess& route,
                                TimePoint now) const;
  /// Before a body is read: nothing large from those who will not be let in.
  net::BodyRule body_rule(const net::HttpRequest& head, net::BodyRule rule) const;
  /// Whether callers need credentials.
  bool knows_callers() const;
  /// Whether a request of this role may see what only those who run the service need.
  bool shows_details(const net::HttpRequest& request) const;

 private:
  Result<access::Caller> identify(const net::HttpRequest& request) const;
  Status check_role(const net::HttpRequest& request, const RouteAccess& route,
                    const access::Caller& caller) const;
  std::string choose_tenant(const net::HttpRequest& request, const access::Caller& caller) const;
  bool enter_budget(net::HttpExchange& exchange, RequestRecord& record, TimePoint now) const;
  void describe_line(const net::HttpRequest& request, RequestRecord& record) const;
  std::shared_ptr<RequestRecord> make_record(net::HttpExchange& exchange, TimePoint now) const;
  void audit_refusal(const net::HttpRequest& request, const Error& error) const;
  void refuse(net::HttpExchange& exchange, const Error& error, Duration retry_after) const;

  const FrontendConfig& config_;
  access::AccessService* const access_;
  telemetry::Telemetry* const telemetry_;  // outlives it; null: nobody wants to know
  const bool admin_elsewhere_;
  Counter denied_;
  Counter over_requests_;
  Counter over_tokens_;
  Counter over_concurrent_;
};

}  // namespace stator::frontend
