// SPDX-License-Identifier: Apache-2.0
#include "stator/operator/convert.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <vector>

#include "stator/kube/object.h"
#include "stator/operator/convert_component.h"
#include "stator/operator/convert_request.h"

namespace stator::op {
namespace {

using json::Member;
using json::Value;

constexpr std::string_view kGraph = "DynamoGraphDeployment";
constexpr std::string_view kComponent = "DynamoComponentDeployment";
constexpr std::string_view kRequest = "DynamoGraphDeploymentRequest";
constexpr std::string_view kAdapter = "DynamoGraphDeploymentScalingAdapter";

void copy_rest(const Value& from, Value& to, std::initializer_list<std::string_view> except) {
  for (const Member& member : from.members()) {
    if (std::ranges::find(except, member.key) == except.end()) {
      to[member.key] = member.value;
    }
  }
}

// ------------------------------------------------------------------------------- specs, one way

Value graph_spec_to_beta(const Value& spec) {
  Value beta = Value::object();
  copy_rest(spec, beta, {"services", "envs", "pvcs", "components"});
  if (const Value* envs = spec.find("envs")) {
    beta["env"] = *envs;
  }
  const Value* services = spec.find("services");
  if (services == nullptr || !services->is_object()) {
    return beta;
  }
  std::vector<const Member*> members;
  for (const Member& member : services->members()) {
    members.push_back(&member);
  }
  // A map has no order: components stand in that of their names, like everybody's.
  std::ranges::sort(members, {},
                    [](const Member* member) { return std::string_view(member->key); });
  Value components = Value::array();
  for (const Member* member : members) {
    Value component = Value::object();
    component["name"] = member->key;
    for (Member& field : *component_to_beta(member->value).mutable_members()) {
      component[field.key] = std::move(field.value);
    }
    components.push_back(std::move(component));
  }
  beta["components"] = std::move(components);
  return beta;
}

Value graph_spec_to_alpha(const Value& spec) {
  Value alpha = Value::object();
  copy_rest(spec, alpha, {"components", "env"});
  if (const Value* env = spec.find("env")) {
    alpha["envs"] = *env;
  }
  if (const Value* components = spec.find("components")) {
    Value services = Value::object();
    for (const Value& component : components->elements()) {
      services[component.text_at({"name"})] = component_to_alpha(component);
    }
    alpha["services"] = std::move(services);
  }
  return alpha;
}

Value component_spec_to_beta(const Value& spec) {
  Value beta = Value::object();
  if (const Value* backend = spec.find("backendFramework")) {
    beta["backendFramework"] = *backend;
  }
  if (const Value* name = spec.find("serviceName")) {
    beta["name"] = *name;
  }
  for (Member& field : *component_to_beta(spec).mutable_members()) {
    beta[field.key] = std::move(field.value);
  }
  return beta;
}

Value component_spec_to_alpha(const Value& spec) {
  Value alpha = Value::object();
  if (const Value* backend = spec.find("backendFramework")) {
    alpha["backendFramework"] = *backend;
  }
  if (const Value* name = spec.find("name")) {
    alpha["serviceName"] = *name;
  }
  for (Member& field : *component_to_alpha(spec).mutable_members()) {
    alpha[field.key] = std::move(field.value);
  }
  return alpha;
}

void rename(Value& object, std::string_view from, std::string_view to) {
  if (const Value* value = object.find(from)) {
    Value moved = *value;
    object.erase(from);
    object[to] = std::move(moved);
  }
}

Value convert_adapter(const Value& spec, bool to_beta) {
  Value converted = spec;
  if (Value* graph = converted.find("dgdRef"); graph != nullptr && graph->is_object()) {
    rename(*graph, to_beta ? "serviceName" : "componentName",
           to_beta ? "componentName" : "serviceName");
  }
  return converted;
}

Value convert_spec(std::string_view kind, const Value& spec, bool to_beta) {
  if (kind == kGraph) {
    return to_beta ? graph_spec_to_beta(spec) : graph_spec_to_alpha(spec);
  }
  if (kind == kRequest) {
    return to_beta ? request_spec_to_beta(spec) : request_spec_to_alpha(spec);
  }
  if (kind == kAdapter) {
    return convert_adapter(spec, to_beta);
  }
  return to_beta ? component_spec_to_beta(spec) : component_spec_to_alpha(spec);
}

// ------------------------------------------------------------------------------------- status

/// v1alpha1 says one name of what a service runs as, and the list of them, too.
void convert_names(Value& replicas, bool to_beta) {
  if (!replicas.is_object()) {
    return;
  }
  const Value* names = replicas.find("componentNames");
  const bool has_names = names != nullptr && names->size() > 0;
  if (!to_beta) {
    if (has_names) {
      replicas["componentName"] = names->elements().back();
    }
    return;
  }
  if (const Value* name = replicas.find("componentName"); name != nullptr && !has_names) {
    replicas["componentNames"] = Value::array({*name});
  }
  replicas.erase("componentName");
}

Value convert_status(std::string_view kind, const Value& before, bool to_beta) {
  if (kind == kRequest) {
    return to_beta ? request_status_to_beta(before) : request_status_to_alpha(before);
  }
  Value status = before;
  const auto pair = [&](Value& object, std::string_view alpha, std::string_view beta) {
    rename(object, to_beta ? alpha : beta, to_beta ? beta : alpha);
  };
  if (kind == kGraph) {
    pair(status, "services", "components");
    if (Value* update = status.find("rollingUpdate"); update != nullptr && update->is_object()) {
      pair(*update, "updatedServices", "updatedComponents");
    }
    Value* parts = status.find(to_beta ? "components" : "services");
    if (parts != nullptr && parts->is_object()) {
      for (Member& each : *parts->mutable_members()) {
        convert_names(each.value, to_beta);
      }
    }
  } else if (kind == kComponent) {
    pair(status, "service", "component");
    if (Value* own = status.find(to_beta ? "component" : "service")) {
      convert_names(*own, to_beta);
    }
  }
  return status;
}

// ------------------------------------------------------------------- three-way: what has changed

bool is_named_list(const Value& value) {
  return value.is_array() && value.size() > 0 &&
         std::ranges::all_of(value.elements(), [](const Value& element) {
           return !element.text_at({"name"}).empty();
         });
}

/// Applies to `target` what changed from `before` to `after`. Lists of things with names are taken
/// apart by name, other lists are one value.
void apply_change(Value& target, const Value& before, const Value& after) {
  if (kube::same(before, after)) {
    return;
  }
  if (before.is_object() && after.is_object() && target.is_object()) {
    for (const Member& member : before.members()) {
      if (after.find(member.key) == nullptr) {
        target.erase(member.key);
      }
    }
    for (const Member& member : after.members()) {
      const Value* old = before.find(member.key);
      if (old == nullptr || target.find(member.key) == nullptr) {
        if (old == nullptr || !kube::same(*old, member.value)) {
          target[member.key] = member.value;
        }
        continue;
      }
      apply_change(target[member.key], *old, member.value);
    }
    return;
  }
  if (is_named_list(before) && is_named_list(after) && is_named_list(target)) {
    Value merged = Value::array();
    for (const Value& element : after.elements()) {
      const std::string_view name = element.text_at({"name"});
      const Value* old = kube::find_named(&before, name);
      const Value* kept = kube::find_named(&target, name);
      Value own = kept == nullptr ? element : *kept;
      if (old != nullptr && kept != nullptr) {
        apply_change(own, *old, element);
      }
      merged.push_back(std::move(own));
    }
    target = std::move(merged);
    return;
  }
  target = after;
}

/// Fields of v1alpha1 that no change in v1beta1 can mean: taken over where the general way fails.
void restore_unknown(const Value& original, Value& spec) {
  constexpr std::array<std::string_view, 5> kAlphaOnly = {"dynamoNamespace", "autoscaling",
                                                          "ingress", "annotations", "labels"};
  if (const Value* claims = original.find("pvcs")) {
    spec["pvcs"] = *claims;
  }
  const auto restore = [&](const Value& from, Value& to) {
    for (const std::string_view key : kAlphaOnly) {
      if (const Value* value = from.find(key); value != nullptr && to.find(key) == nullptr) {
        to[key] = *value;
      }
    }
  };
  const Value* services = original.find("services");
  Value* live = spec.find("services");
  if (services != nullptr && live != nullptr) {
    for (const Member& service : services->members()) {
      if (Value* now = live->find(service.key)) {
        restore(service.value, *now);
      }
    }
  }
}

/// A part of an object: how it converts, and where what the other version cannot say is kept.
struct Part {
  std::string_view key;
  Value (*convert)(std::string_view kind, const Value& part, bool to_beta);
  std::string_view kept_alpha;
  std::string_view kept_beta;
};
constexpr std::array<Part, 2> kParts = {
    {{"spec", convert_spec, kAnnotationAlpha, kAnnotationBeta},
     {"status", convert_status, kAnnotationAlphaStatus, kAnnotationBetaStatus}}};

/// The part in the other version: through what was kept of it, if anything was.
Value convert_back(const Part& part, std::string_view kind, const Value& live, bool to_beta,
                   const Value* original) {
  Value plain = part.convert(kind, live, to_beta);
  if (original == nullptr) {
    return plain;
  }
  const Value then = part.convert(kind, *original, !to_beta);  // in the version of `live`
  Value restored = *original;
  apply_change(restored, part.convert(kind, then, to_beta), plain);
  // Whatever both versions can say must be what the live object says.
  if (kube::same(part.convert(kind, part.convert(kind, restored, !to_beta), to_beta), plain)) {
    return restored;
  }
  if (!to_beta && kind != kRequest) {
    restore_unknown(*original, plain);
  }
  return plain;
}

std::optional<Value> take_annotation(Value& object, std::string_view key) {
  Value* annotations =
      object.find("metadata") == nullptr ? nullptr : object.find("metadata")->find("annotations");
  if (annotations == nullptr || annotations->find(key) == nullptr) {
    return std::nullopt;
  }
  const std::string text(annotations->find(key)->text());
  annotations->erase(key);
  if (annotations->size() == 0) {
    object.find("metadata")->erase("annotations");
  }
  auto value = json::parse(text);
  return value && value->is_object() ? std::optional(std::move(*value)) : std::nullopt;
}

}  // namespace

Result<Value> convert(const Value& object, std::string_view version) {
  const std::string_view own = object.text_at({"apiVersion"});
  const std::string_view kind = object.text_at({"kind"});
  const bool to_beta = version == "nvidia.com/v1beta1";
  if (!own.starts_with("nvidia.com/") || (!to_beta && version != "nvidia.com/v1alpha1")) {
    return Error(Code::kInvalidArgument,
                 fmt::format("{} of {} cannot be converted to {}: it is served as "
                             "nvidia.com/v1alpha1 and nvidia.com/v1beta1",
                             kind, own, version));
  }
  Value converted = object;
  if (own == version) {
    return converted;
  }
  converted["apiVersion"] = version;
  if (kind != kGraph && kind != kComponent && kind != kRequest && kind != kAdapter) {
    return converted;
  }
  for (const Part& part : kParts) {
    // What was kept of it in the target version, the last time it was converted from that.
    const auto original = take_annotation(converted, to_beta ? part.kept_beta : part.kept_alpha);
    const Value* live = object.find(part.key);
    if (live == nullptr || !live->is_object()) {
      continue;
    }
    Value other = convert_back(part, kind, *live, to_beta, original ? &*original : nullptr);
    if (!kube::same(part.convert(kind, other, !to_beta), *live)) {
      kube::at(converted, {"metadata", "annotations"})[to_beta ? part.kept_alpha : part.kept_beta] =
          json::to_text(*live);
    }
    converted[part.key] = std::move(other);
  }
  return converted;
}

bool is_conversion_annotation(std::string_view key) {
  return key == kAnnotationAlpha || key == kAnnotationBeta || key == kAnnotationAlphaStatus ||
         key == kAnnotationBetaStatus || key == kAnnotationReferenceAlpha;
}

Value preserved_alpha(const Value& graph) {
  std::string_view text = kube::annotation_of(graph, kAnnotationAlpha);
  if (text.empty()) {
    text = kube::annotation_of(graph, kAnnotationReferenceAlpha);
  }
  return text.empty() ? Value() : json::parse(text).value_or(Value());
}

Value preserved_claims(const Value& graph) {
  const Value spec = preserved_alpha(graph);
  const Value* claims = spec.find("pvcs");
  return claims == nullptr ? Value() : *claims;
}

Value preserved_ingress(const Value& graph, std::string_view component) {
  const Value spec = preserved_alpha(graph);
  const Value* ingress = spec.find_at({"services", component, "ingress"});
  return ingress == nullptr ? Value() : *ingress;
}

}  // namespace stator::op
