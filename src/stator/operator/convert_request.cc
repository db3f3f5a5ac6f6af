// SPDX-License-Identifier: Apache-2.0
#include "stator/operator/convert_request.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <utility>

#include "stator/kube/object.h"

namespace stator::op {
namespace {

using json::Member;
using json::Value;

using Pair = std::pair<std::string_view, std::string_view>;

constexpr std::string_view kProfiler = "profiler";
// Where v1alpha1 has them in profilingConfig.config, and v1beta1 by name.
constexpr std::array<Pair, 3> kGoals = {
    {{"ttft", "ttft"}, {"itl", "itl"}, {"optimizationType", "optimizationType"}}};
constexpr std::array<Pair, 2> kLengths = {{{"isl", "isl"}, {"osl", "osl"}}};
constexpr std::array<Pair, 3> kCache = {
    {{"pvcName", "pvcName"}, {"modelPathInPvc", "pvcModelPath"}, {"pvcMountPath", "pvcMountPath"}}};
constexpr std::array<std::string_view, 2> kPodFields = {"tolerations", "nodeSelector"};
constexpr std::array<std::string_view, 4> kNaming = {"name", "namespace", "labels", "annotations"};

const Value* part(const Value& object, std::initializer_list<std::string_view> path) {
  const Value* found = object.find_at(path);
  return found != nullptr && !found->is_null() ? found : nullptr;
}

void copy_rest(const Value& from, Value& to, std::initializer_list<std::string_view> except) {
  for (const Member& member : from.members()) {
    if (std::ranges::find(except, member.key) == except.end()) {
      to[member.key] = member.value;
    }
  }
}

/// Scalars of `from` into `to`, under the names that they have there.
template <size_t kSize>
Value moved(const Value* from, const std::array<Pair, kSize>& names, bool to_beta) {
  Value to = Value::object();
  for (const auto& [alpha, beta] : names) {
    const Value* value = from == nullptr ? nullptr : from->find(to_beta ? alpha : beta);
    if (value != nullptr && (value->is_number() || value->is_string())) {
      to[to_beta ? beta : alpha] = *value;
    }
  }
  return to;
}

void set_if_any(Value& parent, std::string_view key, Value value) {
  if (value.size() > 0) {
    parent[key] = std::move(value);
  }
}

void merge(Value& into, const Value& from) {
  for (const Member& member : from.members()) {
    into[member.key] = member.value;
  }
}

/// What a profiler's pod is given.
Value profiling_job_of(const Value& profiling) {
  Value pod = Value::object();
  if (const Value* resources = part(profiling, {"resources"})) {
    Value container = Value::object();
    container["name"] = kProfiler;
    container["resources"] = *resources;
    pod["containers"].push_back(std::move(container));
  }
  for (const std::string_view key : kPodFields) {
    if (const Value* value = part(profiling, {key}); value != nullptr && value->size() > 0) {
      pod[key] = *value;
    }
  }
  Value job = Value::object();
  if (pod.size() > 0) {
    job["template"]["spec"] = std::move(pod);
  }
  return job;
}

Value profiling_of_job(const Value& spec) {
  Value profiling = Value::object();
  const Value* pod = part(spec, {"overrides", "profilingJob", "template", "spec"});
  if (pod == nullptr) {
    return profiling;
  }
  const Value* containers = pod->find("containers");
  const Value* profiler = containers == nullptr ? nullptr : kube::find_named(containers, kProfiler);
  if (profiler != nullptr && part(*profiler, {"resources"}) != nullptr) {
    profiling["resources"] = *profiler->find("resources");
  }
  for (const std::string_view key : kPodFields) {
    if (const Value* value = part(*pod, {key})) {
      profiling[key] = *value;
    }
  }
  return profiling;
}

/// A graph of that name and these labels: what `overrides.dgd` says.
Value graph_override_of(const Value& overrides) {
  Value metadata = Value::object();
  for (const std::string_view key : kNaming) {
    if (const Value* value = part(overrides, {key}); value != nullptr) {
      metadata[key] = *value;
    }
  }
  Value graph = Value::object();
  if (metadata.size() > 0) {
    graph["apiVersion"] = "nvidia.com/v1beta1";
    graph["kind"] = "DynamoGraphDeployment";
    graph["metadata"] = std::move(metadata);
  }
  return graph;
}

Value naming_of_override(const Value& spec) {
  Value naming = Value::object();
  if (const Value* metadata = part(spec, {"overrides", "dgd", "metadata"})) {
    for (const std::string_view key : kNaming) {
      if (const Value* value = part(*metadata, {key})) {
        naming[key] = *value;
      }
    }
  }
  return naming;
}

}  // namespace

Value request_spec_to_beta(const Value& spec) {
  Value beta = Value::object();
  copy_rest(
      spec, beta,
      {"useMocker", "profilingConfig", "enableGpuDiscovery", "deploymentOverrides", "autoApply"});
  const Value* apply = part(spec, {"autoApply"});
  beta["autoApply"] = apply == nullptr ? Value(false) : *apply;  // each version has its default
  if (kube::bool_at(spec, {"useMocker"}, false)) {
    beta["features"]["mocker"]["enabled"] = true;
  }
  const Value none;
  const Value& profiling = spec.at("profilingConfig");
  const Value* config = part(profiling, {"config"});
  const Value& blob = config == nullptr ? none : *config;
  set_if_any(beta, "sla", moved(part(blob, {"sla"}), kGoals, true));
  set_if_any(beta, "workload", moved(part(blob, {"sla"}), kLengths, true));
  set_if_any(beta, "modelCache", moved(part(blob, {"deployment", "modelCache"}), kCache, true));
  if (const Value* planner = part(blob, {"planner"});
      planner != nullptr && planner->is_object() && planner->size() > 0) {
    beta["features"]["planner"] = *planner;
  }
  const Value& overrides = spec.at("deploymentOverrides");
  for (const std::string_view image :
       {profiling.text_at({"profilerImage"}), overrides.text_at({"workersImage"})}) {
    if (!image.empty()) {
      beta["image"] = image;
      break;
    }
  }
  if (Value job = profiling_job_of(profiling); job.size() > 0) {
    beta["overrides"]["profilingJob"] = std::move(job);
  }
  if (Value graph = graph_override_of(overrides); graph.size() > 0) {
    beta["overrides"]["dgd"] = std::move(graph);
  }
  return beta;
}

Value request_spec_to_alpha(const Value& spec) {
  Value alpha = Value::object();
  copy_rest(spec, alpha,
            {"features", "sla", "workload", "modelCache", "image", "overrides", "hardware",
             "searchStrategy", "autoApply"});
  const Value* apply = part(spec, {"autoApply"});
  if (apply == nullptr || kube::bool_at(spec, {"autoApply"}, true)) {
    alpha["autoApply"] = apply == nullptr ? Value(true) : *apply;
  }
  if (kube::bool_at(spec, {"features", "mocker", "enabled"}, false)) {
    alpha["useMocker"] = true;
  }
  Value profiling = profiling_of_job(spec);
  Value blob = Value::object();
  Value goals = moved(part(spec, {"sla"}), kGoals, false);
  merge(goals, moved(part(spec, {"workload"}), kLengths, false));
  set_if_any(blob, "sla", std::move(goals));
  if (Value cache = moved(part(spec, {"modelCache"}), kCache, false); cache.size() > 0) {
    blob["deployment"]["modelCache"] = std::move(cache);
  }
  if (const Value* planner = part(spec, {"features", "planner"});
      planner != nullptr && planner->size() > 0) {
    blob["planner"] = *planner;
  }
  set_if_any(profiling, "config", std::move(blob));
  if (const std::string_view image = spec.text_at({"image"}); !image.empty()) {
    profiling["profilerImage"] = image;
  }
  set_if_any(alpha, "profilingConfig", std::move(profiling));
  set_if_any(alpha, "deploymentOverrides", naming_of_override(spec));
  return alpha;
}

Value request_status_to_beta(const Value& status) {
  Value beta = Value::object();
  copy_rest(status, beta,
            {"state", "deployment", "generatedDeployment", "profilingResults", "backend"});
  const std::string_view state = status.text_at({"state"});
  const bool is_made = kube::bool_at(status, {"deployment", "created"}, false);
  constexpr std::array<Pair, 3> kPhases = {
      {{"Initializing", "Pending"}, {"DeploymentDeleted", "Failed"}, {"", "Pending"}}};
  const auto* const other = std::ranges::find(kPhases, state, &Pair::first);
  if (status.find("state") != nullptr) {
    beta["phase"] = other != kPhases.end()        ? other->second
                    : state == "Ready" && is_made ? std::string_view("Deployed")
                                                  : state;
  }
  if (const std::string_view name = status.text_at({"deployment", "name"}); !name.empty()) {
    beta["dgdName"] = name;
  }
  if (const Value* made = part(status, {"generatedDeployment"})) {
    beta["profilingResults"]["selectedConfig"] = *made;
  }
  return beta;
}

Value request_status_to_alpha(const Value& status) {
  Value alpha = Value::object();
  copy_rest(status, alpha,
            {"phase", "dgdName", "profilingResults", "profilingPhase", "profilingJobName",
             "deploymentInfo"});
  const std::string_view phase = status.text_at({"phase"});
  if (status.find("phase") != nullptr) {
    alpha["state"] = phase == "Deployed" ? std::string_view("Ready") : phase;
  }
  if (const std::string_view name = status.text_at({"dgdName"}); !name.empty()) {
    alpha["deployment"]["name"] = name;
    if (phase == "Deployed" || phase == "Deploying") {
      alpha["deployment"]["created"] = true;
    }
    if (phase == "Deployed") {
      alpha["deployment"]["state"] = "successful";
    }
  }
  if (const Value* made = part(status, {"profilingResults", "selectedConfig"})) {
    alpha["generatedDeployment"] = *made;
  }
  return alpha;
}

}  // namespace stator::op
