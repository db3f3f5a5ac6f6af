// SPDX-License-Identifier: Apache-2.0
#include "stator/operator/validate.h"

#include <gtest/gtest.h>

#include "graphs.h"
#include "stator/operator/render.h"

namespace stator::op {
namespace {

using json::Value;

/// kAggregated with a change: a path below the worker ("" for the graph's spec) and a value.
struct Broken {
  std::string_view where;  ///< "worker", "frontend" or "spec"
  std::string_view patch;  ///< merged over it
  std::string_view error;  ///< must be in the message
};

Value& part(Value& graph, std::string_view where) {
  if (where == "spec") {
    return graph["spec"];
  }
  return graph["spec"]["components"].mutable_elements()->at(where == "worker" ? 1 : 0);
}

std::string refusal(const Value& graph, const Environment& environment = {}) {
  const auto admitted = admit(graph, environment);
  return admitted ? "" : admitted.error().message();
}

TEST(Validate, NamesTheFieldAndWhatIsAllowed) {
  const std::array kCases = {
      Broken{"worker", "{replicas: -1}",
             "spec.components[1].replicas: Invalid value: -1: must be at least 0"},
      Broken{"worker", "{replicas: two}",
             "spec.components[1].replicas: Invalid value: \"two\": must be a number"},
      Broken{"worker", "{name: a_b}", "spec.components[1].name: Invalid value: \"a_b\""},
      Broken{
          "worker", "{name: frontend}",
          "spec.components[1].name: Invalid value: \"frontend\": is the name of another component"},
      Broken{"worker", "{type: gpu}",
             "spec.components[1].type: Unsupported value: \"gpu\": supported values: \"frontend\", "
             "\"worker\""},
      Broken{"worker", "{minAvailable: 1}",
             "spec.components[1].minAvailable: Forbidden: only valid on the Grove path"},
      Broken{"worker", "{multinode: {nodeCount: 1}}",
             "spec.components[1].multinode.nodeCount: Invalid value: 1"},
      Broken{"worker", "{sharedMemorySize: lots}",
             "spec.components[1].sharedMemorySize: Invalid value"},
      Broken{"worker", "{compilationCache: {mountPath: /x}}", ""},
      Broken{"worker", "{compilationCache: {pvcName: c, mountPath: /models}}",
             "spec.components[1].compilationCache.mountPath: Invalid value: \"/models\": is the "
             "mount path of another"},
      Broken{"worker", "{frontendSidecar: nobody}",
             "spec.components[1].frontendSidecar: Invalid value"},
      Broken{"worker", "{runtimeVersionOverride: 1.02.3}",
             "spec.components[1].runtimeVersionOverride"},
      Broken{"worker", "{eppConfig: {config: {}}}", "spec.components[1].eppConfig: Forbidden"},
      Broken{"worker", "{topologyConstraint: {packDomain: rack}}",
             "spec.topologyConstraint: Required value"},
      Broken{
          "frontend", "{podTemplate: null}",
          "spec.components[0].podTemplate.spec.containers: Required value: a container named main"},
      Broken{"frontend", "{podTemplate: {spec: {containers: [{name: main}]}}}",
             "spec.components[0].podTemplate.spec.containers[0].image: Required value"},
      Broken{"frontend", "{type: epp}", "spec.components[0].eppConfig: Required value"},
      Broken{"spec", "{backendFramework: tgi}",
             "spec.backendFramework: Unsupported value: \"tgi\""},
      Broken{"spec", "{restart: {id: a}}", "spec.restart: Forbidden: must be unset at creation"},
      Broken{"spec", "{components: []}", "spec.components: Required value"},
      Broken{"spec", "{components: 5}", "spec.components: Invalid value: 5: must be an array"},
      Broken{"spec", "{priorityClassName: high}", "spec.priorityClassName: Forbidden"},
      Broken{"spec", "{labels: {a: 1}}", "spec.labels[a]: Invalid value: 1: must be a string"},
      Broken{"spec", "{experimental: {kvTransferPolicy: {domain: rack}}}",
             "spec.experimental.kvTransferPolicy: Invalid value"},
  };
  for (const Broken& broken : kCases) {
    Value graph = from_yaml(kAggregated);
    kube::merge_patch(part(graph, broken.where), from_yaml(broken.patch));
    const std::string error = refusal(graph);
    EXPECT_NE(error.find(broken.error), std::string::npos) << broken.patch << "\n" << error;
    if (!broken.error.empty()) {
      EXPECT_TRUE(error.starts_with("DynamoGraphDeployment \"chat.one\" is invalid: ")) << error;
    }
  }
}

TEST(Validate, RefusesWhatOnlyTheOldVersionCanSay) {
  const auto graph = [](std::string_view more, std::string_view claims = "[]") {
    return refusal(
        from_yaml("apiVersion: nvidia.com/v1alpha1\nkind: DynamoGraphDeployment\n"
                  "metadata: {name: g}\nspec: {pvcs: " +
                  std::string(claims) +
                  ", services: {W: {componentType: worker, extraPodSpec: "
                  "{mainContainer: {image: 'a:1.0.0'}, containers: [{name: "
                  "sidecar-frontend, image: b}]}" +
                  std::string(more) + "}}}"));
  };
  const auto names = [](const std::string& refusal, std::string_view field) {
    return refusal.find(field) != std::string::npos;
  };
  EXPECT_EQ(graph(""), "");
  EXPECT_TRUE(names(graph("", "[{create: true, name: c}]"), "spec.pvcs[0].size: Required"));
  EXPECT_TRUE(names(graph("", "[{create: false}]"), "spec.pvcs[0].name: Required"));
  EXPECT_TRUE(names(graph(", volumeMounts: [{name: m}]"),
                    "spec.services[W].volumeMounts[0].mountPoint: Required"));
  EXPECT_TRUE(names(graph(", sharedMemory: {disabled: false}"),
                    "spec.services[W].sharedMemory.size: Required"));
  EXPECT_TRUE(
      names(graph(", frontendSidecar: {image: c}"), "spec.services[W].frontendSidecar: Forbidden"));
  EXPECT_TRUE(names(graph(", annotations: {nvidia.com/vllm-distributed-executor-backend: x}"),
                    "spec.services[W].annotations[nvidia.com/vllm-distributed"));
}

TEST(Validate, RefusesWhatHasNoMeaningOnItsPath) {
  const auto with = [](std::string_view annotations, std::string_view spec,
                       std::string_view worker) {
    return refusal(
        from_yaml("apiVersion: nvidia.com/v1beta1\nkind: DynamoGraphDeployment\n"
                  "metadata: {name: g, annotations: {" +
                  std::string(annotations) + "}}\nspec: {" + std::string(spec) +
                  "components: [{name: w, type: worker, podTemplate: {spec: {containers: "
                  "[{name: main, image: 'a:1.0.0'}]}}" +
                  std::string(worker) + "}]}"));
  };
  const auto names = [](const std::string& refusal, std::string_view field) {
    return refusal.find(field) != std::string::npos;
  };
  const std::string grove = "nvidia.com/workload-provider: grove";
  const std::string pack = "spec: {template: {topologyConstraint: {topologyName: t, pack: ";
  const auto override_with = [&](std::string_view target, const std::string& value) {
    return "providerOverride: {apiVersion: grove.io/v1alpha1, target: " + std::string(target) +
           ", value: {" + value + "}}, ";
  };
  EXPECT_EQ(with(grove, override_with("PodCliqueSet", pack + "{required: rack}}}}"), ""), "");
  EXPECT_TRUE(names(with(grove, override_with("PodClique", pack + "{required: rack}}}}"), ""),
                    "spec.providerOverride.target: Unsupported"));
  EXPECT_TRUE(names(with(grove, override_with("PodCliqueSet", "spec: {replicas: 2}"), ""),
                    "spec.providerOverride.value.spec.replicas: Forbidden"));
  EXPECT_TRUE(names(with(grove, override_with("PodCliqueSet", pack + "rack}}}"), ""),
                    "topologyConstraint.pack: Invalid"));
  EXPECT_TRUE(names(with("nvidia.com/dynamo-operator-origin-version: x", "", ""),
                    "metadata.annotations[nvidia.com/dynamo-operator-origin-version]"));
  EXPECT_EQ(with("nvidia.com/dynamo-operator-origin-version: v1.2.3-rc.1+b", "", ""), "");
  EXPECT_TRUE(names(with("", "", ", experimental: {grove: {forceScalingGroup: true}}"),
                    "spec.components[0].experimental.grove.forceScalingGroup: Forbidden"));
  const std::string policy = "experimental: {kvTransferPolicy: {clusterTopologyName: t, domain: ";
  EXPECT_TRUE(names(with("", policy + "zone}}, ", ""), "kvTransferPolicy.clusterTopologyName"));
  EXPECT_TRUE(names(with(grove, policy + "Zone}}, ", ""), "kvTransferPolicy.domain: Invalid"));
}

TEST(Validate, NamesFieldsOfTheVersionThatWasWritten) {
  EXPECT_NE(refusal(from_yaml("apiVersion: nvidia.com/v1alpha1\nkind: DynamoGraphDeployment\n"
                              "metadata: {name: g}\nspec: {services: {W: {replicas: -2}}}"))
                .find("spec.services[W].replicas: Invalid value: -2"),
            std::string::npos);
}

TEST(Validate, UpdatesKeepWhatIsImmutable) {
  const Value old = admit(from_yaml(kAggregated), {}).value();
  const auto update = [&](std::string_view where, std::string_view patch) {
    Value graph = old;
    kube::merge_patch(part(graph, where), from_yaml(patch));
    const auto status = validate_graph(graph, {}, {.old = &old});
    return status ? std::string() : std::string(status.error().message());
  };
  EXPECT_NE(update("spec", "{backendFramework: sglang}").find("spec.backendFramework: Forbidden"),
            std::string::npos);
  EXPECT_NE(update("worker", "{multinode: {nodeCount: 2}}").find("cannot be added or removed"),
            std::string::npos);
  EXPECT_NE(update("worker", "{replicas: 4}").find("scale the DynamoGraphDeploymentScalingAdapter"),
            std::string::npos);
  EXPECT_EQ(update("frontend", "{replicas: 4}"), "");
  EXPECT_EQ(update("spec", "{restart: {id: a, strategy: {order: [Worker, Frontend]}}}"), "");
  EXPECT_NE(update("spec", "{restart: {id: a, strategy: {order: [Worker]}}}")
                .find("must name every component exactly once"),
            std::string::npos);
}

TEST(Validate, AnInvalidOldFieldBlocksNoOtherChange) {
  Value old = admit(from_yaml(kAggregated), {}).value();
  part(old, "worker")["name"] = "not_good";
  Value graph = old;
  part(graph, "frontend")["replicas"] = 3;
  EXPECT_TRUE(validate_graph(graph, {}, {.old = &old}));
}

TEST(Validate, GroveNamesMustFitIntoHostNames) {
  Value graph = from_yaml(kAggregated);
  graph["metadata"]["name"] = "a-graph-with-a-name-of-forty-characters1";
  EXPECT_EQ(refusal(graph), "");
  EXPECT_NE(refusal(graph, {.has_grove = true}).find("shorten one of them"), std::string::npos);
}

TEST(Validate, ModelsAndAdapters) {
  EXPECT_NE(
      refusal(from_yaml("apiVersion: nvidia.com/v1alpha1\nkind: DynamoModel\nmetadata: {name: m}\n"
                        "spec: {modelName: a, baseModelName: b, modelType: lora}"))
          .find("spec.source.uri: Required value"),
      std::string::npos);
  EXPECT_NE(
      refusal(
          from_yaml("apiVersion: nvidia.com/v1beta1\nkind: DynamoGraphDeploymentScalingAdapter\n"
                    "metadata: {name: m}\nspec: {dgdRef: {name: g, componentName: w}}"))
          .find("spec.replicas: Required value"),
      std::string::npos);
}

}  // namespace
}  // namespace stator::op
