// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "stator/core/result.h"
#include "stator/json/value.h"

namespace stator::op {

/// How workloads are made: Deployments and LeaderWorkerSets, or PodCliqueSets.
enum class Provider : uint8_t { kComponent, kGrove };
std::string_view to_string(Provider provider);

/// What the cluster offers and the administrator chose: the same for all graphs.
struct Environment {
  bool has_grove = false;          ///< PodCliqueSets are served: new graphs take that path
  bool serves_grove = true;        ///< PodCliqueSets can be made where a graph needs them
  bool has_lws = true;             ///< LeaderWorkerSets are served
  bool has_inference_pool = true;  ///< InferencePools are served
  bool has_gateway = false;        ///< HTTPRoutes are served
  bool has_kai = false;            ///< the KAI scheduler places gangs
  bool has_volcano = false;        ///< Volcano is installed
  std::string discovery = "kubernetes";
  std::string etcd_endpoints = {};
  std::string nats_server = {};
  std::string model_express_url = {};
  std::string prometheus_endpoint = {};
  bool ingress_enabled = false;
  std::string ingress_class = {};
  std::string ingress_tls_secret = {};
  std::string ingress_host_suffix = "local";
  std::string gateway = {};  ///< "namespace/name" of the Gateway that HTTPRoutes attach to
  std::string grove_termination_delay = "4h";
  std::string version = "0.1.0";
  std::string namespace_default = "default";  ///< of objects that name none
};

/// A component of a graph in v1beta1, seen through its JSON. Refers to the graph it was made from.
class Component {
 public:
  Component(const json::Value& spec, std::string name) : spec_(&spec), name_(std::move(name)) {}

  const json::Value& spec() const { return *spec_; }
  const std::string& name() const { return name_; }
  std::string_view type() const { return spec_->text_at({"type"}); }
  bool is_worker() const;
  int64_t replicas() const;
  int64_t min_available() const;
  /// 1 for components of one node.
  int64_t nodes() const;
  bool is_multinode() const { return nodes() > 1; }
  bool is_global() const;
  bool has_adapter() const { return spec_->find("scalingAdapter") != nullptr; }
  /// podTemplate.spec.containers' "main"; null pointer if there is none.
  const json::Value* main() const;
  /// An annotation of the pod template.
  std::string_view annotation(std::string_view key) const;
  int64_t gpus() const;  ///< of main's limits, else requests: whatever resource ends in "/gpu"

 private:
  const json::Value* spec_;
  std::string name_;
};

/// A graph in v1beta1 with its defaults, seen through its JSON, which must outlive it.
class Graph {
 public:
  Graph(const json::Value& object, const Environment& environment);

  const json::Value& object() const { return *object_; }
  const std::string& space() const { return space_; }
  const std::string& name() const { return name_; }
  const std::vector<Component>& components() const { return components_; }
  const Component* find(std::string_view component) const;
  /// spec.backendFramework, else what the workers' commands name, else "".
  const std::string& backend() const { return backend_; }
  Provider provider() const { return provider_; }
  std::string_view annotation(std::string_view key) const;
  std::string runtime_namespace_of(const Component& component) const;
  std::string discovery() const;

 private:
  const json::Value* object_;
  std::string space_;
  std::string name_;
  std::vector<Component> components_;
  std::string backend_;
  Provider provider_ = Provider::kComponent;
  std::string discovery_default_;
};

/// Fills what users leave out: replicas 1, minAvailable 1 on the Grove path, the provider's and the
/// operator's annotations at creation. `graph` is in v1beta1.
void set_defaults(json::Value& graph, const Environment& environment, bool is_create);
/// The same for a component on its own: its name, replicas.
void set_component_defaults(json::Value& component);

/// Eight hex digits over all that makes workers incompatible with each other: the rendered specs of
/// worker components without their number and bookkeeping. Empty without workers.
std::string worker_hash(const Graph& graph);

}  // namespace stator::op
