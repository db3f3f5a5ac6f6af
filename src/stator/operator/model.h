// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "stator/core/clock.h"
#include "stator/core/metrics.h"
#include "stator/core/result.h"
#include "stator/json/value.h"
#include "stator/kube/client.h"

namespace stator::op {

/// A worker that serves a base model, as an EndpointSlice names it.
struct ModelEndpoint {
  std::string address;  ///< http://<ip>:9090
  std::string pod;
  bool ready = false;  ///< base: it is there; adapters: it has loaded it
  bool operator==(const ModelEndpoint&) const = default;
};

/// The addresses of slices of a base model's Service that are ready, each once, in order.
std::vector<ModelEndpoint> endpoints_of_model(const std::vector<json::Value>& slices);

/// Whether a DynamoModel is an adapter that workers have to load.
bool is_adapter(const json::Value& model);

/// The status of a DynamoModel: endpoints, totals, conditions ServicesFound and EndpointsReady.
json::Value status_of_model(const json::Value& model, const std::vector<ModelEndpoint>& endpoints,
                            bool has_service, const std::string& now);

struct ModelOptions {
  std::string space = {};  ///< only this namespace; empty: all
  std::string holder = {};
  std::function<bool(std::string_view)> wanted = {};  ///< null: all namespaces
  std::string token = {};  ///< of the workers' system ports; never logged
};

/// Keeps DynamoModels: finds the workers of their base model, and has adapters loaded by all of
/// them (POST /v1/loras) and unloaded before a model goes (its finalizer). At most 10 requests at
/// once for a model, 15 s each and 30 s together; what is missing is tried again after 30 s.
/// The client must have been stopped before it is destroyed.
class ModelController {
 public:
  virtual ~ModelController() = default;
};
std::unique_ptr<ModelController> start_model_controller(kube::Client& client, ModelOptions options,
                                                        Clock& clock, Metrics& metrics);

}  // namespace stator::op
