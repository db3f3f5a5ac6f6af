// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "stator/operator/move_in.h"
#include "stator/operator/names.h"
#include "stator/operator/objects.h"
#include "stator/operator/reconcile_pass.h"

namespace stator::op {
namespace {

using json::Value;

std::string instance_of(const Graph& graph, const Component& component) {
  return fmt::format("{}-0-{}", shortened(dns_name(graph.name()), kGroveNameMax),
                     lower(component.name()));
}

const Value* find_instance(const Pass& pass, const Component& component) {
  const std::string name = instance_of(pass.graph, component);
  const std::string_view kind = is_scaling_group(component) ? "PodCliqueScalingGroup" : "PodClique";
  const auto found = std::ranges::find_if(pass.view.cliques, [&](const Value& each) {
    return kube::name_of(each).name == name && each.text_at({"kind"}) == kind;
  });
  return found == pass.view.cliques.end() ? nullptr : &*found;
}

/// The restart that a component's cliques are of.
std::string mark_of(const Pass& pass, const Component& component) {
  const std::string name = instance_of(pass.graph, component);
  for (const Value& clique : pass.view.cliques) {
    const bool is_own = clique.text_at({"kind"}) == "PodClique" &&
                        (kube::name_of(clique).name == name ||
                         kube::label_of(clique, "grove.io/podcliquescalinggroup") == name);
    if (is_own) {
      return std::string(kube::annotation_of(clique, kAnnotationRestartAt));
    }
  }
  return {};
}

struct Instance {
  Value replicas = Value::object();  ///< of the status
  ComponentState state;
};

Instance look_at(const Pass& pass, const Component& component) {
  Instance instance;
  const bool is_group = is_scaling_group(component);
  const std::string_view available = is_group ? "availableReplicas" : "readyReplicas";
  instance.replicas["componentKind"] = is_group ? "PodCliqueScalingGroup" : "PodClique";
  instance.replicas["componentNames"].push_back(instance_of(pass.graph, component));
  const Value* stored = find_instance(pass, component);
  if (stored == nullptr) {
    return instance;
  }
  const auto count = [&](std::string_view key) {
    return kube::int_at(*stored, {"status", key}, 0);
  };
  for (const std::string_view key :
       {std::string_view("replicas"), std::string_view("updatedReplicas"),
        std::string_view("scheduledReplicas"), available}) {
    instance.replicas[key] = count(key);
  }
  const bool is_seen =
      kube::int_at(*stored, {"status", "observedGeneration"}, 0) >= kube::generation_of(*stored);
  instance.state.is_ready = is_seen && count("updatedReplicas") >= component.replicas() &&
                            count(available) >= component.replicas() &&
                            kube::int_at(*stored, {"spec", "replicas"}, -1) == component.replicas();
  instance.state.shortage = shortage_of(instance.replicas, component.replicas());
  return instance;
}

/// The marks that the cliques should have now: components that were restarted keep theirs, the
/// current one, or all at once, gets the new one.
Restarts plan_restarts(Pass& pass, Value& status) {
  Restarts marks;
  for (const Component& component : pass.graph.components()) {
    if (std::string mark = mark_of(pass, component); !mark.empty()) {
      marks.emplace(component.name(), std::move(mark));
    }
  }
  const Value* restart = pass.view.graph.find_at({"spec", "restart"});
  const Value* before = pass.view.graph.find_at({"status", "restart"});
  const std::string id(restart == nullptr ? "" : restart->text_at({"id"}));
  if (id.empty()) {
    return marks;
  }
  const bool is_known = before != nullptr && before->text_at({"observedID"}) == id;
  if (is_known && before->text_at({"phase"}) != "Restarting" &&
      before->text_at({"phase"}) != "Pending") {
    status["restart"] = *before;
    return marks;
  }
  const bool parallel = restart->text_at({"strategy", "type"}) == "Parallel";
  Value in_progress = Value::array();
  for (const std::string& name : restart_order(pass.graph, *restart)) {
    const Component* component = pass.graph.find(name);
    if (component == nullptr) {
      continue;
    }
    const bool done = mark_of(pass, *component) == id && look_at(pass, *component).state.is_ready;
    if (!done && (parallel || in_progress.size() == 0)) {
      marks[name] = id;
      in_progress.push_back(name);
    }
  }
  Value report = Value::object();
  report["observedID"] = id;
  report["phase"] = in_progress.size() == 0 ? "Completed" : "Restarting";
  if (in_progress.size() > 0) {
    report["inProgress"] = std::move(in_progress);
  }
  status["restart"] = std::move(report);
  return marks;
}

/// What the set says of its topology, in the graph's words.
void mirror_topology(Pass& pass) {
  bool has_rule = pass.graph.object().find_at({"spec", "topologyConstraint"}) != nullptr;
  if (!has_rule) {
    return;
  }
  Value condition = Value::object();
  condition["type"] = "TopologyLevelsAvailable";
  condition["status"] = "Unknown";
  condition["reason"] = "TopologyConditionPending";
  condition["message"] = "the PodCliqueSet has not said yet";
  const Value* conditions =
      pass.view.set ? pass.view.set->find_at({"status", "conditions"}) : nullptr;
  if (conditions != nullptr) {
    for (const Value& each : conditions->elements()) {
      if (each.text_at({"type"}) != "TopologyLevelsUnavailable") {
        continue;
      }
      const bool missing = each.text_at({"status"}) == "True";
      const bool is_unknown = each.text_at({"status"}) == "Unknown";
      const bool no_definition =
          each.text_at({"reason"}).find("NotFound") != std::string_view::npos;
      condition["status"] = is_unknown ? "Unknown" : missing ? "False" : "True";
      condition["reason"] = no_definition ? "TopologyDefinitionNotFound"
                            : missing     ? "TopologyLevelsUnavailable"
                                          : "AllTopologyLevelsAvailable";
      condition["message"] = each.text_at({"message"});
    }
  }
  condition["lastTransitionTime"] = pass.view.now;
  condition["observedGeneration"] = kube::generation_of(pass.view.graph);
  pass.topology = std::move(condition);
}

/// A set that another operator made of this very graph stays as it is: writing it anew would
/// replace all of its pods.
bool keeps_set(Pass& pass) {
  if (!pass.view.set || !kube::annotation_of(*pass.view.set, kAnnotationMadeBy).empty() ||
      pass.view.graph.find_at({"spec", "restart"}) != nullptr) {
    return false;
  }
  const std::string hash = made_of_graph(pass.graph);
  const std::string adopted(pass.graph.annotation(kAnnotationAdopted));
  if (!adopted.empty()) {
    return adopted == hash;
  }
  const bool is_done = kube::int_at(pass.view.graph, {"status", "observedGeneration"}, -1) ==
                       kube::generation_of(pass.view.graph);
  if (!is_done) {
    return false;
  }
  if (!pass.plan.patch) {
    pass.plan.patch = Value::object();
  }
  kube::at(*pass.plan.patch, {"metadata", "annotations"})[kAnnotationAdopted] = hash;
  pass.plan.events.push_back({false, "PodsKept", "the pods of the operator before are kept"});
  return true;
}

/// Whether the workers' pods carry their generation. Those of a set that was made without it stay
/// as they are until the workers change anyway.
bool tells_generation(const Pass& pass, std::string_view hash) {
  if (!pass.view.set) {
    return true;
  }
  if (const Value* cliques = pass.view.set->find_at({"spec", "template", "cliques"})) {
    for (const Value& clique : cliques->elements()) {
      const Value* labels = clique.find("labels");
      if (labels != nullptr && labels->find(kLabelWorkerHash) != nullptr) {
        return true;
      }
    }
  }
  return kube::annotation_of(*pass.view.set, kAnnotationWorkerHash) != hash;
}

}  // namespace

void plan_grove_path(Pass& pass, Value& status) {
  GroveMarks marks{.hash = worker_hash(pass.graph)};
  marks.tells_pods = tells_generation(pass, marks.hash);
  marks.restarts = plan_restarts(pass, status);
  const bool keeps = keeps_set(pass);
  for (Value& object : make_grove_objects(pass.graph, pass.environment, marks)) {
    const bool is_set = object.text_at({"kind"}) == "PodCliqueSet";
    if (is_set && (keeps || (!pass.waiting.empty() && !pass.view.set))) {
      continue;  // kept as it is, or not before its pods can be restored
    }
    kube::set_owner(object, pass.view.graph);
    pass.plan.apply.push_back(std::move(object));
  }
  for (const Component& component : pass.graph.components()) {
    Instance instance = look_at(pass, component);
    const Value* stored = find_instance(pass, component);
    // The set's template counts at creation only; afterwards the clique is scaled itself.
    if (stored != nullptr &&
        kube::int_at(*stored, {"spec", "replicas"}, -1) != component.replicas()) {
      pass.plan.scales.push_back({kube::resource_of(stored->text_at({"kind"})),
                                  kube::name_of(*stored), component.replicas()});
    }
    report_component(pass, component, instance.state, instance.replicas);
  }
  mirror_topology(pass);
}

}  // namespace stator::op
