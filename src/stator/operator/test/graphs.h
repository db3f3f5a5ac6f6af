// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <string_view>
#include <vector>

#include "stator/json/value.h"
#include "stator/kube/object.h"
#include "stator/kube/yaml.h"

namespace stator::op {

inline json::Value from_yaml(std::string_view text) {
  auto documents = kube::parse_yaml(text, "test");
  EXPECT_TRUE(documents) << documents.error().message();
  return std::move(documents->at(0));
}

inline const json::Value* find_object(const std::vector<json::Value>& objects,
                                      std::string_view kind, std::string_view name) {
  for (const json::Value& object : objects) {
    if (object.text_at({"kind"}) == kind && kube::name_of(object).name == name) {
      return &object;
    }
  }
  return nullptr;
}

inline constexpr std::string_view kAggregated = R"(
apiVersion: nvidia.com/v1beta1
kind: DynamoGraphDeployment
metadata: {name: chat.one, namespace: llm}
spec:
  backendFramework: vllm
  env: [{name: SHARED, value: graph}, {name: COMMON, value: "1"}]
  labels: {team: blue, nvidia.com/dynamo-component: stolen}
  components:
  - name: Frontend
    type: frontend
    podTemplate: {spec: {containers: [{name: main, image: reg/vllm-runtime:1.2.3}]}}
  - name: Worker
    type: worker
    replicas: 2
    scalingAdapter: {}
    modelRef: {name: Qwen/Qwen3-0.6B}
    compilationCache: {pvcName: cache}
    podTemplate:
      metadata: {annotations: {nvidia.com/deployment-rolling-update-max-surge: "1"}}
      spec:
        containers:
        - name: main
          image: reg/vllm-runtime:1.2.3
          command: [python3, -m, dynamo.vllm]
          args: [--model, Qwen/Qwen3-0.6B]
          env: [{name: SHARED, value: own}, {name: DYN_SYSTEM_PORT, value: "9191"}]
          resources: {limits: {nvidia.com/gpu: "1"}}
          volumeMounts: [{name: model-cache, mountPath: /models}]
        - {name: logger, image: reg/logger}
)";

}  // namespace stator::op
