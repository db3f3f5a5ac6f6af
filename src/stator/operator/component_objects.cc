// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "stator/kube/object.h"
#include "stator/operator/checkpoint.h"
#include "stator/operator/convert.h"
#include "stator/operator/gpu_memory.h"
#include "stator/operator/names.h"
#include "stator/operator/objects.h"
#include "stator/operator/pod_template.h"

namespace stator::op {
namespace {

using json::Value;

std::string_view either(std::string_view own, std::string_view general) {
  return own.empty() ? general : own;
}

std::string_view annotation_for(const Graph& graph, const Component& component,
                                std::string_view key) {
  return either(component.annotation(key), graph.annotation(key));
}

/// "25%" stays text, "1" becomes a number.
Value int_or_percent(std::string_view text) {
  const bool is_number =
      !text.empty() && std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
  return is_number ? Value::number(std::string(text)) : Value(text);
}

Value make_strategy(const Graph& graph, const Component& component) {
  Value strategy = Value::object();
  if (annotation_for(graph, component, kAnnotationStrategy) == "Recreate") {
    strategy["type"] = "Recreate";
    return strategy;
  }
  strategy["type"] = "RollingUpdate";
  const std::string_view surge = annotation_for(graph, component, kAnnotationMaxSurge);
  const std::string_view unavailable = annotation_for(graph, component, kAnnotationMaxUnavailable);
  strategy["rollingUpdate"]["maxSurge"] = int_or_percent(either(surge, "25%"));
  strategy["rollingUpdate"]["maxUnavailable"] = int_or_percent(either(unavailable, "25%"));
  return strategy;
}

Value make_deployment(const PodContext& pods, const kube::ObjectName& name) {
  Value deployment = kube::make_object(kube::resource_of("Deployment"), name);
  deployment["metadata"]["labels"] = system_labels(pods);
  Value& spec = deployment["spec"];
  spec["replicas"] = pods.component.replicas();
  spec["selector"]["matchLabels"][kLabelSelector] = pods.selector;
  spec["strategy"] = make_strategy(pods.graph, pods.component);
  spec["template"] = make_pod_template(pods);
  return deployment;
}

Value make_leader_worker_set(PodContext pods, const kube::ObjectName& name) {
  Value set =
      kube::make_object(kube::resource_of("LeaderWorkerSet"), {name.space, name.name + "-0"});
  set["metadata"]["labels"] = system_labels(pods);
  Value& spec = set["spec"];
  spec["replicas"] = pods.component.replicas();
  spec["startupPolicy"] = "LeaderCreated";
  spec["rolloutStrategy"]["type"] = "RollingUpdate";
  Value& both = spec["leaderWorkerTemplate"];
  both["size"] = pods.component.nodes();
  pods.role = Role::kLeader;
  both["leaderTemplate"] = make_pod_template(pods);
  both["leaderTemplate"]["metadata"]["labels"]["role"] = "leader";
  pods.role = Role::kWorker;
  both["workerTemplate"] = make_pod_template(pods);
  both["workerTemplate"]["metadata"]["labels"]["role"] = "worker";
  return set;
}

/// The component's spec with what the graph says for all: environment, labels, annotations.
Value effective_spec(const Graph& graph, const Component& component) {
  Value spec = component.spec();
  if (const Value* env = graph.object().find_at({"spec", "env"})) {
    Value* containers = &kube::at(spec, {"podTemplate", "spec"})["containers"];
    if (Value* main = kube::find_named(containers, "main")) {
      const Value own = main->find("env") == nullptr ? Value::array() : *main->find("env");
      (*main)["env"] = merge_env(*env, own);
    }
  }
  for (const std::string_view section : {"labels", "annotations"}) {
    if (const Value* common = graph.object().find_at({"spec", section})) {
      Value merged = *common;
      if (const Value* own = spec.find_at({"podTemplate", "metadata", section})) {
        kube::merge_patch(merged, *own);
      }
      kube::at(spec, {"podTemplate", "metadata"})[section] = std::move(merged);
    }
  }
  if (const Value* policy = graph.object().find_at({"spec", "experimental", "kvTransferPolicy"})) {
    kube::at(spec, {"experimental"})["kvTransferPolicy"] = *policy;
  }
  if (const auto use = read_checkpoint(graph, component); use && use->is_own) {
    // Named by what the graph says of it: the component alone would give it another name.
    Value& checkpoint = kube::at(spec, {"experimental", "checkpoint"});
    checkpoint["checkpointRef"] = use->name;
    checkpoint.erase("job");
  }
  return spec;
}

}  // namespace

std::string rolling_hash(const Graph& graph) {
  const bool rolls = graph.provider() == Provider::kComponent &&
                     std::ranges::none_of(graph.components(), [](const Component& component) {
                       return component.is_worker() && component.is_multinode();
                     });
  return rolls ? worker_hash(graph) : "";
}

std::vector<Value> make_component_deployments(const Graph& graph, const Environment&,
                                              std::string_view hash, std::string_view restart_id) {
  std::vector<Value> made;
  for (const Component& component : graph.components()) {
    const std::string_view own_hash = component.is_worker() ? hash : std::string_view();
    Value object = kube::make_object(
        kube::resource_of("DynamoComponentDeployment"),
        {graph.space(), component_object_name(graph.name(), component.name(), own_hash)});
    Value& labels = object["metadata"]["labels"];
    labels[kLabelGraph] = label_value(graph.name());
    labels[kLabelComponent] = component.name();
    labels[kLabelRuntimeNamespace] = label_value(graph.runtime_namespace_of(component));
    if (!component.type().empty()) {
      labels[kLabelComponentType] = component.type();
    }
    if (!own_hash.empty()) {
      labels[kLabelWorkerHash] = own_hash;
    }
    object["metadata"]["annotations"][kAnnotationMadeBy] = kOperatorName;
    if (const Value* annotations = graph.object().find_at({"metadata", "annotations"})) {
      for (const json::Member& member : annotations->members()) {
        const bool is_ours = member.key == kAnnotationRoutableGate;
        if ((is_ours || member.key.starts_with("nvidia.com/")) &&
            member.key != kAnnotationWorkerHash && !is_conversion_annotation(member.key)) {
          object["metadata"]["annotations"][member.key] = member.value;
        }
      }
    }
    if (!restart_id.empty()) {
      object["metadata"]["annotations"][kAnnotationRestartAt] = restart_id;
    }
    if (const Value ingress = preserved_ingress(graph.object(), component.name());
        !ingress.is_null()) {
      object["metadata"]["annotations"][kAnnotationIngress] = json::to_text(ingress);
    }
    object["spec"]["backendFramework"] = graph.backend();
    if (graph.backend().empty()) {
      object["spec"].erase("backendFramework");
    }
    Value spec = effective_spec(graph, component);
    for (json::Member& member : *spec.mutable_members()) {
      object["spec"][member.key] = std::move(member.value);
    }
    made.push_back(std::move(object));
  }
  return made;
}

Value graph_around(const Value& component) {
  const kube::ObjectName name = kube::name_of(component);
  std::string_view graph = kube::label_of(component, kLabelGraph);
  if (const Value* owners = component.find_at({"metadata", "ownerReferences"})) {
    for (const Value& owner : owners->elements()) {
      if (owner.text_at({"kind"}) == "DynamoGraphDeployment") {
        graph = owner.text_at({"name"});
      }
    }
  }
  Value around = kube::make_object(kube::resource_of("DynamoGraphDeployment"),
                                   {name.space, graph.empty() ? name.name : std::string(graph)});
  if (const Value* annotations = component.find_at({"metadata", "annotations"})) {
    around["metadata"]["annotations"] = *annotations;
  }
  around["metadata"]["annotations"][kAnnotationProvider] = "component";
  Value spec = component.find("spec") == nullptr ? Value::object() : *component.find("spec");
  if (const Value* backend = spec.find("backendFramework")) {
    around["spec"]["backendFramework"] = *backend;
  }
  if (const Value* policy = spec.find_at({"experimental", "kvTransferPolicy"})) {
    kube::at(around, {"spec", "experimental"})["kvTransferPolicy"] = *policy;
  }
  if (spec.find("name") == nullptr) {
    spec["name"] = name.name;
  }
  around["spec"]["components"].push_back(std::move(spec));
  return around;
}

bool is_alone(const Value& component) {
  return component.find_at({"metadata", "ownerReferences"}) == nullptr &&
         kube::annotation_of(component, kAnnotationMadeBy).empty();
}

std::vector<Value> make_component_objects(const Value& component, const Environment& environment) {
  const Value around = graph_around(component);
  const Graph graph(around, environment);
  const Component& only = graph.components().front();
  const kube::ObjectName name{graph.space(), kube::name_of(component).name};
  const PodContext pods{
      .graph = graph,
      .component = only,
      .environment = environment,
      .worker_hash = std::string(kube::label_of(component, kLabelWorkerHash)),
      .selector = label_value(name.name),
      .restart_id = std::string(kube::annotation_of(component, kAnnotationRestartAt))};
  std::vector<Value> made;
  made.push_back(only.is_multinode() ? make_leader_worker_set(pods, name)
                                     : make_deployment(pods, name));
  made.back()["metadata"]["annotations"][kAnnotationMadeBy] = kOperatorName;
  if (const GpuMemory memory = read_gpu_memory(only); memory.enabled && !memory.is_inter_pod) {
    made.push_back(make_gpu_claim_template(graph, only));
  }
  const ServiceContext services{.graph = graph,
                                .component = only,
                                .environment = environment,
                                .name = dns_name(name.name),
                                .worker_hash = pods.worker_hash};
  std::ranges::move(make_services(services), std::back_inserter(made));
  std::ranges::move(make_entries(services), std::back_inserter(made));
  if (is_alone(component)) {
    std::ranges::move(make_shared_objects(graph, environment), std::back_inserter(made));
  }
  return made;
}

}  // namespace stator::op
