// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "stator/kube/object.h"
#include "stator/kube/yaml.h"
#include "stator/operator/convert.h"
#include "stator/operator/names.h"
#include "stator/operator/objects.h"
#include "stator/operator/pod_template.h"
#include "stator/operator/ssh_secret.h"

namespace stator::op {
namespace {

using json::Value;

Value make_labelled(std::string_view kind, const Graph& graph, std::string name) {
  Value object = kube::make_object(kube::resource_of(kind), {graph.space(), std::move(name)});
  object["metadata"]["labels"][kLabelGraph] = label_value(graph.name());
  return object;
}

Value make_binding(const Graph& graph, std::string name, std::string_view account,
                   std::string_view role_kind, std::string_view role) {
  Value binding = make_labelled("RoleBinding", graph, std::move(name));
  Value& reference = binding["roleRef"];
  reference["apiGroup"] = "rbac.authorization.k8s.io";
  reference["kind"] = role_kind;
  reference["name"] = role;
  Value subject = Value::object();
  subject["kind"] = "ServiceAccount";
  subject["name"] = account;
  subject["namespace"] = graph.space();
  binding["subjects"].push_back(std::move(subject));
  return binding;
}

/// What workers and frontends may do: find each other, and write their own record.
void add_discovery_account(const Graph& graph, std::vector<Value>& made) {
  const std::string account = label_value(fmt::format("{}-k8s-service-discovery", graph.name()));
  made.push_back(make_labelled("ServiceAccount", graph, account));
  Value role = make_labelled("Role", graph, account + "-role");
  role["rules"] = json::parse(R"([
    {"apiGroups":[""],"resources":["endpoints","pods"],"verbs":["get","list","watch"]},
    {"apiGroups":["discovery.k8s.io"],"resources":["endpointslices"],"verbs":["get","list","watch"]},
    {"apiGroups":["nvidia.com"],"resources":["dynamoworkermetadatas"],
     "verbs":["create","delete","get","list","patch","update","watch"]}])")
                      .value();
  const bool is_gated = std::ranges::any_of(graph.components(), [&](const Component& component) {
    return has_routable_gate(graph, component);
  });
  if (is_gated) {
    role["rules"].push_back(
        json::parse(R"({"apiGroups":[""],"resources":["pods/status"],"verbs":["patch"]})").value());
  }
  made.push_back(std::move(role));
  made.push_back(make_binding(graph, account + "-binding", account, "Role", account + "-role"));
}

void add_typed_account(const Graph& graph, std::string_view type, std::vector<Value>& made) {
  const bool has_type = std::ranges::any_of(
      graph.components(), [&](const Component& component) { return component.type() == type; });
  if (has_type) {
    const std::string account = fmt::format("{}-serviceaccount", type);
    Value object = kube::make_object(kube::resource_of("ServiceAccount"), {graph.space(), account});
    made.push_back(std::move(object));
    Value binding = make_binding(graph, fmt::format("{}-binding", type), account, "ClusterRole",
                                 fmt::format("stator-{}", type));
    binding["metadata"].erase("labels");  // shared by the graphs of a namespace
    made.push_back(std::move(binding));
  }
}

void add_claims(const Graph& graph, std::vector<Value>& made) {
  const Value claims = preserved_claims(graph.object());
  for (const Value& claim : claims.elements()) {
    if (!kube::bool_at(claim, {"create"}, false)) {
      continue;
    }
    Value object =
        make_labelled("PersistentVolumeClaim", graph, std::string(claim.text_at({"name"})));
    object["spec"]["accessModes"].push_back(claim.text_at({"volumeAccessMode"}));
    kube::at(object, {"spec", "resources", "requests"})["storage"] = claim.text_at({"size"});
    object["spec"]["storageClassName"] = claim.text_at({"storageClass"});
    made.push_back(std::move(object));
  }
}

void add_picker(const Graph& graph, const Component& component, std::vector<Value>& made) {
  if (const Value* config = component.spec().find_at({"eppConfig", "config"})) {
    Value object = make_labelled("ConfigMap", graph, fmt::format("{}-epp-config", graph.name()));
    Value document = Value::object();
    document["apiVersion"] = "inference.networking.x-k8s.io/v1alpha1";
    document["kind"] = "EndpointPickerConfig";
    kube::merge_patch(document, *config);
    object["data"]["epp-config-dynamo.yaml"] = kube::to_yaml(document);
    made.push_back(std::move(object));
  }
  Value pool = make_labelled("InferencePool", graph, fmt::format("{}-pool", graph.name()));
  pool["metadata"]["labels"][kLabelComponent] = component.name();
  pool["metadata"]["labels"][kLabelComponentType] = "epp";
  Value& spec = pool["spec"];
  Value& match = kube::at(spec, {"selector", "matchLabels"});
  match[kLabelComponentClass] = "worker";
  match[kLabelRuntimeNamespace] = label_value(graph.runtime_namespace_of(component));
  Value port = Value::object();
  port["number"] = kPortHttp;
  spec["targetPorts"].push_back(std::move(port));
  Value& picker = spec["endpointPickerRef"];
  picker["kind"] = "Service";
  picker["name"] = dns_name(component_object_name(graph.name(), component.name()));
  picker["port"]["number"] = kPortEppGrpc;
  made.push_back(std::move(pool));
}

/// TensorRT-LLM starts its workers over ssh. The key is made when the Secret is, and never seen
/// again by us: nobody needs the right to read Secrets.
void add_ssh_key(const Graph& graph, std::vector<Value>& made) {
  const bool wanted = graph.backend() == "trtllm" &&
                      std::ranges::any_of(graph.components(), [](const Component& component) {
                        return component.is_multinode();
                      });
  if (wanted) {
    Value secret = make_labelled("Secret", graph, ssh_secret_name(graph.name()));
    secret["metadata"]["annotations"][kAnnotationGenerate] = "ssh-key";
    secret["type"] = "Opaque";
    made.push_back(std::move(secret));
  }
}

}  // namespace

std::vector<Value> make_shared_objects(const Graph& graph, const Environment&) {
  std::vector<Value> made;
  add_typed_account(graph, "planner", made);
  add_typed_account(graph, "epp", made);
  add_claims(graph, made);
  add_ssh_key(graph, made);
  if (graph.discovery() != "etcd") {
    add_discovery_account(graph, made);
  }
  for (const Component& component : graph.components()) {
    if (component.type() == "epp") {
      add_picker(graph, component, made);
    }
  }
  return made;
}

std::vector<Value> make_scaling_adapters(const Graph& graph) {
  std::vector<Value> made;
  for (const Component& component : graph.components()) {
    if (!component.has_adapter()) {
      continue;
    }
    Value adapter = make_labelled("DynamoGraphDeploymentScalingAdapter", graph,
                                  component_object_name(graph.name(), component.name()));
    adapter["metadata"]["labels"][kLabelComponent] = component.name();
    adapter["spec"]["replicas"] = component.replicas();
    adapter["spec"]["dgdRef"]["name"] = graph.name();
    adapter["spec"]["dgdRef"]["componentName"] = component.name();
    made.push_back(std::move(adapter));
  }
  return made;
}

}  // namespace stator::op
