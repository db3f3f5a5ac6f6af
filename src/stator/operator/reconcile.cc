// SPDX-License-Identifier: Apache-2.0
#include "stator/operator/reconcile.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <set>

#include "stator/operator/checkpoint.h"
#include "stator/operator/move_in.h"
#include "stator/operator/names.h"
#include "stator/operator/objects.h"
#include "stator/operator/reconcile_pass.h"
#include "stator/operator/render.h"
#include "stator/operator/rollout.h"

namespace stator::op {
namespace {

using json::Value;

bool is_ready(const Value& component) {
  if (kube::int_at(component, {"status", "observedGeneration"}, 0) <
      kube::generation_of(component)) {
    return false;
  }
  const Value* conditions = component.find_at({"status", "conditions"});
  return conditions != nullptr &&
         std::ranges::any_of(conditions->elements(), [](const Value& condition) {
           return condition.text_at({"type"}) == "Available" &&
                  condition.text_at({"status"}) == "True";
         });
}

const Value* find_component(const Pass& pass, std::string_view name) {
  for (const Value& component : pass.view.components) {
    if (kube::name_of(component).name == name) {
      return &component;
    }
  }
  return nullptr;
}

/// "25%" or "2" of a number.
int64_t share(std::string_view text, int64_t of, bool up) {
  int64_t number = 0;
  const bool percent = text.ends_with('%');
  const std::string_view digits = text.substr(0, text.size() - (percent ? 1 : 0));
  std::from_chars(digits.data(), digits.data() + digits.size(), number);
  return !percent ? number : (number * of + (up ? 99 : 0)) / 100;
}

/// The same object without what the server wrote: to be applied again with a change.
Value reapplied(const Value& stored) {
  Value object =
      kube::make_object(kube::resource_of(stored.text_at({"kind"})), kube::name_of(stored));
  for (const std::string_view key : {"labels", "annotations", "ownerReferences"}) {
    if (const Value* value = stored.find_at({"metadata", key})) {
      object["metadata"][key] = *value;
    }
  }
  object["spec"] = *stored.find("spec");
  return object;
}

std::string_view strategy_of(const Graph& graph, const Component& component, std::string_view key,
                             std::string_view fallback) {
  const std::string_view own = component.annotation(key);
  const std::string_view general = graph.annotation(key);
  return !own.empty() ? own : !general.empty() ? general : fallback;
}

/// The generation that serves: what is stored on the graph if its components are there, else the
/// newest that components carry. Annotations may get lost; labels of children do not.
std::string active_generation(const Pass& pass, const std::string& desired) {
  std::set<std::string> present;
  for (const Value& component : pass.view.components) {
    if (const std::string_view hash = kube::label_of(component, kLabelWorkerHash); !hash.empty()) {
      present.emplace(hash);
    }
  }
  const std::string stored(pass.graph.annotation(kAnnotationWorkerHash));
  if (present.contains(stored)) {
    return stored;
  }
  present.erase(desired);
  return present.empty() ? desired : *present.begin();
}

/// Sets replicas of both generations of a worker component, one step further. True when done.
bool roll_component(Pass& pass, const Component& component, const std::string& active,
                    Value& fresh) {
  const Value* old =
      find_component(pass, component_object_name(pass.graph.name(), component.name(), active));
  if (old == nullptr) {
    return true;
  }
  const std::string name = kube::name_of(fresh).name;
  const Value* made = find_component(pass, name);
  const int64_t desired = component.replicas();
  RolloutView view{
      .desired = desired,
      .surge = share(strategy_of(pass.graph, component, kAnnotationMaxSurge, "25%"), desired, true),
      .unavailable = share(strategy_of(pass.graph, component, kAnnotationMaxUnavailable, "25%"),
                           desired, false),
      .old_spec = kube::int_at(*old, {"spec", "replicas"}, 0),
      .old_available = kube::int_at(*old, {"status", "component", "availableReplicas"}, 0)};
  if (made != nullptr) {
    view.new_spec = kube::int_at(*made, {"spec", "replicas"}, 0);
    view.new_available = kube::int_at(*made, {"status", "component", "availableReplicas"}, 0);
  }
  const bool recreate =
      strategy_of(pass.graph, component, kAnnotationStrategy, "RollingUpdate") == "Recreate";
  RolloutTargets targets = plan_rollout(view);
  const int64_t old_running = kube::int_at(*old, {"status", "component", "replicas"}, 0);
  if (recreate) {
    targets = {.old_replicas = 0, .new_replicas = old_running == 0 ? desired : 0};
  }
  fresh["spec"]["replicas"] = targets.new_replicas;
  Value kept = reapplied(*old);
  kept["spec"]["replicas"] = targets.old_replicas;
  pass.plan.apply.push_back(std::move(kept));
  return view.new_available >= desired && old_running == 0 && view.old_spec == 0;
}

/// Worker classes roll as one: nothing of the old generation goes for good before all of the new
/// one serves.
void plan_generations(Pass& pass, std::vector<Value>& desired, const std::string& hash,
                      Value& status) {
  const std::string active = active_generation(pass, hash);
  std::string now_active = active;
  Value updated = Value::array();
  if (active != hash) {
    bool all_done = true;
    for (Value& object : desired) {
      const Component* component = pass.graph.find(kube::label_of(object, kLabelComponent));
      if (component == nullptr || !component->is_worker()) {
        continue;
      }
      const bool done = roll_component(pass, *component, active, object);
      all_done = all_done && done;
      if (done) {
        updated.push_back(component->name());
      }
    }
    now_active = all_done ? hash : active;
    pass.rolls = !all_done;
  }
  const Value* before = pass.view.graph.find_at({"status", "rollingUpdate"});
  const std::string_view phase =
      before == nullptr ? std::string_view() : before->text_at({"phase"});
  if (pass.rolls) {
    Value update = Value::object();
    update["phase"] = phase == "Pending" || phase == "InProgress" ? "InProgress" : "Pending";
    update["startTime"] = phase == "Pending" || phase == "InProgress"
                              ? before->text_at({"startTime"})
                              : std::string_view(pass.view.now);
    update["updatedComponents"] = std::move(updated);
    status["rollingUpdate"] = std::move(update);
  } else if (phase == "Pending" || phase == "InProgress") {
    Value update = *before;
    update["phase"] = "Completed";
    update["endTime"] = pass.view.now;
    status["rollingUpdate"] = std::move(update);
    pass.plan.events.push_back(
        {false, "RollingUpdateCompleted", "all workers are of generation " + hash});
  } else if (before != nullptr) {
    status["rollingUpdate"] = *before;
  }
  if (!hash.empty() && pass.graph.annotation(kAnnotationWorkerHash) != now_active) {
    if (!pass.plan.patch) {
      pass.plan.patch = Value::object();
    }
    kube::at(*pass.plan.patch, {"metadata", "annotations"})[kAnnotationWorkerHash] = now_active;
  }
  std::set<std::string> wanted;
  for (const Value& object : desired) {
    wanted.insert(kube::name_of(object).name);
  }
  for (const Value& component : pass.view.components) {
    const kube::ObjectName name = kube::name_of(component);
    const bool is_old = kube::label_of(component, kLabelWorkerHash) == active && pass.rolls;
    if (!wanted.contains(name.name) && !is_old) {
      pass.plan.remove.push_back({kube::resource_of("DynamoComponentDeployment"), name,
                                  std::string(kube::uid_of(component))});
    }
  }
}

/// Restarts: components before the current one keep their mark, the current one gets it.
void plan_restart(Pass& pass, std::vector<Value>& desired, Value& status) {
  const Value* restart = pass.view.graph.find_at({"spec", "restart"});
  const Value* before = pass.view.graph.find_at({"status", "restart"});
  const std::string id(restart == nullptr ? "" : restart->text_at({"id"}));
  const auto stored_mark = [&](const Value& object) {
    const Value* stored = find_component(pass, kube::name_of(object).name);
    return stored == nullptr ? std::string()
                             : std::string(kube::annotation_of(*stored, kAnnotationRestartAt));
  };
  for (Value& object : desired) {
    if (const std::string mark = stored_mark(object); !mark.empty()) {
      kube::at(object, {"metadata", "annotations"})[kAnnotationRestartAt] = mark;
    }
  }
  if (id.empty()) {
    return;
  }
  const bool is_known = before != nullptr && before->text_at({"observedID"}) == id;
  const std::string_view phase = is_known ? before->text_at({"phase"}) : std::string_view();
  if (phase == "Completed" || phase == "Failed" || phase == "Superseded") {
    status["restart"] = *before;
    return;
  }
  Value report = Value::object();
  report["observedID"] = id;
  if (pass.rolls) {
    report["phase"] = "Superseded";
    pass.plan.events.push_back(
        {true, "RestartSuperseded", "a rolling update replaces the workers anyway"});
    status["restart"] = std::move(report);
    return;
  }
  const std::vector<std::string> order = restart_order(pass.graph, *restart);
  const bool parallel = restart->text_at({"strategy", "type"}) == "Parallel";
  Value in_progress = Value::array();
  for (const std::string& name : order) {
    const auto object = std::ranges::find_if(
        desired, [&](const Value& each) { return kube::label_of(each, kLabelComponent) == name; });
    if (object == desired.end()) {
      continue;
    }
    const Value* stored = find_component(pass, kube::name_of(*object).name);
    // A mark changes no generation: the component itself tells when its pods have it.
    const bool done = stored != nullptr && stored_mark(*object) == id && is_ready(*stored) &&
                      stored->text_at({"status", "restartedAt"}) == id;
    if (done) {
      continue;
    }
    if (parallel || in_progress.size() == 0) {
      kube::at(*object, {"metadata", "annotations"})[kAnnotationRestartAt] = id;
      in_progress.push_back(name);
    }
  }
  report["phase"] = in_progress.size() == 0 ? "Completed" : "Restarting";
  if (in_progress.size() > 0) {
    report["inProgress"] = std::move(in_progress);
  }
  status["restart"] = std::move(report);
}

/// The components as they should be. Pods that another operator made stay where nothing has changed
/// since, and the workers' generation with them.
std::vector<Value> desired_components(Pass& pass, std::string& hash) {
  hash = rolling_hash(pass.graph);
  std::vector<Value> desired = make_component_deployments(pass.graph, pass.environment, hash, "");
  std::optional<Adoption> adoption = read_adoption(pass.graph);
  if (!adoption && pass.graph.annotation(kAnnotationAdopted).empty()) {
    adoption = find_adoption(pass.view, pass.graph, desired);
    if (adoption) {
      if (!pass.plan.patch) {
        pass.plan.patch = Value::object();
      }
      kube::at(*pass.plan.patch, {"metadata", "annotations"})[kAnnotationAdopted] =
          to_text(*adoption);
      pass.plan.events.push_back({false, "PodsKept", "the pods of the operator before are kept"});
    }
  }
  if (!adoption) {
    return desired;
  }
  // Leader-worker sets roll by themselves: whatever changes, they keep the names that they have.
  const bool keeps_names =
      hash.empty() ? !adoption->generation.empty() : adoption->keeps_workers(desired);
  if (keeps_names) {
    hash = adoption->generation;
    desired = make_component_deployments(pass.graph, pass.environment, hash, "");
  }
  for (Value& object : desired) {
    if (adoption->keeps(object)) {
      object["metadata"]["annotations"][kAnnotationKeepsPods] = "true";
    }
  }
  return desired;
}

bool waits_for_checkpoint(const Pass& pass, const Component& component) {
  return std::ranges::find(pass.waiting, component.name()) != pass.waiting.end();
}

/// Checkpoints that components want: made where they are not there, and told in the status.
void plan_checkpoints(Pass& pass, Value& status) {
  for (const Component& component : pass.graph.components()) {
    const auto use = read_checkpoint(pass.graph, component);
    if (!use) {
      continue;
    }
    const auto stored = std::ranges::find_if(pass.view.checkpoints, [&](const Value& each) {
      return kube::name_of(each).name == use->name;
    });
    const bool is_there = stored != pass.view.checkpoints.end();
    if (!is_there && use->is_own) {
      Value made = make_checkpoint(
          {.graph = pass.graph, .component = component, .environment = pass.environment}, *use);
      if (!use->is_retained) {
        kube::set_owner(made, pass.view.graph);
      }
      pass.plan.create.push_back(std::move(made));
    }
    const bool ready = is_there && stored->text_at({"status", "phase"}) == "Ready";
    Value& report = status["checkpoints"][component.name()];
    report["checkpointName"] = use->name;
    report["checkpointID"] =
        is_there ? stored->text_at({"status", "checkpointID"}) : std::string_view();
    report["ready"] = ready;
    if (use->waits && !ready) {
      pass.waiting.push_back(component.name());
    }
  }
}

void plan_component_path(Pass& pass, Value& status) {
  std::string hash;
  std::vector<Value> desired = desired_components(pass, hash);
  plan_generations(pass, desired, hash, status);
  plan_restart(pass, desired, status);
  for (Value& object : desired) {
    const Component* component = pass.graph.find(kube::label_of(object, kLabelComponent));
    const Value* stored = find_component(pass, kube::name_of(object).name);
    if (stored == nullptr && waits_for_checkpoint(pass, *component)) {
      continue;  // no pods before they can be restored
    }
    Value replicas = Value::object();
    if (const Value* own = stored == nullptr ? nullptr : stored->find_at({"status", "component"})) {
      replicas = *own;
    } else {
      replicas["componentKind"] = component->is_multinode() ? "LeaderWorkerSet" : "Deployment";
      replicas["replicas"] = 0;
      replicas["updatedReplicas"] = 0;
    }
    // The component is ready when the server's copy is what we want, and its workload is.
    const bool is_current = stored != nullptr && kube::int_at(*stored, {"spec", "replicas"}, -1) ==
                                                     kube::int_at(object, {"spec", "replicas"}, 0);
    const bool ready = is_current && is_ready(*stored);
    report_component(pass, *component, {ready, shortage_of(replicas, component->replicas())},
                     replicas);
    kube::set_owner(object, pass.view.graph);
    pass.plan.apply.push_back(std::move(object));
  }
}

void plan_adapters(Pass& pass) {
  for (Value& adapter : make_scaling_adapters(pass.graph)) {
    const kube::ObjectName name = kube::name_of(adapter);
    const Component& component =
        *pass.graph.find(adapter.text_at({"spec", "dgdRef", "componentName"}));
    const auto stored = std::ranges::find_if(
        pass.view.adapters, [&](const Value& each) { return kube::name_of(each) == name; });
    if (stored == pass.view.adapters.end()) {
      kube::set_owner(adapter, pass.view.graph);
      pass.plan.create.push_back(std::move(adapter));
      continue;
    }
    const int64_t wanted = kube::int_at(*stored, {"spec", "replicas"}, component.replicas());
    const auto& all = pass.graph.components();
    const auto index = &component - all.data();
    Value status = Value::object();
    status["replicas"] = kube::int_at(pass.components, {component.name(), "replicas"}, 0);
    status["selector"] = fmt::format("{}={},{}={}", kLabelGraph, label_value(pass.graph.name()),
                                     kLabelComponent, component.name());
    if (const std::string_view last = stored->text_at({"status", "lastScaleTime"}); !last.empty()) {
      status["lastScaleTime"] = last;
    }
    if (wanted != component.replicas()) {
      // The component is named again in the patch: a list may have moved meanwhile.
      Value patch = pass.plan.replicas ? std::move(*pass.plan.replicas) : Value::array();
      Value test = Value::object();
      test["op"] = "test";
      test["path"] = fmt::format("/spec/components/{}/name", index);
      test["value"] = component.name();
      Value add = Value::object();
      add["op"] = "add";
      add["path"] = fmt::format("/spec/components/{}/replicas", index);
      add["value"] = wanted;
      patch.push_back(std::move(test));
      patch.push_back(std::move(add));
      pass.plan.replicas = std::move(patch);
      status["lastScaleTime"] = pass.view.now;
      pass.plan.events.push_back(
          {false, "Scaled", fmt::format("{}: {} replicas", component.name(), wanted)});
    }
    const Value* old_status = stored->find("status");
    if (old_status == nullptr || !kube::same(*old_status, status)) {
      pass.plan.statuses.emplace_back(*stored, std::move(status));
    }
  }
  for (const Value& stored : pass.view.adapters) {
    const Component* component =
        pass.graph.find(stored.text_at({"spec", "dgdRef", "componentName"}));
    if (component == nullptr || !component->has_adapter()) {
      pass.plan.remove.push_back({kube::resource_of("DynamoGraphDeploymentScalingAdapter"),
                                  kube::name_of(stored), std::string(kube::uid_of(stored))});
    }
  }
}

std::string_view word_of(Shortage shortage) {
  switch (shortage) {
    case Shortage::kCapacity:
      return "InsufficientCapacity";
    case Shortage::kUpdating:
      return "Updating";
    case Shortage::kPods:
      return "PodsNotReady";
    case Shortage::kUnknown:
      return "SomeResourcesAreNotReady";
  }
  return {};
}

/// One reason for all that is not ready, if there is one.
std::string_view reason_of(const Pass& pass) {
  for (const auto& [name, shortage] : pass.not_ready) {
    if (shortage != pass.not_ready.front().second) {
      return "MixedNotReadyReasons";
    }
  }
  return pass.not_ready.empty() ? "SomeResourcesAreNotReady"
                                : word_of(pass.not_ready.front().second);
}

std::string describe(const Pass& pass) {
  std::string text;
  for (const auto& [name, shortage] : pass.not_ready) {
    text += fmt::format("{}{}{}", text.empty() ? "" : ", ", name,
                        shortage == Shortage::kCapacity ? " (no capacity for its pods)" : "");
  }
  return text;
}

std::string join(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) {
    text += (text.empty() ? "" : ", ") + word;
  }
  return text;
}

void finish_status(Pass& pass, Value status) {
  const bool ready = pass.not_ready.empty() && pass.waiting.empty() && !pass.rolls;
  const bool waits = !pass.waiting.empty();
  Value condition = Value::object();
  condition["type"] = "Ready";
  condition["status"] = ready ? "True" : "False";
  condition["reason"] = ready        ? "AllResourcesAreReady"
                        : waits      ? "WaitingForCheckpoint"
                        : pass.rolls ? "RollingUpdateInProgress"
                                     : reason_of(pass);
  condition["message"] = ready   ? "All resources are ready"
                         : waits ? fmt::format("waiting for checkpoints: {}", join(pass.waiting))
                                 : fmt::format("not ready: {}", describe(pass));
  condition["lastTransitionTime"] = pass.view.now;
  condition["observedGeneration"] = kube::generation_of(pass.view.graph);
  const Value* before = pass.view.graph.find_at({"status", "conditions"});
  Value conditions = Value::array();
  set_condition(conditions, before, std::move(condition));
  if (!pass.topology.is_null()) {
    set_condition(conditions, before, std::move(pass.topology));
  }
  const bool was_ready = pass.view.graph.text_at({"status", "state"}) == "successful";
  if (ready && !was_ready) {
    pass.plan.events.push_back({false, "Ready", "all components are ready"});
  }
  status["observedGeneration"] = kube::generation_of(pass.view.graph);
  status["state"] = ready ? "successful" : waits ? "waiting_for_checkpoint" : "pending";
  status["conditions"] = std::move(conditions);
  status["components"] = std::move(pass.components);
  pass.plan.status = std::move(status);
}

Plan refuse(const GraphView& view, std::string_view why) {
  Plan plan;
  Value condition = Value::object();
  condition["type"] = "Ready";
  condition["status"] = "False";
  condition["reason"] = "InvalidSpec";
  condition["message"] = why;
  condition["lastTransitionTime"] = view.now;
  condition["observedGeneration"] = kube::generation_of(view.graph);
  Value conditions = Value::array();
  set_condition(conditions, view.graph.find_at({"status", "conditions"}), std::move(condition));
  plan.status = Value::object();
  plan.status["observedGeneration"] = kube::generation_of(view.graph);
  plan.status["state"] = "failed";
  plan.status["conditions"] = std::move(conditions);
  plan.events.push_back({true, "InvalidSpec", std::string(why)});
  return plan;
}

bool has_finalizer(const Value& object) {
  const Value* finalizers = object.find_at({"metadata", "finalizers"});
  return finalizers != nullptr &&
         std::ranges::any_of(finalizers->elements(),
                             [](const Value& each) { return each.text() == kFinalizer; });
}

Value finalizers_with(const Value& object, bool ours) {
  Value list = Value::array();
  if (const Value* stored = object.find_at({"metadata", "finalizers"})) {
    for (const Value& each : stored->elements()) {
      if (each.text() != kFinalizer) {
        list.push_back(each);
      }
    }
  }
  if (ours) {
    list.push_back(kFinalizer);
  }
  return list;
}

}  // namespace

void report_component(Pass& pass, const Component& component, const ComponentState& state,
                      const Value& replicas) {
  Value report = replicas;
  report["runtimeNamespace"] = pass.graph.runtime_namespace_of(component);
  pass.components[component.name()] = std::move(report);
  if (!state.is_ready) {
    pass.not_ready.emplace_back(component.name(), state.shortage);
  }
}

Shortage shortage_of(const Value& replicas, int64_t desired) {
  const auto count = [&](std::string_view key) { return kube::int_at(replicas, {key}, 0); };
  const Value* scheduled = replicas.find("scheduledReplicas");
  if (scheduled != nullptr && scheduled->as_int64().value_or(desired) < desired) {
    return Shortage::kCapacity;
  }
  if (replicas.find("updatedReplicas") == nullptr) {
    return Shortage::kUnknown;
  }
  return count("updatedReplicas") < desired ? Shortage::kUpdating : Shortage::kPods;
}

std::vector<std::string> restart_order(const Graph& graph, const Value& restart) {
  std::vector<std::string> order;
  if (const Value* given = restart.find_at({"strategy", "order"})) {
    for (const Value& name : given->elements()) {
      order.emplace_back(name.text());
    }
  }
  if (order.empty()) {
    for (const Component& component : graph.components()) {
      order.push_back(component.name());
    }
    std::ranges::sort(order);
  }
  return order;
}

Plan plan_graph(const GraphView& view, const Environment& environment) {
  Plan plan;
  if (view.graph.find_at({"metadata", "deletionTimestamp"}) != nullptr) {
    // Before any look at the spec: a broken graph can be deleted, too. Children go by their owner.
    if (has_finalizer(view.graph)) {
      plan.patch = Value::object();
      kube::at(*plan.patch, {"metadata"})["finalizers"] = finalizers_with(view.graph, false);
    }
    return plan;
  }
  const auto admitted = admit(view.graph, environment);
  if (!admitted) {
    return refuse(view, admitted.error().message());
  }
  const Graph graph(*admitted, environment);
  Pass pass{.view = view, .environment = environment, .graph = graph};
  if (!has_finalizer(view.graph)) {
    pass.plan.patch = Value::object();
    kube::at(*pass.plan.patch, {"metadata"})["finalizers"] = finalizers_with(view.graph, true);
  }
  if (kube::annotation_of(view.graph, kAnnotationProvider).empty()) {
    if (!pass.plan.patch) {
      pass.plan.patch = Value::object();
    }
    kube::at(*pass.plan.patch, {"metadata", "annotations"})[kAnnotationProvider] =
        to_string(graph.provider());
  }
  for (Value& object : make_shared_objects(graph, environment)) {
    const bool is_shared = kube::label_of(object, kLabelGraph).empty();
    if (!is_shared) {
      kube::set_owner(object, view.graph);
    }
    const std::string_view kind = object.text_at({"kind"});
    const bool once = kind == "PersistentVolumeClaim" || kind == "Secret" || is_shared;
    (once ? pass.plan.create : pass.plan.apply).push_back(std::move(object));
  }
  Value status = Value::object();
  plan_checkpoints(pass, status);
  if (graph.provider() == Provider::kGrove) {
    plan_grove_path(pass, status);
  } else {
    plan_component_path(pass, status);
  }
  if (pass.waiting.empty()) {
    plan_adapters(pass);
  }
  finish_status(pass, std::move(status));
  return std::move(pass.plan);
}

}  // namespace stator::op
