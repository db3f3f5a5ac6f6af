// SPDX-License-Identifier: Apache-2.0
#include "stator/operator/model.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <map>

#include "stator/kube/child_writer.h"
#include "stator/kube/object.h"
#include "stator/operator/names.h"

namespace stator::op {
namespace {

using json::Value;

Value condition(const Value& model, std::string_view type, bool holds, std::string_view reason,
                std::string message, const std::string& now) {
  Value made = Value::object();
  made["type"] = type;
  made["status"] = holds ? "True" : "False";
  made["reason"] = reason;
  made["message"] = std::move(message);
  made["lastTransitionTime"] = now;
  made["observedGeneration"] = kube::generation_of(model);
  return made;
}

}  // namespace

std::vector<ModelEndpoint> endpoints_of_model(const std::vector<Value>& slices) {
  std::map<std::string, ModelEndpoint> found;
  for (const Value& slice : slices) {
    for (const Value& endpoint : slice.at("endpoints").elements()) {
      if (!kube::bool_at(endpoint, {"conditions", "ready"}, true)) {
        continue;
      }
      for (const Value& address : endpoint.at("addresses").elements()) {
        const std::string_view ip = address.text();
        const bool is_v6 = ip.find(':') != std::string_view::npos;
        const std::string url = is_v6 ? fmt::format("http://[{}]:{}", ip, kPortSystem)
                                      : fmt::format("http://{}:{}", ip, kPortSystem);
        found.emplace(url,
                      ModelEndpoint{url, std::string(endpoint.text_at({"targetRef", "name"}))});
      }
    }
  }
  std::vector<ModelEndpoint> endpoints;
  for (auto& [url, endpoint] : found) {
    endpoints.push_back(std::move(endpoint));
  }
  return endpoints;
}

bool is_adapter(const Value& model) {
  const std::string_view type = model.text_at({"spec", "modelType"});
  return type == "lora" || type == "adapter";
}

Value status_of_model(const Value& model, const std::vector<ModelEndpoint>& endpoints,
                      bool has_service, const std::string& now) {
  Value status = Value::object();
  Value list = Value::array();
  int64_t ready = 0;
  for (const ModelEndpoint& endpoint : endpoints) {
    Value entry = Value::object();
    entry["address"] = endpoint.address;
    entry["podName"] = endpoint.pod;
    entry["ready"] = endpoint.ready;
    ready += endpoint.ready ? 1 : 0;
    list.push_back(std::move(entry));
  }
  const auto total = static_cast<int64_t>(endpoints.size());
  status["observedGeneration"] = kube::generation_of(model);
  status["endpoints"] = std::move(list);
  status["readyEndpoints"] = ready;
  status["totalEndpoints"] = total;
  const Value* before = model.find_at({"status", "conditions"});
  Value conditions = Value::array();
  kube::set_condition(conditions, before,
                      condition(model, "ServicesFound", has_service,
                                has_service ? "ServicesFound" : "NoServicesFound",
                                has_service ? std::string()
                                            : fmt::format("no worker has modelRef.name {}",
                                                          model.text_at({"spec", "baseModelName"})),
                                now));
  const bool all = total > 0 && ready == total;
  kube::set_condition(conditions, before,
                      condition(model, "EndpointsReady", all,
                                all          ? "AllEndpointsReady"
                                : total == 0 ? "NoEndpoints"
                                             : "NotReady",
                                fmt::format("{} of {} endpoints ready", ready, total), now));
  status["conditions"] = std::move(conditions);
  return status;
}

}  // namespace stator::op
