// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "stator/kube/object.h"
#include "stator/operator/names.h"
#include "stator/operator/validate.h"
#include "stator/operator/validate_component.h"
#include "stator/operator/validate_object.h"
#include "stator/operator/validate_pod.h"
#include "stator/perf/system_spec.h"

namespace stator::op {
namespace {

using json::Value;

constexpr std::array<std::string_view, 17> kSkus = {
    "gb200_sxm", "gb10",      "b200_sxm", "h200_sxm", "h100_sxm", "h100_pcie",
    "a100_sxm",  "a100_pcie", "a30",      "l40s",     "l40",      "l4",
    "v100_sxm",  "v100_pcie", "t4",       "mi200",    "mi300"};

void check_hardware(FieldCheck& check, const Value& spec, const Admission& admission) {
  const Value* hardware = check.object(spec, "spec", "hardware");
  if (hardware == nullptr) {
    return;
  }
  const auto sku = check.string(*hardware, "spec.hardware", "gpuSku");
  // What discovery found is written back by the operator, whatever it is called.
  const bool is_kept =
      admission.is_operator || (sku && admission.old != nullptr &&
                                admission.old->text_at({"spec", "hardware", "gpuSku"}) == *sku);
  const bool is_known =
      sku && (std::ranges::find(kSkus, *sku) != kSkus.end() || perf::find_system(*sku).has_value());
  if (sku && !is_kept && !is_known) {
    check.unsupported("spec.hardware.gpuSku", *sku, kSkus);
  }
  for (const std::string_view key : {"totalGpus", "numGpusPerNode", "vramMb"}) {
    check.at_least(*hardware, "spec.hardware", key, 1);
  }
  check.boolean(*hardware, "spec.hardware", "rdma");
}

void check_goals(FieldCheck& check, const Value& spec) {
  if (const Value* workload = check.object(spec, "spec", "workload")) {
    check.at_least(*workload, "spec.workload", "isl", 1);
    check.at_least(*workload, "spec.workload", "osl", 1);
    check.above_zero(*workload, "spec.workload", "concurrency");
    check.above_zero(*workload, "spec.workload", "requestRate");
  }
  if (const Value* sla = check.object(spec, "spec", "sla")) {
    for (const std::string_view key : {"ttft", "itl", "e2eLatency"}) {
      check.above_zero(*sla, "spec.sla", key);
    }
    constexpr std::array<std::string_view, 2> kWhat = {"latency", "throughput"};
    check.one_of(*sla, "spec.sla", "optimizationType", kWhat);
  }
}

void check_overrides(FieldCheck& check, const Value& spec) {
  const Value* overrides = check.object(spec, "spec", "overrides");
  const Value* graph =
      overrides == nullptr ? nullptr : check.object(*overrides, "spec.overrides", "dgd");
  if (graph == nullptr) {
    return;
  }
  if (!graph->text_at({"apiVersion"}).starts_with("nvidia.com/") ||
      graph->text_at({"kind"}) != "DynamoGraphDeployment") {
    check.invalid("spec.overrides.dgd", *graph,
                  "must have apiVersion nvidia.com/v1beta1 and kind DynamoGraphDeployment");
  }
}

void check_request(FieldCheck& check, const Value& object, const Admission& admission) {
  const Value& spec = *object.find("spec");
  if (check.string(spec, "spec", "model").value_or("").empty()) {
    check.required("spec.model");
  }
  constexpr std::array<std::string_view, 4> kAuto = {"auto", "sglang", "trtllm", "vllm"};
  constexpr std::array<std::string_view, 2> kSearch = {"rapid", "thorough"};
  check.one_of(spec, "spec", "backend", kAuto);
  check.one_of(spec, "spec", "searchStrategy", kSearch);
  check.boolean(spec, "spec", "autoApply");
  check_hardware(check, spec, admission);
  check_goals(check, spec);
  check_overrides(check, spec);
  const Value* workload = check.object(spec, "spec", "workload");
  if (workload != nullptr && workload->find("concurrency") != nullptr &&
      workload->find("requestRate") != nullptr) {
    check.invalid("spec.workload", *workload, "set concurrency or requestRate, not both");
  }
  const Value* old = admission.old;
  const std::string_view phase =
      old == nullptr ? std::string_view() : old->text_at({"status", "phase"});
  if (!phase.empty() && phase != "Pending" && old->find("spec") != nullptr) {
    Value before = *old->find("spec");
    Value after = spec;
    for (Value* each : {&before, &after}) {
      if (phase == "Ready") {
        each->erase("autoApply");
      }
      each->erase("runtimeVersionOverride");
    }
    if (!kube::same(before, after)) {
      check.forbidden("spec", fmt::format("cannot change in phase {}", phase));
    }
  }
}

void check_model(FieldCheck& check, const Value& object, const Admission& admission) {
  const Value& spec = *object.find("spec");
  for (const std::string_view key : {"modelName", "baseModelName"}) {
    if (check.string(spec, "spec", key).value_or("").empty()) {
      check.required(fmt::format("spec.{}", key));
    }
  }
  constexpr std::array<std::string_view, 3> kTypes = {"base", "lora", "adapter"};
  check.one_of(spec, "spec", "modelType", kTypes);
  const std::string_view uri = spec.text_at({"source", "uri"});
  if (spec.text_at({"modelType"}) == "lora" && uri.empty()) {
    check.required("spec.source.uri", "a lora has a source");
  }
  if (!uri.empty() && !uri.starts_with("s3://") && !uri.starts_with("hf://") &&
      !uri.starts_with("file:///")) {
    check.invalid("spec.source.uri", Value(uri), "must start with s3://, hf:// or file:///");
  }
  if (admission.old != nullptr &&
      admission.old->text_at({"spec", "baseModelName"}) != spec.text_at({"baseModelName"})) {
    check.forbidden("spec.baseModelName", "field is immutable");
  }
}

void check_checkpoint_object(FieldCheck& check, const Value& spec) {
  const Value* job = check.object(spec, "spec", "job");
  if (job == nullptr) {
    check.required("spec.job", "its pod is what is captured");
    return;
  }
  check.at_least(*job, "spec.job", "activeDeadlineSeconds", 1);
  const auto target = check.string(*job, "spec.job", "targetContainerName");
  const std::string_view main = target && !target->empty() ? *target : std::string_view("main");
  check_pod_template(check, *job, {"spec.job", "podTemplateSpec", main});
  if (!check.ok() && target && !target->empty() && *target != "main" &&
      kube::find_named(job->find_at({"podTemplateSpec", "spec", "containers"}), *target) ==
          nullptr) {
    check = FieldCheck();
    check.invalid("spec.job.targetContainerName", *job->find("targetContainerName"),
                  "names no container of podTemplateSpec.spec.containers");
  }
  if (const Value* memory = check.object(spec, "spec", "gpuMemoryService")) {
    constexpr std::array<std::string_view, 1> kModes = {"IntraPod"};
    check.one_of(*memory, "spec.gpuMemoryService", "mode", kModes);
  }
}

/// What was found, said in the fields of v1alpha1 where they have other names.
std::string in_words_of_alpha(std::string_view what) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 7> kFields = {
      {{"spec.sla", "spec.profilingConfig.config.sla"},
       {"spec.workload", "spec.profilingConfig.config.sla"},
       {"spec.modelCache", "spec.profilingConfig.config.deployment.modelCache"},
       {"spec.features.planner", "spec.profilingConfig.config.planner"},
       {"spec.overrides.profilingJob", "spec.profilingConfig"},
       {"spec.overrides.dgd", "spec.deploymentOverrides"},
       {"spec.dgdRef.componentName", "spec.dgdRef.serviceName"}}};
  for (const auto& [beta, alpha] : kFields) {
    if (what.starts_with(beta)) {
      return fmt::format("{}{}", alpha, what.substr(beta.size()));
    }
  }
  return std::string(what);
}

Status outcome_of(const FieldCheck& check, const Value& object, const Admission& admission) {
  if (check.ok() || !admission.was_alpha) {
    return outcome(check, object);
  }
  return Error(Code::kInvalidArgument,
               fmt::format("{} \"{}\" is invalid: {}", object.text_at({"kind"}),
                           object.text_at({"metadata", "name"}), in_words_of_alpha(check.what())));
}

}  // namespace

Status validate_other(const Value& object, const Environment& environment,
                      const Admission& admission) {
  FieldCheck check;
  check_metadata(check, object);
  const std::string_view kind = object.text_at({"kind"});
  const bool is_known =
      kind == "DynamoComponentDeployment" || kind == "DynamoGraphDeploymentScalingAdapter" ||
      kind == "DynamoGraphDeploymentRequest" || kind == "DynamoModel" || kind == "DynamoCheckpoint";
  if (!is_known) {
    return {};
  }
  const Value* spec = check_spec(check, object);
  if (spec == nullptr) {
    return outcome(check, object);
  }
  if (kind == "DynamoComponentDeployment") {
    check.one_of(*spec, "spec", "backendFramework", kBackends);
    const std::string name(spec->text_at({"name"}).empty() ? object.text_at({"metadata", "name"})
                                                           : spec->text_at({"name"}));
    check_component(
        check,
        {.environment = environment,
         .admission = admission,
         .backend = std::string(spec->text_at({"backendFramework"})),
         .old = admission.old == nullptr ? nullptr : admission.old->find("spec"),
         .path = "spec",
         .discovery_mode = std::string(kube::annotation_of(object, kAnnotationDiscoveryMode))},
        Component(*spec, name));
  } else if (kind == "DynamoGraphDeploymentScalingAdapter") {
    if (spec->find("replicas") == nullptr) {
      check.required("spec.replicas");
    }
    check.at_least(*spec, "spec", "replicas", 0);
    for (const std::string_view key : {"name", "componentName"}) {
      if (spec->text_at({"dgdRef", key}).empty()) {
        check.required(fmt::format("spec.dgdRef.{}", key));
      }
    }
  } else if (kind == "DynamoGraphDeploymentRequest") {
    check_request(check, object, admission);
  } else if (kind == "DynamoCheckpoint") {
    check_checkpoint_object(check, *spec);
  } else {
    check_model(check, object, admission);
  }
  return outcome_of(check, object, admission);
}

}  // namespace stator::op
