// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "stator/core/clock.h"
#include "stator/core/metrics.h"
#include "stator/core/mutex.h"
#include "stator/core/result.h"
#include "stator/json/value.h"
#include "stator/router/receipt.h"
#include "stator/router/router_service.h"

namespace stator::epp {

/// A model server that requests can be sent to.
struct Endpoint {
  std::string address;        ///< ip:port
  bool is_prefill = false;    ///< computes prompts for others, and answers nobody
  std::string instance = {};  ///< how Dynamo's workers know it; empty: not
  bool operator==(const Endpoint&) const = default;
};

/// Endpoints as a file says them: lines or a list of ip:port, or of {address, role: prefill,
/// instance}, alone or under "endpoints". kInvalidArgument names what is wrong.
Result<std::vector<Endpoint>> read_endpoints(const json::Value& document);

/// Of the same file, "objectives": {name: priority}; empty where there are none. kInvalidArgument.
Result<std::map<std::string, double, std::less<>>> read_objectives(const json::Value& document);

/// What a request asks for, as far as choosing depends on it.
struct PickRequest {
  std::string_view request_id;
  std::string_view model;
  std::string_view prompt;  ///< text whose beginning may be cached somewhere; verbatim JSON will do
  std::optional<std::vector<std::string>> subset;  ///< ip:port or ip; empty list: nobody
  std::vector<std::string> forced;                 ///< by a test; beats the subset
  double priority = 0;
};

/// The choice, with the load it means booked until this is gone.
struct Pick {
  std::string endpoint;  ///< "ip:port[,ip:port…]"
  std::string instance;
  std::string prefill;  ///< "ip:port"; empty: the endpoint does it
  std::string prefill_instance;
  router::LoadLease lease;
  router::LoadLease prefill_lease;
};

/// The endpoints there are, and the routers over them: one for those that answer, one for those
/// that compute prompts. Where a prompt's beginning may be cached is remembered from our own
/// choices. Thread-safe.
class EndpointPool {
 public:
  static Result<std::unique_ptr<EndpointPool>> create(const Clock& clock, Metrics& metrics);

  void set_endpoints(const std::vector<Endpoint>& endpoints);
  /// Priorities of InferenceObjectives by name: what a gateway's x-gateway-inference-objective
  /// says.
  void set_objectives(std::map<std::string, double, std::less<>> priorities);
  /// 0 for an objective that nobody has heard of.
  double priority_of(std::string_view objective) const;
  size_t size() const;
  bool has_synced() const;

  /// kUnavailable: nobody is there or allowed (503); kOverloaded: all are full (429).
  Result<Pick> pick(const PickRequest& request);

 private:
  struct Known {
    Endpoint endpoint;
    WorkerId id;
  };
  EndpointPool(std::shared_ptr<router::RouterService> answers,
               std::shared_ptr<router::RouterService> prefills);
  std::vector<WorkerId> allowed_by(const PickRequest& request, bool& restricted) const
      STATOR_REQUIRES(mutex_);

  std::shared_ptr<router::RouterService> answers_;   // shared with its tickets
  std::shared_ptr<router::RouterService> prefills_;  // shared with its tickets
  mutable Mutex mutex_;
  std::map<std::string, Known> by_address_ STATOR_GUARDED_BY(mutex_);
  std::map<uint64_t, std::string> by_id_ STATOR_GUARDED_BY(mutex_);
  std::map<std::string, double, std::less<>> objectives_ STATOR_GUARDED_BY(mutex_);
  uint64_t next_id_ STATOR_GUARDED_BY(mutex_) = 1;
  size_t prefill_count_ STATOR_GUARDED_BY(mutex_) = 0;
  bool synced_ STATOR_GUARDED_BY(mutex_) = false;
};

/// The prompt of a chat or completion request, verbatim: its messages, or its text. Empty for
/// bodies of other endpoints. kInvalidArgument for a body that is no JSON object.
struct RequestFacts {
  std::string model;
  std::string prompt;
  bool stream = false;
};
Result<RequestFacts> read_request(std::string_view body);

}  // namespace stator::epp
