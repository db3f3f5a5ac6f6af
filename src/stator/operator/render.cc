// SPDX-License-Identifier: Apache-2.0
#include "stator/operator/render.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "stator/kube/object.h"
#include "stator/operator/convert.h"
#include "stator/operator/names.h"
#include "stator/operator/objects.h"
#include "stator/operator/request.h"
#include "stator/operator/validate.h"
#include "stator/operator/validate_alpha.h"
#include "stator/operator/validate_object.h"
#include "stator/operator/validate_set.h"

namespace stator::op {
namespace {

using json::Value;

void append(std::vector<Value>& all, std::vector<Value> more) {
  std::ranges::move(more, std::back_inserter(all));
}

bool is_ours(const Value& object) {
  return object.text_at({"apiVersion"}).starts_with("nvidia.com/");
}

/// v1alpha1, or such an object that an API server without a conversion webhook gives as v1beta1.
bool is_alpha(const Value& object) {
  const bool has_services = object.find_at({"spec", "services"}) != nullptr &&
                            object.find_at({"spec", "components"}) == nullptr;
  const bool has_profiling = object.text_at({"kind"}) == "DynamoGraphDeploymentRequest" &&
                             object.find_at({"spec", "profilingConfig"}) != nullptr;
  const bool has_service = object.text_at({"kind"}) == "DynamoGraphDeploymentScalingAdapter" &&
                           object.find_at({"spec", "dgdRef", "serviceName"}) != nullptr;
  return object.text_at({"apiVersion"}) == "nvidia.com/v1alpha1" || has_services || has_profiling ||
         has_service;
}

/// Parts of v1alpha1 that are left out of v1beta1 when they are of the wrong kind.
Status check_alpha_parts(const Value& object) {
  const Value* services = object.find_at({"spec", "services"});
  const auto invalid = [&](std::string_view what) {
    return Error(Code::kInvalidArgument,
                 fmt::format("{} \"{}\" is invalid: {}", object.text_at({"kind"}),
                             object.text_at({"metadata", "name"}), what));
  };
  const auto is_no_object = [&](std::initializer_list<std::string_view> path) {
    const Value* part = object.find_at(path);
    return part != nullptr && !part->is_null() && !part->is_object();
  };
  if (is_no_object({"spec", "profilingConfig"})) {
    return invalid("spec.profilingConfig: Invalid value: must be an object");
  }
  if (is_no_object({"spec", "profilingConfig", "config"})) {
    return invalid("spec.profilingConfig.config: Invalid value: must be an object");
  }
  if (is_no_object({"spec", "deploymentOverrides"})) {
    return invalid("spec.deploymentOverrides: Invalid value: must be an object");
  }
  if (services == nullptr) {
    return {};
  }
  if (!services->is_object()) {
    return invalid("spec.services: Invalid value: must be an object");
  }
  for (const json::Member& service : services->members()) {
    if (!service.value.is_object()) {
      return invalid(fmt::format("spec.services[{}]: Invalid value: {}: must be an object",
                                 service.key, json::to_text(service.value)));
    }
  }
  return {};
}

std::vector<Value> children_of_component(const Value& component, const Environment& environment) {
  return make_component_objects(component, environment);
}

constexpr std::array<std::string_view, 7> kOurKinds = {"DynamoGraphDeployment",
                                                       "DynamoComponentDeployment",
                                                       "DynamoGraphDeploymentRequest",
                                                       "DynamoGraphDeploymentScalingAdapter",
                                                       "DynamoModel",
                                                       "DynamoCheckpoint",
                                                       "DynamoWorkerMetadata"};

/// Of a kind that is none of ours in our group, or an object that is none at all.
Status check_kind(const Value& object) {
  const std::string_view kind = object.text_at({"kind"});
  if (!object.is_object()) {
    return Error(Code::kInvalidArgument,
                 "a document is no Kubernetes object: it must be a map with apiVersion, kind and "
                 "metadata");
  }
  for (const std::string_view key : {"apiVersion", "kind"}) {
    if (object.text_at({key}).empty()) {
      return Error(Code::kInvalidArgument, fmt::format("{} \"{}\" is invalid: {}: Required value",
                                                       kind.empty() ? "a document" : kind,
                                                       object.text_at({"metadata", "name"}), key));
    }
  }
  const std::string_view version = object.text_at({"apiVersion"});
  const bool has_our_version = version == "nvidia.com/v1alpha1" || version == "nvidia.com/v1beta1";
  if ((has_our_version || (is_ours(object) && kind.starts_with("Dynamo"))) &&
      std::ranges::find(kOurKinds, kind) == kOurKinds.end()) {
    return Error(Code::kInvalidArgument,
                 fmt::format("{} \"{}\" is invalid: kind: Unsupported value: \"{}\": supported "
                             "values: \"{}\"",
                             kind, object.text_at({"metadata", "name"}), kind,
                             fmt::join(kOurKinds, "\", \"")));
  }
  return {};
}

Status render_one(const Value& object, const Environment& environment, std::vector<Value>& all);

Status render_list(const Value& list, const Environment& environment, std::vector<Value>& all) {
  const Value* items = list.find("items");
  if (items == nullptr || items->is_null()) {
    return {};
  }
  if (!items->is_array()) {
    return Error(Code::kInvalidArgument,
                 fmt::format("{} is invalid: items: Invalid value: must be an array",
                             list.text_at({"kind"})));
  }
  for (const Value& item : items->elements()) {
    STATOR_CHECK(render_one(item, environment, all));
  }
  return {};
}

/// The graph that a request leads to, and its children; nothing where that takes a cluster.
Status render_request(const Value& admitted, const Environment& environment,
                      std::vector<Value>& all) {
  const Plan plan = plan_request({.request = admitted, .graph = {}, .nodes = {}, .now = ""});
  for (const Value& graph : plan.create) {
    STATOR_CHECK(render_one(graph, environment, all));
  }
  return {};
}

Status render_one(const Value& object, const Environment& environment, std::vector<Value>& all) {
  const std::string_view kind = object.text_at({"kind"});
  if (kind == "List" || (kind.ends_with("List") && object.find("items") != nullptr)) {
    return render_list(object, environment, all);
  }
  STATOR_CHECK(check_kind(object));
  if (kind == "PodCliqueSet" || kind == "ClusterTopologyBinding") {
    Value complete = object;
    set_defaults_of_set(complete);
    STATOR_CHECK(validate_set(complete, nullptr));
  }
  if (!is_ours(object)) {
    all.push_back(object);
    return {};
  }
  STATOR_TRY(const Value admitted, admit(object, environment));
  if (kind == "DynamoGraphDeployment") {
    append(all, children_of_graph(admitted, environment));
  } else if (kind == "DynamoComponentDeployment") {
    append(all, children_of_component(admitted, environment));
  } else {
    all.push_back(object);
    if (kind == "DynamoGraphDeploymentRequest") {
      STATOR_CHECK(render_request(admitted, environment, all));
    }
  }
  return {};
}

}  // namespace

Result<Value> admit(const Value& object, const Environment& environment) {
  const std::string_view kind = object.text_at({"kind"});
  const std::string_view version = object.text_at({"apiVersion"});
  const bool has_two = kind == "DynamoGraphDeployment" || kind == "DynamoComponentDeployment" ||
                       kind == "DynamoGraphDeploymentRequest" ||
                       kind == "DynamoGraphDeploymentScalingAdapter";
  if (version != "nvidia.com/v1alpha1" && version != "nvidia.com/v1beta1") {
    return Error(
        Code::kInvalidArgument,
        fmt::format("{} \"{}\" is invalid: apiVersion: Unsupported value: \"{}\": supported "
                    "values: \"nvidia.com/v1alpha1\", \"nvidia.com/v1beta1\"",
                    kind, object.text_at({"metadata", "name"}), version));
  }
  const bool was_alpha = is_alpha(object);
  Value admitted = object;
  if (has_two && was_alpha) {
    STATOR_CHECK(check_alpha_parts(object));
    if (kind != "DynamoGraphDeploymentRequest" && kube::uid_of(object).empty()) {
      FieldCheck check;
      check_alpha(check, object);
      STATOR_CHECK(outcome(check, object));
    }
    admitted["apiVersion"] = "nvidia.com/v1alpha1";
    STATOR_TRY(admitted, convert(admitted, "nvidia.com/v1beta1"));
  }
  if (Value* metadata = admitted.find("metadata");
      metadata != nullptr && metadata->is_object() && metadata->find("namespace") == nullptr) {
    (*metadata)["namespace"] = environment.namespace_default;
  }
  const Admission admission{.is_stored = !kube::uid_of(object).empty(), .was_alpha = was_alpha};
  if (kind == "DynamoGraphDeployment") {
    const bool is_create = kube::uid_of(object).empty();
    set_defaults(admitted, environment, is_create);
    STATOR_CHECK(validate_graph(admitted, environment, admission));
    return admitted;
  }
  if (kind == "DynamoComponentDeployment" && admitted.find("spec") != nullptr &&
      admitted.find("spec")->is_object()) {
    set_component_defaults(*admitted.find("spec"));
    if (admitted.find_at({"spec", "name"}) == nullptr) {
      admitted["spec"]["name"] = admitted.text_at({"metadata", "name"});
    }
  }
  STATOR_CHECK(validate_other(admitted, environment, admission));
  return admitted;
}

std::vector<Value> children_of_graph(const Value& object, const Environment& environment) {
  const Graph graph(object, environment);
  std::vector<Value> all = make_shared_objects(graph, environment);
  if (graph.provider() == Provider::kGrove) {
    append(all, make_grove_objects(graph, environment, {.hash = worker_hash(graph)}));
  } else {
    for (Value& component :
         make_component_deployments(graph, environment, rolling_hash(graph), "")) {
      std::vector<Value> children = children_of_component(component, environment);
      all.push_back(std::move(component));
      append(all, std::move(children));
    }
  }
  append(all, make_scaling_adapters(graph));
  // Two components of one model share its Service.
  std::vector<Value> unique;
  for (Value& object_made : all) {
    const bool is_there = std::ranges::any_of(unique, [&](const Value& other) {
      return other.text_at({"kind"}) == object_made.text_at({"kind"}) &&
             kube::name_of(other) == kube::name_of(object_made);
    });
    if (!is_there) {
      unique.push_back(std::move(object_made));
    }
  }
  return unique;
}

Result<std::vector<Value>> render(std::span<const Value> manifests,
                                  const Environment& environment) {
  std::vector<Value> all;
  for (const Value& manifest : manifests) {
    STATOR_CHECK(render_one(manifest, environment, all));
  }
  return all;
}

}  // namespace stator::op
