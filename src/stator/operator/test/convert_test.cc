// SPDX-License-Identifier: Apache-2.0
#include "stator/operator/convert.h"

#include <gtest/gtest.h>

#include "graphs.h"
#include "stator/core/random.h"

namespace stator::op {
namespace {

using json::Value;

constexpr std::string_view kAlpha = "nvidia.com/v1alpha1";
constexpr std::string_view kBeta = "nvidia.com/v1beta1";

Value to(const Value& object, std::string_view version) {
  auto converted = convert(object, version);
  EXPECT_TRUE(converted) << converted.error().message();
  return std::move(*converted);
}

constexpr std::string_view kOld = R"(
apiVersion: nvidia.com/v1alpha1
kind: DynamoGraphDeployment
metadata: {name: g, annotations: {mine: kept}}
spec:
  pvcs: [{name: p, create: true}]
  envs: [{name: A, value: b}]
  services:
    W:
      componentType: worker
      subComponentType: decode
      dynamoNamespace: old
      resources: {limits: {gpu: "1"}}
      envs: [{name: B, value: c}]
      volumeMounts:
      - {name: p, mountPoint: /p, useAsCompilationCache: true}
      - {name: q, mountPoint: /q}
      scalingAdapter: {enabled: true}
      sharedMemory: {size: 1Gi}
      future: {field: 1.50}
      extraPodSpec: {mainContainer: {image: i}, nodeSelector: {a: b}}
)";

TEST(Convert, MapsTheFieldsThatBothHave) {
  const Value beta = to(from_yaml(kOld), kBeta);
  const Value& worker = beta.find_at({"spec", "components"})->elements().at(0);
  EXPECT_EQ(worker.text_at({"name"}), "W");
  EXPECT_EQ(worker.text_at({"type"}), "decode");
  EXPECT_EQ(worker.text_at({"sharedMemorySize"}), "1Gi");
  EXPECT_EQ(worker.text_at({"compilationCache", "mountPath"}), "/p");
  const Value& main = worker.find_at({"podTemplate", "spec", "containers"})->elements().at(0);
  EXPECT_EQ(main.text_at({"resources", "limits", "nvidia.com/gpu"}), "1");
  EXPECT_EQ(main.find("volumeMounts")->size(), 1U);
  EXPECT_EQ(worker.text_at({"podTemplate", "spec", "nodeSelector", "a"}), "b");
}

TEST(Convert, ComesBackAsItWas) {
  const Value alpha = from_yaml(kOld);
  EXPECT_EQ(json::to_text(to(to(alpha, kBeta), kAlpha)), json::to_text(alpha));
  const Value beta = from_yaml(kAggregated);
  EXPECT_TRUE(kube::same(to(to(beta, kAlpha), kBeta), beta));
}

TEST(Convert, AChangeInTheOtherVersionWinsAndTheRestIsKept) {
  Value beta = to(from_yaml(kOld), kBeta);
  Value& worker = beta["spec"]["components"].mutable_elements()->at(0);
  worker["replicas"] = 7;
  kube::find_named(&kube::at(worker, {"podTemplate", "spec"})["containers"], "main")
      ->operator[]("image") = "newer";
  const Value alpha = to(beta, kAlpha);
  const Value& service = *alpha.find_at({"spec", "services", "W"});
  EXPECT_EQ(kube::int_at(service, {"replicas"}, 0), 7);
  EXPECT_EQ(service.text_at({"extraPodSpec", "mainContainer", "image"}), "newer");
  EXPECT_EQ(service.text_at({"dynamoNamespace"}), "old");
  EXPECT_EQ(service.find_at({"future", "field"})->text(), "1.50");
  EXPECT_EQ(alpha.find_at({"spec", "pvcs"})->size(), 1U);
}

TEST(Convert, WhatBothSayIsNeverTakenFromTheKeptCopy) {
  Value beta = to(from_yaml(kOld), kBeta);
  Value& worker = beta["spec"]["components"].mutable_elements()->at(0);
  Value* main = kube::find_named(&kube::at(worker, {"podTemplate", "spec"})["containers"], "main");
  (*main)["resources"]["limits"]["nvidia.com/gpu"] = "4";
  const Value again = to(to(beta, kAlpha), kBeta);
  EXPECT_TRUE(kube::same(*again.find("spec"), *beta.find("spec"))) << json::to_text(again);
}

TEST(Convert, RefusesVersionsThatAreNotServed) {
  EXPECT_FALSE(convert(from_yaml(kOld), "nvidia.com/v1"));
}

/// Services and components out of fields that convert in their own ways, and some that nobody
/// knows.
class Generator {
 public:
  explicit Generator(uint64_t seed) : random_(seed) {}

  Value alpha() {
    Value graph = from_yaml(
        "{apiVersion: nvidia.com/v1alpha1, kind: DynamoGraphDeployment, metadata: {name: g}}");
    Value& spec = graph["spec"];
    maybe(spec, "envs", R"([{"name":"A","value":"1"}])");
    maybe(spec, "pvcs", R"([{"name":"p","create":true}])");
    maybe(spec, "labels", R"({"x":"y"})");
    spec["services"] = Value::object();
    for (uint64_t i = random_.below(4); i > 0; --i) {
      spec["services"][fmt::format("s{}", random_.below(6))] = service();
    }
    one_of(
        graph, "status",
        {R"({"state":"pending","services":{"s1":{"componentName":"a","componentNames":["b","a"]}}})",
         R"({"services":{"s1":{"componentName":"a"},"s2":"odd"}})"});
    return graph;
  }

  Value request_alpha() {
    Value request = of_kind("DynamoGraphDeploymentRequest", kAlpha);
    Value& spec = request["spec"];
    spec["model"] = "m";
    one_of(spec, "autoApply", {"true", "false"});
    one_of(spec, "useMocker", {"true", "false"});
    maybe(spec, "enableGpuDiscovery", "true");
    maybe(spec, "runtimeVersionOverride", R"("1.2.3")");
    one_of(spec, "deploymentOverrides",
           {R"({"name":"d","workersImage":"w:1","labels":{"a":"b"}})", R"({"workersImage":"w:1"})",
            "{}", R"({"annotations":{},"other":1.50})"});
    one_of(
        spec, "profilingConfig",
        {R"({"profilerImage":"p:1","outputPVC":"o","resources":{"limits":{"cpu":"1"}}})",
         R"({"config":{"sla":{"ttft":100.0,"itl":1e1,"isl":3000,"osl":"many"},"sweep":{"x":1}}})",
         R"({"config":{"deployment":{"modelCache":{"pvcName":"c","modelPathInPvc":""}}}})",
         R"({"config":{"planner":{"mode":"disagg"},"sla":{}},"tolerations":[],"nodeSelector":{"a":"b"}})",
         R"({"config":{},"configMapRef":{"name":"n","key":"k"}})", R"("odd")", "null"});
    maybe(spec, "later", R"({"n":1.0})");
    one_of(request, "status",
           {R"({"state":"Ready","deployment":{"name":"d","created":true,"state":"successful"}})",
            R"({"state":"DeploymentDeleted","backend":"vllm","profilingResults":"text"})",
            R"({"state":"Initializing","observedGeneration":3})",
            R"({"state":"Profiling","generatedDeployment":{"kind":"X"}})"});
    return request;
  }

  Value request_beta() {
    Value request = of_kind("DynamoGraphDeploymentRequest", kBeta);
    Value& spec = request["spec"];
    spec["model"] = "m";
    one_of(spec, "autoApply", {"true", "false"});
    one_of(spec, "features",
           {R"({"mocker":{"enabled":true}})", R"({"mocker":{"enabled":false}})",
            R"({"planner":{"mode":"agg"}})", "{}"});
    one_of(spec, "sla", {R"({"ttft":100,"e2eLatency":5})", R"({"optimizationType":"latency"})"});
    one_of(spec, "workload", {R"({"isl":10,"requestRate":1.5})", "{}"});
    maybe(spec, "hardware", R"({"gpuSku":"h100_sxm","totalGpus":8})");
    one_of(
        spec, "overrides",
        {R"({"dgd":{"apiVersion":"nvidia.com/v1beta1","kind":"DynamoGraphDeployment","metadata":{"name":"g"},"spec":{"x":1}}})",
         R"({"profilingJob":{"template":{"spec":{"containers":[{"name":"profiler","resources":{"limits":{"cpu":"2"}}},{"name":"z"}]}},"backoffLimit":0}})"});
    one_of(spec, "searchStrategy", {R"("rapid")", R"("thorough")"});
    maybe(spec, "modelCache", R"({"pvcName":"c","pvcModelPath":"p"})");
    maybe(spec, "image", R"("i:1")");
    one_of(
        request, "status",
        {R"({"phase":"Deployed","dgdName":"g","deploymentInfo":{"replicas":2}})",
         R"({"phase":"Profiling","profilingPhase":"SweepingDecode","profilingJobName":"j"})",
         R"({"phase":"Ready","profilingResults":{"selectedConfig":{"kind":"X"},"pareto":[1]}})"});
    return request;
  }

  Value adapter(std::string_view version) {
    Value adapter = of_kind("DynamoGraphDeploymentScalingAdapter", version);
    adapter["spec"]["replicas"] = 2;
    const std::string_view name = version == kAlpha ? "serviceName" : "componentName";
    adapter["spec"]["dgdRef"]["name"] = "g";
    if (coin()) {
      adapter["spec"]["dgdRef"][name] = "W";
    }
    maybe(adapter, "status", R"({"replicas":1,"selector":"a=b"})");
    return adapter;
  }

  Value beta() {
    Value graph = from_yaml(
        "{apiVersion: nvidia.com/v1beta1, kind: DynamoGraphDeployment, metadata: {name: g}}");
    Value& spec = graph["spec"];
    maybe(spec, "env", R"([{"name":"A","value":"1"}])");
    spec["components"] = Value::array();
    for (uint64_t i = random_.below(4); i > 0; --i) {
      Value component = Value::object();
      component["name"] = fmt::format("c{}", i);
      one_of(component, "type", {R"("worker")", R"("prefill")", R"("frontend")", R"("epp")"});
      maybe(component, "replicas", "3");
      one_of(component, "sharedMemorySize", {R"("0")", R"("8Gi")", "0"});
      maybe(component, "compilationCache", R"({"pvcName":"p"})");
      maybe(component, "scalingAdapter", "{}");
      maybe(component, "frontendSidecar", R"("side")");
      one_of(
          component, "podTemplate",
          {R"({"spec":{"containers":[{"name":"main","image":"i","env":[{"name":"E","value":"v"}]},{"name":"side"}]}})",
           R"({"metadata":{"labels":{"a":"b"}}})",
           R"({"spec":{"containers":[{"name":"side"}],"nodeSelector":{"k":"v"}}})"});
      one_of(component, "experimental",
             {R"({"failover":{"mode":"IntraPod"}})", R"({"grove":{"forceScalingGroup":true}})"});
      maybe(component, "unknown", R"({"n":1.0})");
      spec["components"].push_back(std::move(component));
    }
    one_of(
        graph, "status",
        {R"({"state":"successful","components":{"c1":{"componentNames":["a","b"],"replicas":1}}})",
         R"({"components":{"c1":{"replicas":1}},"rollingUpdate":{"updatedComponents":["c1"]}})"});
    return graph;
  }

 private:
  static Value of_kind(std::string_view kind, std::string_view version) {
    Value object = Value::object();
    object["apiVersion"] = version;
    object["kind"] = kind;
    object["metadata"]["name"] = "r";
    return object;
  }
  bool coin() { return random_.below(2) == 0; }
  void maybe(Value& object, std::string_view key, std::string_view text) {
    if (coin()) {
      object[key] = json::parse(text).value();
    }
  }
  void one_of(Value& object, std::string_view key, std::vector<std::string_view> texts) {
    maybe(object, key, texts[random_.below(texts.size())]);
  }
  Value service() {
    Value s = Value::object();
    one_of(s, "componentType", {R"("worker")", R"("frontend")", R"("main")"});
    one_of(s, "subComponentType", {R"("prefill")", R"("decode")", R"("odd")"});
    one_of(s, "resources",
           {R"({"limits":{"gpu":"1"}})",
            R"({"requests":{"cpu":"1","custom":{"a/b":"2"}},"claims":[{"name":"c"}]})"});
    maybe(s, "envs", R"([{"name":"B","value":"2"}])");
    maybe(s, "envFromSecret", R"("secret")");
    one_of(s, "volumeMounts",
           {R"([{"name":"p","mountPoint":"/p","useAsCompilationCache":true}])",
            R"([{"name":"p","mountPoint":"/p"}])"});
    one_of(s, "sharedMemory", {R"({"disabled":true})", R"({"size":"1Gi"})", "{}"});
    one_of(s, "scalingAdapter", {R"({"enabled":true})", R"({"enabled":false})", "{}"});
    maybe(s, "ingress", R"({"enabled":true})");
    maybe(s, "annotations", R"({"n":"1"})");
    maybe(s, "autoscaling", R"({"enabled":true})");
    one_of(s, "extraPodSpec",
           {R"({"mainContainer":{"image":"i","env":[{"name":"B","value":"3"}]}})",
            R"({"containers":[{"name":"x"}]})", "{}"});
    one_of(s, "gpuMemoryService",
           {R"({"enabled":true,"mode":"intraPod"})", R"({"enabled":false})"});
    maybe(s, "frontendSidecar", R"({"image":"f","envs":[{"name":"F","value":"1"}]})");
    one_of(s, "livenessProbe", {R"({"httpGet":{"path":"/l"}})"});
    maybe(s, "surprise", R"([1,2.50,"x"])");
    return s;
  }

  Random random_;
};

TEST(Convert, RandomObjectsComeBackUnchanged) {
  Generator generator(3);
  for (int i = 0; i < 1500; ++i) {
    const Value alpha = generator.alpha();
    ASSERT_TRUE(kube::same(to(to(alpha, kBeta), kAlpha), alpha)) << json::to_text(alpha);
    const Value beta = generator.beta();
    ASSERT_TRUE(kube::same(to(to(beta, kAlpha), kBeta), beta)) << json::to_text(beta);
    for (const Value& each : {generator.request_alpha(), generator.adapter(kAlpha)}) {
      ASSERT_TRUE(kube::same(to(to(each, kBeta), kAlpha), each)) << json::to_text(each);
    }
    for (const Value& each : {generator.request_beta(), generator.adapter(kBeta)}) {
      ASSERT_TRUE(kube::same(to(to(each, kAlpha), kBeta), each)) << json::to_text(each);
    }
  }
}

TEST(Convert, ARequestMeansTheSameInBothVersions) {
  const Value beta = to(from_yaml(R"(
apiVersion: nvidia.com/v1alpha1
kind: DynamoGraphDeploymentRequest
metadata: {name: r}
spec:
  model: m
  backend: vllm
  useMocker: true
  profilingConfig:
    profilerImage: p:1
    nodeSelector: {a: b}
    config:
      sla: {ttft: 100, itl: 10, isl: 3000, osl: 500}
      deployment: {modelCache: {pvcName: c, modelPathInPvc: x}}
      planner: {mode: disagg}
  deploymentOverrides: {name: mine, labels: {a: b}}
)"),
                        kBeta);
  EXPECT_EQ(json::to_text(*beta.find("spec")),
            R"({"model":"m","backend":"vllm","autoApply":false,)"
            R"("features":{"mocker":{"enabled":true},"planner":{"mode":"disagg"}},)"
            R"("sla":{"ttft":100,"itl":10},"workload":{"isl":3000,"osl":500},)"
            R"("modelCache":{"pvcName":"c","pvcModelPath":"x"},"image":"p:1",)"
            R"("overrides":{"profilingJob":{"template":{"spec":{"nodeSelector":{"a":"b"}}}},)"
            R"("dgd":{"apiVersion":"nvidia.com/v1beta1","kind":"DynamoGraphDeployment",)"
            R"("metadata":{"name":"mine","labels":{"a":"b"}}}}})");
}

TEST(Convert, AnAdapterNamesItsComponentInTheWordsOfItsVersion) {
  const Value alpha = from_yaml(
      "{apiVersion: nvidia.com/v1alpha1, kind: DynamoGraphDeploymentScalingAdapter,"
      " metadata: {name: a}, spec: {replicas: 1, dgdRef: {name: g, serviceName: W}}}");
  const Value beta = to(alpha, kBeta);
  EXPECT_EQ(beta.text_at({"spec", "dgdRef", "componentName"}), "W");
  EXPECT_EQ(beta.find_at({"spec", "dgdRef", "serviceName"}), nullptr);
  EXPECT_EQ(beta.find_at({"metadata", "annotations"}), nullptr);
}

TEST(Convert, LiveFieldsWinOverStaleCopies) {
  Generator generator(5);
  for (int i = 0; i < 1000; ++i) {
    Value changed = to(generator.alpha(), kBeta);
    const Value other = generator.beta();
    changed["spec"] = *other.find("spec");  // the annotation stays: as stale as can be
    ASSERT_TRUE(kube::same(*to(to(changed, kAlpha), kBeta).find("spec"), *changed.find("spec")))
        << json::to_text(changed);
  }
}

}  // namespace
}  // namespace stator::op
