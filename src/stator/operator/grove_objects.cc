// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "stator/kube/object.h"
#include "stator/operator/names.h"
#include "stator/operator/objects.h"
#include "stator/operator/pod_template.h"

namespace stator::op {
namespace {

using json::Value;

/// A graph's or a component's constraint in Grove's words.
Value topology_constraint(const Value* own, std::string_view topology) {
  Value constraint = Value::object();
  if (own == nullptr) {
    return constraint;
  }
  const std::string_view name = own->text_at({"clusterTopologyName"});
  if (!name.empty() || !topology.empty()) {
    constraint["topologyName"] = name.empty() ? topology : name;
  }
  if (const std::string_view domain = own->text_at({"packDomain"}); !domain.empty()) {
    constraint["pack"]["required"] = domain;
  }
  return constraint;
}

struct CliqueShape {
  std::string name;
  Role role = Role::kMain;
  int64_t replicas = 1;
  int64_t min_available = 1;
};

Value make_clique(PodContext pods, const CliqueShape& shape) {
  pods.role = shape.role;
  Value pod = make_pod_template(pods);
  Value clique = Value::object();
  clique["name"] = shape.name;
  clique["labels"] = pod["metadata"]["labels"];
  if (const Value* annotations = pod.find_at({"metadata", "annotations"})) {
    clique["annotations"] = *annotations;
  }
  Value& spec = clique["spec"];
  spec["roleName"] = shape.name;
  spec["replicas"] = shape.replicas;
  spec["minAvailable"] = shape.min_available;
  spec["podSpec"] = std::move(pod["spec"]);
  if (pods.environment.has_kai && spec["podSpec"].find("schedulerName") == nullptr) {
    spec["podSpec"]["schedulerName"] = "kai-scheduler";
  }
  return clique;
}

void add_scaling_group(const PodContext& pods, std::string_view topology, Value& spec) {
  const Component& component = pods.component;
  const std::string base = lower(component.name());
  std::vector<CliqueShape> shapes;
  if (component.is_multinode()) {
    const int64_t workers = component.nodes() - 1;
    shapes = {{base + "-ldr", Role::kLeader, 1, 1},
              {base + "-wkr", Role::kWorker, workers, workers}};
  } else {
    shapes = {{base, Role::kMain, 1, 1}};
  }
  Value group = Value::object();
  group["name"] = base;
  for (const CliqueShape& shape : shapes) {
    group["cliqueNames"].push_back(shape.name);
    Value clique = make_clique(pods, shape);
    if (pods.graph.backend() == "trtllm" && shape.role == Role::kLeader) {
      clique["spec"]["startsAfter"].push_back(base + "-wkr");  // it calls them over ssh
    }
    spec["cliques"].push_back(std::move(clique));
  }
  group["replicas"] = component.replicas();
  group["minAvailable"] = component.min_available();
  Value constraint = topology_constraint(component.spec().find("topologyConstraint"), topology);
  if (constraint.size() > 0) {
    group["topologyConstraint"] = std::move(constraint);
  }
  spec["podCliqueScalingGroups"].push_back(std::move(group));
}

void add_component(const PodContext& pods, std::string_view topology, Value& spec) {
  const Component& component = pods.component;
  if (component.is_multinode() ||
      kube::bool_at(component.spec(), {"experimental", "grove", "forceScalingGroup"}, false)) {
    add_scaling_group(pods, topology, spec);
    return;
  }
  Value clique = make_clique(pods, {lower(component.name()), Role::kMain, component.replicas(),
                                    component.min_available()});
  Value constraint = topology_constraint(component.spec().find("topologyConstraint"), topology);
  if (constraint.size() > 0) {
    clique["topologyConstraint"] = std::move(constraint);
  }
  spec["cliques"].push_back(std::move(clique));
}

Value make_set(const Graph& graph, const Environment& environment, std::string_view hash,
               std::string_view restart_id) {
  Value set = kube::make_object(kube::resource_of("PodCliqueSet"),
                                {graph.space(), shortened(dns_name(graph.name()), kGroveNameMax)});
  const Value& object = graph.object();
  if (const Value* labels = object.find_at({"spec", "labels"})) {
    set["metadata"]["labels"] = *labels;
  }
  set["metadata"]["labels"][kLabelGraph] = label_value(graph.name());
  if (const Value* annotations = object.find_at({"spec", "annotations"})) {
    set["metadata"]["annotations"] = *annotations;
  }
  set["spec"]["replicas"] = 1;
  if (const std::string_view strategy = graph.annotation(kAnnotationGroveUpdate);
      !strategy.empty()) {
    set["spec"]["updateStrategy"]["type"] = strategy;
  }
  Value& spec = set["spec"]["template"];
  spec["headlessServiceConfig"]["publishNotReadyAddresses"] = true;
  spec["cliqueStartupType"] = "CliqueStartupTypeAnyOrder";
  if (const std::string_view priority = object.text_at({"spec", "priorityClassName"});
      !priority.empty()) {
    spec["priorityClassName"] = priority;
  }
  spec["terminationDelay"] = environment.grove_termination_delay;
  const Value* own = object.find_at({"spec", "topologyConstraint"});
  const std::string_view topology =
      own == nullptr ? std::string_view() : own->text_at({"clusterTopologyName"});
  if (own != nullptr && !own->text_at({"packDomain"}).empty()) {
    spec["topologyConstraint"] = topology_constraint(own, topology);
  }
  for (const Component& component : graph.components()) {
    add_component({.graph = graph,
                   .component = component,
                   .environment = environment,
                   .worker_hash = "",
                   .restart_id = std::string(restart_id)},
                  topology, spec);
  }
  for (const Value& clique : spec["cliques"].elements()) {
    if (clique.find_at({"spec", "startsAfter"}) != nullptr) {
      spec["cliqueStartupType"] = "CliqueStartupTypeExplicit";
    }
  }
  if (!hash.empty()) {
    set["metadata"]["annotations"][kAnnotationWorkerHash] = hash;
  }
  if (const Value* value = object.find_at({"spec", "providerOverride", "value"})) {
    kube::merge_patch(set, *value);
  }
  return set;
}

}  // namespace

std::vector<Value> make_grove_objects(const Graph& graph, const Environment& environment,
                                      std::string_view hash, std::string_view restart_id) {
  std::vector<Value> made;
  made.push_back(make_set(graph, environment, hash, restart_id));
  for (const Component& component : graph.components()) {
    const ServiceContext services{
        .graph = graph,
        .component = component,
        .environment = environment,
        .name = dns_name(component_object_name(graph.name(), component.name()))};
    std::ranges::move(make_services(services), std::back_inserter(made));
    std::ranges::move(make_entries(services), std::back_inserter(made));
  }
  return made;
}

}  // namespace stator::op
