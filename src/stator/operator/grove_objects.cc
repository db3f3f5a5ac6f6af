// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "stator/kube/object.h"
#include "stator/operator/gpu_memory.h"
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
  bool is_weight_server = false;
  int64_t rank = 0;  ///< of the pods among those that share GPUs
};

Value make_clique(PodContext pods, const CliqueShape& shape) {
  pods.role = shape.role;
  pods.rank = shape.rank;
  Value pod = make_pod_template(pods);
  Value clique = Value::object();
  clique["name"] = shape.name;
  clique["labels"] = pod["metadata"]["labels"];
  clique["annotations"] = Value::object();
  clique["annotations"][kAnnotationDiscovery] = pods.graph.discovery();
  if (const Value* annotations = pod.find_at({"metadata", "annotations"})) {
    kube::merge_patch(clique["annotations"], *annotations);
  }
  Value& spec = clique["spec"];
  spec["roleName"] = shape.name;
  spec["replicas"] = shape.replicas;
  spec["minAvailable"] = shape.min_available;
  spec["podSpec"] = std::move(pod["spec"]);
  const GpuMemory memory = read_gpu_memory(pods.component);
  if (memory.is_inter_pod && shape.is_weight_server) {
    become_weight_server(pods.component, shape.rank, spec["podSpec"]);
  } else if (memory.is_inter_pod) {
    become_weight_client(pods.component, shape.rank, spec["podSpec"]);
    if (memory.has_shadow) {
      clique["labels"][kLabelEngineGroup] = "true";
    }
  }
  if (pods.environment.has_kai && spec["podSpec"].find("schedulerName") == nullptr) {
    spec["podSpec"]["schedulerName"] = "kai-scheduler";
  }
  return clique;
}

/// One replica of a component that shares weights between pods: for each node a server, and the
/// engines that use it.
std::vector<CliqueShape> shapes_with_servers(const Component& component, int64_t engines) {
  const std::string base = lower(component.name());
  std::vector<CliqueShape> shapes;
  for (int64_t rank = 0; rank < component.nodes(); ++rank) {
    shapes.push_back({.name = fmt::format("{}-gms-{}", base, rank),
                      .role = Role::kMain,
                      .is_weight_server = true,
                      .rank = rank});
    CliqueShape engine{.name = base, .replicas = engines, .min_available = 1, .rank = rank};
    if (component.is_multinode()) {
      engine.name = rank == 0 ? base + "-ldr" : fmt::format("{}-wkr-{}", base, rank);
      engine.role = rank == 0 ? Role::kLeader : Role::kWorker;
    }
    shapes.push_back(std::move(engine));
  }
  return shapes;
}

std::vector<CliqueShape> shapes_of(const Component& component) {
  const std::string base = lower(component.name());
  if (const GpuMemory memory = read_gpu_memory(component); memory.is_inter_pod) {
    return shapes_with_servers(component, memory.engines());
  }
  if (component.is_multinode()) {
    const int64_t workers = component.nodes() - 1;
    return {{base + "-ldr", Role::kLeader, 1, 1}, {base + "-wkr", Role::kWorker, workers, workers}};
  }
  return {{base, Role::kMain, 1, 1}};
}

/// The claim of each rank, and who shares it.
void add_rank_claims(const Component& component, const std::vector<CliqueShape>& shapes,
                     Value& spec, Value& group) {
  for (int64_t rank = 0; rank < component.nodes(); ++rank) {
    Value config = Value::object();
    config["name"] = rank_claim_name(component, rank);
    config["templateSpec"]["spec"] = make_rank_claim_spec(component);
    spec["resourceClaimTemplates"].push_back(std::move(config));
    Value sharing = Value::object();
    sharing["name"] = rank_claim_name(component, rank);
    sharing["scope"] = "PerReplica";
    for (const CliqueShape& shape : shapes) {
      if (shape.rank == rank) {
        sharing["filter"]["childCliqueNames"].push_back(shape.name);
      }
    }
    group["resourceSharing"].push_back(std::move(sharing));
  }
}

void add_scaling_group(const PodContext& pods, std::string_view topology, Value& spec) {
  const Component& component = pods.component;
  const std::string base = lower(component.name());
  const std::vector<CliqueShape> shapes = shapes_of(component);
  const bool has_servers = read_gpu_memory(component).is_inter_pod;
  Value group = Value::object();
  group["name"] = base;
  for (const CliqueShape& shape : shapes) {
    group["cliqueNames"].push_back(shape.name);
    Value clique = make_clique(pods, shape);
    if (pods.graph.backend() == "trtllm" && shape.role == Role::kLeader) {
      clique["spec"]["startsAfter"].push_back(base + "-wkr");  // it calls them over ssh
    }
    if (has_servers && !shape.is_weight_server) {
      clique["spec"]["startsAfter"].push_back(fmt::format("{}-gms-{}", base, shape.rank));
    }
    spec["cliques"].push_back(std::move(clique));
  }
  if (has_servers) {
    add_rank_claims(component, shapes, spec, group);
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
  if (is_scaling_group(component)) {
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

Value make_set(const Graph& graph, const Environment& environment, const GroveMarks& marks) {
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
    const auto restart = marks.restarts.find(component.name());
    add_component(
        {.graph = graph,
         .component = component,
         .environment = environment,
         .worker_hash = marks.tells_pods && component.is_worker() ? marks.hash : std::string(),
         .selector = label_value(component_object_name(graph.name(), component.name())),
         .restart_id = restart == marks.restarts.end() ? std::string() : restart->second},
        topology, spec);
  }
  for (const Value& clique : spec["cliques"].elements()) {
    if (clique.find_at({"spec", "startsAfter"}) != nullptr) {
      spec["cliqueStartupType"] = "CliqueStartupTypeExplicit";
    }
  }
  if (!marks.hash.empty()) {
    set["metadata"]["annotations"][kAnnotationWorkerHash] = marks.hash;
  }
  set["metadata"]["annotations"][kAnnotationMadeBy] = kOperatorName;
  if (const Value* value = object.find_at({"spec", "providerOverride", "value"})) {
    kube::merge_patch(set, *value);
  }
  return set;
}

}  // namespace

bool is_scaling_group(const Component& component) {
  return component.is_multinode() || read_gpu_memory(component).is_inter_pod ||
         kube::bool_at(component.spec(), {"experimental", "grove", "forceScalingGroup"}, false);
}

std::vector<Value> make_grove_objects(const Graph& graph, const Environment& environment,
                                      const GroveMarks& marks) {
  std::vector<Value> made;
  made.push_back(make_set(graph, environment, marks));
  for (const Component& component : graph.components()) {
    if (const GpuMemory memory = read_gpu_memory(component);
        memory.enabled && !memory.is_inter_pod) {
      made.push_back(make_gpu_claim_template(graph, component));
    }
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
