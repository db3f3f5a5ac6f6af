// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "stator/access/access_service.h"
#include "stator/access/caller.h"
#include "stator/access/tenants.h"
#include "stator/net/http_request.h"
#include "stator/telemetry/telemetry.h"

namespace stator::frontend {

/// What the entrance learned of a request; goes with it until nobody works on it any more, and
/// holds its place in the tenant's budget. Absent where nothing is configured that needs it.
struct RequestRecord final : net::RequestNotes {
  RequestRecord() = default;
  RequestRecord(const RequestRecord&) = delete;
  RequestRecord& operator=(const RequestRecord&) = delete;
  ~RequestRecord() override {
    if (telemetry != nullptr) {
      telemetry->end(std::move(facts));
    }
  }

  /// Null where everybody may do everything.
  const access::AccessService* access = nullptr;
  access::Caller caller;  ///< its tenant is the one the request counts for
  access::TenantLease lease;
  bool may_route = true;                      ///< pins, priorities and the tenant header count
  bool metered = false;                       ///< it has passed its tenant's budget
  std::optional<int32_t> priority;            ///< that the server itself gives it
  telemetry::Telemetry* telemetry = nullptr;  ///< null: nobody wants to know
  telemetry::RequestFacts facts;
  telemetry::RunningRequests::Place running;  ///< null: it does not run, or is not listed

  void on_status(int code) override { facts.status = code; }
  void note(const telemetry::Mark& mark, uint32_t dp_rank = 0) {
    if (telemetry != nullptr) {
      facts.note(mark, dp_rank);
    }
    if (running != nullptr) {
      running->note(mark, dp_rank);
    }
  }
  std::string salt(std::string_view own) const {
    return access == nullptr || caller.tenant.empty() ? std::string(own)
                                                      : access->cache_salt(caller.tenant, own);
  }
};

/// Null where there is none.
inline RequestRecord* record_of(const net::HttpRequest& request) {
  return static_cast<RequestRecord*>(request.notes().get());
}

/// Whether the request's pins, priorities and tenant header come from somebody who may set them.
inline bool may_route(const net::HttpRequest& request) {
  const RequestRecord* record = record_of(request);
  return record == nullptr || record->may_route;
}

/// The tenant that the request counts for by its credentials; empty: none is known.
inline std::string_view tenant_of(const net::HttpRequest& request) {
  const RequestRecord* record = record_of(request);
  return record == nullptr ? std::string_view() : record->caller.tenant;
}

/// The conversation's name within its tenant: clients choose these names, and no tenant is to
/// follow another's conversation to its worker.
inline std::string session_of(const net::HttpRequest& request, const std::string& session) {
  const std::string_view tenant = tenant_of(request);
  return tenant.empty() || session.empty() ? session : std::string(tenant) + "\n" + session;
}

/// The priority that the server itself has given the request, else the one that is wished for,
/// else 0.
inline int32_t priority_of(const net::HttpRequest& request, std::optional<int32_t> wished) {
  const RequestRecord* record = record_of(request);
  return record != nullptr && record->priority ? *record->priority : wished.value_or(0);
}

}  // namespace stator::frontend
