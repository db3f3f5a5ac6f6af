// SPDX-License-Identifier: Apache-2.0
#include "stator/kube/object.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "stator/core/assert.h"

namespace stator::kube {
namespace {

using json::Member;
using json::Value;

const std::array kResources = {
    Resource{"", "v1", "pods", "Pod"},
    Resource{"", "v1", "services", "Service"},
    Resource{"", "v1", "configmaps", "ConfigMap"},
    Resource{"", "v1", "secrets", "Secret"},
    Resource{"", "v1", "serviceaccounts", "ServiceAccount"},
    Resource{"", "v1", "persistentvolumeclaims", "PersistentVolumeClaim"},
    Resource{"", "v1", "nodes", "Node", false},
    Resource{"", "v1", "namespaces", "Namespace", false},
    Resource{"events.k8s.io", "v1", "events", "Event"},
    Resource{"apps", "v1", "deployments", "Deployment"},
    Resource{"apps", "v1", "replicasets", "ReplicaSet"},
    Resource{"batch", "v1", "jobs", "Job"},
    Resource{"autoscaling", "v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler"},
    Resource{"coordination.k8s.io", "v1", "leases", "Lease"},
    Resource{"discovery.k8s.io", "v1", "endpointslices", "EndpointSlice"},
    Resource{"networking.k8s.io", "v1", "ingresses", "Ingress"},
    Resource{"rbac.authorization.k8s.io", "v1", "roles", "Role"},
    Resource{"rbac.authorization.k8s.io", "v1", "rolebindings", "RoleBinding"},
    Resource{"apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition",
             false},
    Resource{"admissionregistration.k8s.io", "v1", "validatingwebhookconfigurations",
             "ValidatingWebhookConfiguration", false},
    Resource{"admissionregistration.k8s.io", "v1", "mutatingwebhookconfigurations",
             "MutatingWebhookConfiguration", false},
    Resource{"nvidia.com", "v1beta1", "dynamographdeployments", "DynamoGraphDeployment"},
    Resource{"nvidia.com", "v1beta1", "dynamocomponentdeployments", "DynamoComponentDeployment"},
    Resource{"nvidia.com", "v1beta1", "dynamographdeploymentrequests",
             "DynamoGraphDeploymentRequest"},
    Resource{"nvidia.com", "v1beta1", "dynamographdeploymentscalingadapters",
             "DynamoGraphDeploymentScalingAdapter"},
    Resource{"nvidia.com", "v1alpha1", "dynamomodels", "DynamoModel"},
    Resource{"nvidia.com", "v1alpha1", "dynamoworkermetadatas", "DynamoWorkerMetadata"},
    Resource{"nvidia.com", "v1alpha1", "dynamocheckpoints", "DynamoCheckpoint"},
    Resource{"grove.io", "v1alpha1", "podcliquesets", "PodCliqueSet"},
    Resource{"grove.io", "v1alpha1", "podcliques", "PodClique"},
    Resource{"grove.io", "v1alpha1", "podcliquescalinggroups", "PodCliqueScalingGroup"},
    Resource{"grove.io", "v1alpha1", "clustertopologybindings", "ClusterTopologyBinding", false},
    Resource{"scheduler.grove.io", "v1alpha1", "podgangs", "PodGang"},
    Resource{"leaderworkerset.x-k8s.io", "v1", "leaderworkersets", "LeaderWorkerSet"},
    Resource{"inference.networking.k8s.io", "v1", "inferencepools", "InferencePool"},
    Resource{"inference.networking.x-k8s.io", "v1alpha2", "inferenceobjectives",
             "InferenceObjective"},
    Resource{"inference.networking.x-k8s.io", "v1alpha2", "inferencemodelrewrites",
             "InferenceModelRewrite"},
    Resource{"resource.k8s.io", "v1", "resourceclaims", "ResourceClaim"},
    Resource{"resource.k8s.io", "v1", "resourceclaimtemplates", "ResourceClaimTemplate"},
    Resource{"scheduling.run.ai", "v2alpha2", "podgroups", "PodGroup"},
    Resource{"scheduling.volcano.sh", "v1beta1", "podgroups", "PodGroup"},
    Resource{"kai.scheduler", "v1alpha1", "topologies", "Topology", false},
    Resource{"nvidia.com", "v1alpha1", "podsnapshots", "PodSnapshot"},
    Resource{"gateway.networking.k8s.io", "v1", "httproutes", "HTTPRoute"},
    Resource{"networking.istio.io", "v1beta1", "virtualservices", "VirtualService"},
};

const Value* walk(const Value& object, std::initializer_list<std::string_view> path) {
  return object.find_at(path);
}

}  // namespace

std::optional<Resource> find_resource(std::string_view api_version, std::string_view kind) {
  const size_t slash = api_version.find('/');
  const std::string_view group =
      slash == std::string_view::npos ? std::string_view() : api_version.substr(0, slash);
  for (const Resource& resource : kResources) {
    if (resource.kind == kind && resource.group == group) {
      Resource found = resource;
      found.version =
          std::string(api_version.substr(slash == std::string_view::npos ? 0 : slash + 1));
      return found;
    }
  }
  return std::nullopt;
}

const Resource& resource_of(std::string_view kind) {
  const auto it = std::ranges::find(kResources, kind, &Resource::kind);
  STATOR_ASSERT(it != kResources.end(), "kind is in the table of resources");
  return *it;
}

ObjectName name_of(const Value& object) {
  return {std::string(object.text_at({"metadata", "namespace"})),
          std::string(object.text_at({"metadata", "name"}))};
}

std::string_view uid_of(const Value& object) {
  return object.text_at({"metadata", "uid"});
}

int64_t generation_of(const Value& object) {
  return int_at(object, {"metadata", "generation"}, 0);
}

std::string_view label_of(const Value& object, std::string_view key) {
  return object.text_at({"metadata", "labels", key});
}

std::string_view annotation_of(const Value& object, std::string_view key) {
  return object.text_at({"metadata", "annotations", key});
}

int64_t int_at(const Value& object, std::initializer_list<std::string_view> path,
               int64_t fallback) {
  const Value* value = walk(object, path);
  return value == nullptr ? fallback : value->as_int64().value_or(fallback);
}

bool bool_at(const Value& object, std::initializer_list<std::string_view> path, bool fallback) {
  const Value* value = walk(object, path);
  return value == nullptr ? fallback : value->as_bool().value_or(fallback);
}

Value& at(Value& object, std::initializer_list<std::string_view> path) {
  Value* value = &object;
  for (const std::string_view key : path) {
    if (!value->is_object()) {
      *value = Value::object();
    }
    value = &(*value)[key];
  }
  return *value;
}

const Value* find_named(const Value* list, std::string_view name) {
  if (list == nullptr) {
    return nullptr;
  }
  for (const Value& element : list->elements()) {
    if (element.text_at({"name"}) == name) {
      return &element;
    }
  }
  return nullptr;
}

Value* find_named(Value* list, std::string_view name) {
  return const_cast<Value*>(find_named(static_cast<const Value*>(list), name));
}

Value make_object(const Resource& resource, const ObjectName& name) {
  Value object = Value::object();
  object["apiVersion"] = resource.api_version();
  object["kind"] = resource.kind;
  object["metadata"]["name"] = name.name;
  if (resource.is_namespaced && !name.space.empty()) {
    object["metadata"]["namespace"] = name.space;
  }
  return object;
}

void set_owner(Value& child, const Value& owner) {
  Value reference = Value::object();
  reference["apiVersion"] = owner.text_at({"apiVersion"});
  reference["kind"] = owner.text_at({"kind"});
  reference["name"] = owner.text_at({"metadata", "name"});
  reference["uid"] = uid_of(owner);
  reference["controller"] = true;
  reference["blockOwnerDeletion"] = true;
  Value references = Value::array();
  references.push_back(std::move(reference));
  child["metadata"]["ownerReferences"] = std::move(references);
}

bool same(const Value& a, const Value& b) {
  if (a.kind() != b.kind()) {
    return false;
  }
  if (a.is_object()) {
    if (a.size() != b.size()) {
      return false;
    }
    return std::ranges::all_of(a.members(), [&](const Member& member) {
      const Value* other = b.find(member.key);
      return other != nullptr && same(member.value, *other);
    });
  }
  if (a.is_array()) {
    return std::ranges::equal(a.elements(), b.elements(), same);
  }
  return a == b;
}

Value sorted(const Value& value) {
  if (value.is_array()) {
    Value list = Value::array();
    for (const Value& element : value.elements()) {
      list.push_back(sorted(element));
    }
    return list;
  }
  if (!value.is_object()) {
    return value;
  }
  std::vector<const Member*> members;
  for (const Member& member : value.members()) {
    members.push_back(&member);
  }
  std::ranges::sort(members, {},
                    [](const Member* member) { return std::string_view(member->key); });
  Value object = Value::object();
  for (const Member* member : members) {
    object.mutable_members()->push_back({member->key, sorted(member->value)});
  }
  return object;
}

void merge_patch(Value& target, const Value& patch) {
  if (!patch.is_object()) {
    target = patch;
    return;
  }
  if (!target.is_object()) {
    target = Value::object();
  }
  for (const Member& member : patch.members()) {
    if (member.value.is_null()) {
      target.erase(member.key);
    } else {
      merge_patch(target[member.key], member.value);
    }
  }
}

std::string sha256_hex(std::string_view bytes) {
  std::array<unsigned char, 32> digest{};
  unsigned int size = 0;
  const int done =
      EVP_Digest(bytes.data(), bytes.size(), digest.data(), &size, EVP_sha256(), nullptr);
  STATOR_ASSERT(done == 1 && size == digest.size(), "SHA-256 is part of OpenSSL");
  std::string text;
  for (const unsigned char byte : digest) {
    text += fmt::format("{:02x}", byte);
  }
  return text;
}

std::string short_hash(std::string_view bytes) {
  return sha256_hex(bytes).substr(0, 8);
}

Result<int64_t> parse_quantity_milli(std::string_view text) {
  const auto bad = [&] {
    return Error(Code::kInvalidArgument,
                 fmt::format("'{}' is not a quantity: write a number with an optional suffix such "
                             "as m, k, M, G, Ki, Mi, Gi",
                             text));
  };
  double number = 0;
  std::string_view digits = text;
  if (digits.starts_with('+')) {
    digits.remove_prefix(1);
  }
  // "1E" is 10^18, "1e3" an exponent: from_chars must not stop in the middle of either.
  const auto [end, failed] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (failed != std::errc() || !std::isfinite(number)) {
    return bad();
  }
  const std::string_view suffix(end, static_cast<size_t>(digits.data() + digits.size() - end));
  constexpr std::array<std::pair<std::string_view, double>, 16> kSuffixes = {
      {{"", 1e3},
       {"n", 1e-6},
       {"u", 1e-3},
       {"m", 1},
       {"k", 1e6},
       {"M", 1e9},
       {"G", 1e12},
       {"T", 1e15},
       {"P", 1e18},
       {"E", 1e21},
       {"Ki", 1024e3},
       {"Mi", 1048576e3},
       {"Gi", 1073741824e3},
       {"Ti", 1099511627776e3},
       {"Pi", 1125899906842624e3},
       {"Ei", 1152921504606846976e3}}};
  const auto row =
      std::ranges::find(kSuffixes, suffix, &std::pair<std::string_view, double>::first);
  if (row == kSuffixes.end()) {
    return bad();
  }
  const double value = std::ceil(number * row->second);
  if (std::abs(value) > 9.2e18) {
    return value > 0 ? INT64_MAX : INT64_MIN;
  }
  return static_cast<int64_t>(value);
}

}  // namespace stator::kube
