// SPDX-License-Identifier: Apache-2.0
#include "stator/operator/webhook_objects.h"

#include <fmt/format.h>

#include <array>

#include "stator/kube/base64.h"
#include "stator/kube/object.h"
#include "stator/operator/checkpoint.h"

namespace stator::op {
namespace {

using json::Value;

constexpr int kTimeoutSeconds = 10;

struct Ruled {
  std::string_view group;
  std::string_view version;
  std::vector<std::string_view> plurals;
};
const std::array<Ruled, 3> kRules = {
    {{"nvidia.com",
      "v1beta1",
      {"dynamographdeployments", "dynamocomponentdeployments", "dynamographdeploymentrequests",
       "dynamographdeploymentscalingadapters"}},
     {"nvidia.com", "v1alpha1", {"dynamomodels", "dynamocheckpoints"}},
     {"grove.io", "v1alpha1", {"podcliquesets", "clustertopologybindings"}}}};
constexpr std::array<std::string_view, 4> kConverted = {
    "dynamographdeployments", "dynamocomponentdeployments", "dynamographdeploymentrequests",
    "dynamographdeploymentscalingadapters"};

Value strings(std::initializer_list<std::string_view> words) {
  Value list = Value::array();
  for (const std::string_view word : words) {
    list.push_back(word);
  }
  return list;
}

Value client_config(const WebhookAddress& address, std::string_view path) {
  Value config = Value::object();
  config["caBundle"] = kube::to_base64(address.ca_bundle);
  if (!address.url.empty()) {
    config["url"] = address.url + std::string(path);
    return config;
  }
  const size_t slash = address.service.find('/');
  config["service"]["namespace"] = address.service.substr(0, slash);
  config["service"]["name"] = address.service.substr(slash + 1);
  config["service"]["path"] = path;
  config["service"]["port"] = address.port;
  return config;
}

void select_namespace(const WebhookAddress& address, Value& hook) {
  if (!address.space.empty()) {
    Value only = Value::object();
    only["key"] = "kubernetes.io/metadata.name";
    only["operator"] = "In";
    only["values"] = strings({address.space});
    hook["namespaceSelector"]["matchExpressions"].push_back(std::move(only));
  }
}

/// Pods that may be restored, as they are made. Without an answer they start cold.
Value make_restore_hook(const WebhookAddress& address) {
  Value hook = Value::object();
  hook["name"] = "restore.stator.dev";
  hook["clientConfig"] = client_config(address, "/restore");
  hook["admissionReviewVersions"] = strings({"v1"});
  hook["sideEffects"] = "None";
  hook["failurePolicy"] = "Ignore";
  hook["timeoutSeconds"] = kTimeoutSeconds;
  Value rule = Value::object();
  rule["apiGroups"] = strings({""});
  rule["apiVersions"] = strings({"v1"});
  rule["operations"] = strings({"CREATE"});
  rule["resources"] = strings({"pods"});
  hook["rules"].push_back(std::move(rule));
  hook["objectSelector"]["matchLabels"][kLabelCandidate] = "true";
  select_namespace(address, hook);
  return hook;
}

Value make_configuration(const WebhookAddress& address, std::string_view kind,
                         std::string_view webhook, std::string_view path) {
  Value object = kube::make_object(kube::resource_of(kind), {"", address.name});
  Value hook = Value::object();
  hook["name"] = webhook;
  hook["clientConfig"] = client_config(address, path);
  hook["admissionReviewVersions"] = strings({"v1"});
  hook["sideEffects"] = "None";
  hook["failurePolicy"] = "Fail";
  hook["matchPolicy"] = "Equivalent";  // v1alpha1 comes as v1beta1
  hook["timeoutSeconds"] = kTimeoutSeconds;
  for (const Ruled& ruled : kRules) {
    Value rule = Value::object();
    rule["apiGroups"] = strings({ruled.group});
    rule["apiVersions"] = strings({ruled.version});
    rule["operations"] = strings({"CREATE", "UPDATE"});
    for (const std::string_view plural : ruled.plurals) {
      rule["resources"].push_back(plural);
    }
    hook["rules"].push_back(std::move(rule));
  }
  select_namespace(address, hook);
  if (!address.operator_user.empty()) {
    Value condition = Value::object();
    condition["name"] = "not-the-operator";
    condition["expression"] =
        fmt::format("request.userInfo.username != '{}'", address.operator_user);
    hook["matchConditions"].push_back(std::move(condition));
  }
  object["webhooks"].push_back(std::move(hook));
  return object;
}

}  // namespace

std::vector<std::string> hosts_of(const WebhookAddress& address) {
  if (!address.url.empty()) {
    std::string_view host = address.url;
    host.remove_prefix(std::min(host.find("://") + 3, host.size()));
    if (host.starts_with('[')) {
      return {std::string(host.substr(1, host.find(']') - 1))};
    }
    return {std::string(host.substr(0, host.find_first_of(":/")))};
  }
  const size_t slash = address.service.find('/');
  const std::string name =
      fmt::format("{}.{}.svc", address.service.substr(slash + 1), address.service.substr(0, slash));
  return {name, name + ".cluster.local"};
}

std::vector<Value> make_webhook_objects(const WebhookAddress& address) {
  std::vector<Value> objects;
  for (const std::string_view plural : kConverted) {
    Value crd = kube::make_object(kube::resource_of("CustomResourceDefinition"),
                                  {"", fmt::format("{}.nvidia.com", plural)});
    Value& conversion = crd["spec"]["conversion"];
    conversion["strategy"] = "Webhook";
    conversion["webhook"]["conversionReviewVersions"] = strings({"v1"});
    conversion["webhook"]["clientConfig"] = client_config(address, "/convert");
    objects.push_back(std::move(crd));
  }
  objects.push_back(make_configuration(address, "MutatingWebhookConfiguration",
                                       "defaults.stator.dev", "/defaults"));
  objects.back()["webhooks"].push_back(make_restore_hook(address));
  objects.push_back(make_configuration(address, "ValidatingWebhookConfiguration",
                                       "validate.stator.dev", "/validate"));
  return objects;
}

}  // namespace stator::op
