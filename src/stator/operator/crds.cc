// SPDX-License-Identifier: Apache-2.0
#include "stator/operator/crds.h"

#include <fmt/format.h>

#include <array>
#include <string_view>

#include "stator/core/assert.h"
#include "stator/kube/object.h"
#include "stator/kube/yaml.h"

namespace stator::op {
namespace {

using json::Value;

Value yaml(std::string_view text) {
  auto documents = kube::parse_yaml(text, "crds.cc");
  STATOR_ASSERT(documents && documents->size() == 1, "the schemas in this file are YAML");
  return std::move(documents->front());
}

// What a component is made of, in v1beta1: shared by graphs and components on their own.
constexpr std::string_view kComponentFields = R"(
name:
  type: string
  minLength: 1
  maxLength: 63
  pattern: '^[A-Za-z0-9]([-A-Za-z0-9]*[A-Za-z0-9])?$'
type: {type: string, enum: [frontend, worker, prefill, decode, planner, epp]}
replicas: {type: integer, format: int32, minimum: 0}
minAvailable: {type: integer, format: int32, minimum: 1}
podTemplate: {type: object, x-kubernetes-preserve-unknown-fields: true}
multinode:
  type: object
  x-kubernetes-preserve-unknown-fields: true
  properties: {nodeCount: {type: integer, format: int32, minimum: 2, default: 2}}
sharedMemorySize: {x-kubernetes-int-or-string: true, anyOf: [{type: integer}, {type: string}]}
modelRef:
  type: object
  required: [name]
  x-kubernetes-preserve-unknown-fields: true
  properties: {name: {type: string}, revision: {type: string}}
scalingAdapter: {type: object, x-kubernetes-preserve-unknown-fields: true}
eppConfig: {type: object, x-kubernetes-preserve-unknown-fields: true}
frontendSidecar: {type: string}
compilationCache:
  type: object
  required: [pvcName]
  x-kubernetes-preserve-unknown-fields: true
  properties: {pvcName: {type: string}, mountPath: {type: string}}
globalDynamoNamespace: {type: boolean}
runtimeVersionOverride: {type: string}
topologyConstraint: {type: object, x-kubernetes-preserve-unknown-fields: true}
experimental: {type: object, x-kubernetes-preserve-unknown-fields: true}
)";

constexpr std::string_view kGraphBeta = R"(
type: object
x-kubernetes-preserve-unknown-fields: true
properties:
  backendFramework: {type: string, enum: [sglang, vllm, trtllm]}
  components:
    type: array
    maxItems: 25
    x-kubernetes-list-type: map
    x-kubernetes-list-map-keys: [name]
    items: {type: object, required: [name], x-kubernetes-preserve-unknown-fields: true}
  env: {type: array, items: {type: object, x-kubernetes-preserve-unknown-fields: true}}
  annotations: {type: object, additionalProperties: {type: string}}
  labels: {type: object, additionalProperties: {type: string}}
  priorityClassName: {type: string}
  restart:
    type: object
    required: [id]
    x-kubernetes-preserve-unknown-fields: true
    properties:
      id: {type: string, minLength: 1}
      strategy:
        type: object
        properties:
          type: {type: string, enum: [Sequential, Parallel], default: Sequential}
          order: {type: array, items: {type: string}}
  topologyConstraint: {type: object, x-kubernetes-preserve-unknown-fields: true}
  providerOverride: {type: object, x-kubernetes-preserve-unknown-fields: true}
  experimental: {type: object, x-kubernetes-preserve-unknown-fields: true}
)";

constexpr std::string_view kGraphAlpha = R"(
type: object
x-kubernetes-preserve-unknown-fields: true
properties:
  backendFramework: {type: string, enum: [sglang, vllm, trtllm]}
  services:
    type: object
    maxProperties: 25
    additionalProperties:
      type: object
      x-kubernetes-preserve-unknown-fields: true
      properties:
        componentType: {type: string}
        subComponentType: {type: string}
        replicas: {type: integer, format: int32, minimum: 0}
  envs: {type: array, items: {type: object, x-kubernetes-preserve-unknown-fields: true}}
  pvcs:
    type: array
    maxItems: 100
    items: {type: object, x-kubernetes-preserve-unknown-fields: true}
)";

constexpr std::string_view kAnyObject =
    R"({type: object, x-kubernetes-preserve-unknown-fields: true})";

constexpr std::string_view kConditions = R"(
type: array
x-kubernetes-list-type: map
x-kubernetes-list-map-keys: [type]
items:
  type: object
  required: [type, status]
  x-kubernetes-preserve-unknown-fields: true
  properties: {type: {type: string}, status: {type: string}}
)";

constexpr std::string_view kAdapter = R"(
type: object
required: [replicas, dgdRef]
x-kubernetes-preserve-unknown-fields: true
properties:
  replicas: {type: integer, format: int32, minimum: 0}
  dgdRef:
    type: object
    required: [name]
    x-kubernetes-preserve-unknown-fields: true
    properties: {name: {type: string, minLength: 1}, componentName: {type: string}}
)";

constexpr std::string_view kAdapterAlpha = R"(
type: object
required: [replicas, dgdRef]
x-kubernetes-preserve-unknown-fields: true
properties:
  replicas: {type: integer, format: int32, minimum: 0}
  dgdRef:
    type: object
    required: [name]
    x-kubernetes-preserve-unknown-fields: true
    properties: {name: {type: string, minLength: 1}, serviceName: {type: string}}
)";

constexpr std::string_view kRequestAlpha = R"(
type: object
required: [model]
x-kubernetes-preserve-unknown-fields: true
properties:
  model: {type: string, minLength: 1}
  backend: {type: string, enum: [auto, sglang, trtllm, vllm]}
  useMocker: {type: boolean}
  autoApply: {type: boolean, default: false}
  enableGpuDiscovery: {type: boolean}
  profilingConfig:
    type: object
    x-kubernetes-preserve-unknown-fields: true
    properties:
      config: {type: object, x-kubernetes-preserve-unknown-fields: true}
      profilerImage: {type: string}
      outputPVC: {type: string}
  deploymentOverrides: {type: object, x-kubernetes-preserve-unknown-fields: true}
)";

constexpr std::string_view kRequest = R"(
type: object
required: [model]
x-kubernetes-preserve-unknown-fields: true
properties:
  model: {type: string, minLength: 1}
  backend: {type: string, enum: [auto, sglang, trtllm, vllm], default: auto}
  searchStrategy: {type: string, enum: [rapid, thorough], default: rapid}
  autoApply: {type: boolean, default: true}
)";

constexpr std::string_view kModel = R"(
type: object
required: [modelName, baseModelName]
x-kubernetes-preserve-unknown-fields: true
properties:
  modelName: {type: string, minLength: 1}
  baseModelName:
    type: string
    minLength: 1
    x-kubernetes-validations: [{rule: self == oldSelf, message: field is immutable}]
  modelType: {type: string, enum: [base, lora, adapter], default: base}
  source: {type: object, properties: {uri: {type: string}}}
)";

constexpr std::string_view kSet = R"(
type: object
required: [template]
x-kubernetes-preserve-unknown-fields: true
properties:
  replicas: {type: integer, format: int32, minimum: 0, default: 1}
  updateStrategy:
    type: object
    x-kubernetes-preserve-unknown-fields: true
    properties: {type: {type: string, enum: [RollingRecreate, OnDelete], default: RollingRecreate}}
  template:
    type: object
    required: [cliques]
    x-kubernetes-preserve-unknown-fields: true
    properties:
      cliqueStartupType:
        type: string
        enum: [CliqueStartupTypeAnyOrder, CliqueStartupTypeInOrder, CliqueStartupTypeExplicit]
        default: CliqueStartupTypeAnyOrder
      cliques:
        type: array
        items:
          type: object
          required: [name, spec]
          x-kubernetes-preserve-unknown-fields: true
          properties:
            name: {type: string}
            spec: {type: object, x-kubernetes-preserve-unknown-fields: true}
)";

constexpr std::string_view kScaled = R"(
type: object
x-kubernetes-preserve-unknown-fields: true
properties: {replicas: {type: integer, format: int32, minimum: 0}}
)";

struct Kind {
  std::string_view kind;
  std::string_view short_names;  ///< flow list
  std::string_view alpha;        ///< schema of spec; empty: the version is not served
  std::string_view beta;
  std::string_view scale;    ///< of the scale subresource: path of the selector; empty: none
  std::string_view columns;  ///< printer columns, flow list
};

const std::array kKinds = {
    Kind{"DynamoGraphDeployment", "[dgd]", kGraphAlpha, kGraphBeta, "",
         R"([{name: Ready, type: string, jsonPath: '.status.conditions[?(@.type=="Ready")].status'},
             {name: Backend, type: string, jsonPath: .spec.backendFramework}])"},
    Kind{
        "DynamoComponentDeployment", "[dcd]", kAnyObject, "component", "",
        R"([{name: Available, type: string, jsonPath: '.status.conditions[?(@.type=="Available")].status'},
             {name: Backend, type: string, jsonPath: .spec.backendFramework}])"},
    Kind{"DynamoGraphDeploymentScalingAdapter", "[dgdsa]", kAdapterAlpha, kAdapter,
         ".status.selector",
         R"([{name: DGD, type: string, jsonPath: .spec.dgdRef.name},
             {name: Component, type: string, jsonPath: .spec.dgdRef.componentName},
             {name: Replicas, type: integer, jsonPath: .status.replicas}])"},
    Kind{"DynamoGraphDeploymentRequest", "[dgdr]", kRequestAlpha, kRequest, "",
         R"([{name: Model, type: string, jsonPath: .spec.model},
             {name: Phase, type: string, jsonPath: .status.phase}])"},
    Kind{"DynamoModel", "[dm]", kModel, "", "",
         R"([{name: BaseModel, type: string, jsonPath: .spec.baseModelName},
             {name: Ready, type: integer, jsonPath: .status.readyEndpoints},
             {name: Total, type: integer, jsonPath: .status.totalEndpoints}])"},
    Kind{"DynamoWorkerMetadata", "[dwm]", kAnyObject, "", "", "[]"},
    Kind{"DynamoCheckpoint", "[dckpt]", kAnyObject, "", "",
         R"([{name: Phase, type: string, jsonPath: .status.phase}])"},
    Kind{"PodCliqueSet", "[pcs]", kSet, "", ".status.hpaPodSelector", "[]"},
    Kind{"PodClique", "[pclq]", kScaled, "", ".status.hpaPodSelector", "[]"},
    Kind{"PodCliqueScalingGroup", "[pcsg]", kScaled, "", ".status.selector", "[]"},
    Kind{"ClusterTopologyBinding", "[ct]", kAnyObject, "", "", "[]"},
    Kind{"PodGang", "[pg]", kAnyObject, "", "", "[]"},
};

Value spec_schema(std::string_view schema) {
  if (schema != "component") {
    return yaml(schema);
  }
  Value component = yaml(R"({type: object, x-kubernetes-preserve-unknown-fields: true})");
  component["properties"] = yaml(kComponentFields);
  component["properties"]["backendFramework"] =
      yaml("{type: string, enum: [sglang, vllm, trtllm]}");
  return component;
}

Value make_version(const Kind& kind, std::string_view name, std::string_view schema,
                   bool is_stored) {
  Value version = Value::object();
  version["name"] = name;
  version["served"] = true;
  version["storage"] = is_stored;
  Value root = yaml(R"({type: object, properties: {apiVersion: {type: string}, kind: {type: string},
                        metadata: {type: object}}})");
  Value spec = spec_schema(schema);
  if (kind.kind == "DynamoGraphDeployment" && name == "v1beta1") {
    Value* items = spec.find("properties")->find("components")->find("items");
    (*items)["properties"] = yaml(kComponentFields);
  }
  root["properties"]["spec"] = std::move(spec);
  Value status = yaml(kAnyObject);
  status["properties"]["conditions"] = yaml(kConditions);
  root["properties"]["status"] = std::move(status);
  version["schema"]["openAPIV3Schema"] = std::move(root);
  version["subresources"]["status"] = Value::object();
  if (!kind.scale.empty()) {
    Value& scale = version["subresources"]["scale"];
    scale["specReplicasPath"] = ".spec.replicas";
    scale["statusReplicasPath"] = ".status.replicas";
    scale["labelSelectorPath"] = kind.scale;
  }
  Value columns = yaml(kind.columns);
  columns.push_back(yaml("{name: Age, type: date, jsonPath: .metadata.creationTimestamp}"));
  version["additionalPrinterColumns"] = std::move(columns);
  return version;
}

Value make_conversion(const CrdOptions& options) {
  const size_t slash = options.webhook_service.find('/');
  Value conversion = yaml(R"({strategy: Webhook, webhook: {conversionReviewVersions: [v1],
                              clientConfig: {service: {path: /convert, port: 9443}}}})");
  Value& client = kube::at(conversion, {"webhook", "clientConfig"});
  client["service"]["namespace"] = options.webhook_service.substr(0, slash);
  client["service"]["name"] = options.webhook_service.substr(slash + 1);
  if (!options.ca_bundle.empty()) {
    client["caBundle"] = options.ca_bundle;
  }
  return conversion;
}

}  // namespace

std::vector<Value> make_crds(const CrdOptions& options) {
  std::vector<Value> crds;
  for (const Kind& kind : kKinds) {
    const kube::Resource& resource = kube::resource_of(kind.kind);
    Value crd = kube::make_object(kube::resource_of("CustomResourceDefinition"),
                                  {"", fmt::format("{}.{}", resource.plural, resource.group)});
    Value& spec = crd["spec"];
    spec["group"] = resource.group;
    spec["scope"] = resource.is_namespaced ? "Namespaced" : "Cluster";
    Value& names = spec["names"];
    names["kind"] = kind.kind;
    names["listKind"] = fmt::format("{}List", kind.kind);
    names["plural"] = resource.plural;
    std::string singular(kind.kind);
    for (char& c : singular) {
      c = c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
    }
    names["singular"] = singular;
    names["shortNames"] = yaml(kind.short_names);
    spec["versions"].push_back(make_version(kind, "v1alpha1", kind.alpha, kind.beta.empty()));
    if (!kind.beta.empty()) {
      spec["versions"].push_back(make_version(kind, "v1beta1", kind.beta, true));
      if (!options.webhook_service.empty()) {
        spec["conversion"] = make_conversion(options);
      }
    }
    crds.push_back(std::move(crd));
  }
  return crds;
}

}  // namespace stator::op
