// SPDX-License-Identifier: Apache-2.0
#include "stator/operator/sizing.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>

#include "stator/configurator/output.h"
#include "stator/configurator/search.h"
#include "stator/kube/object.h"
#include "stator/kube/yaml.h"
#include "stator/operator/names.h"
#include "stator/operator/request_features.h"

namespace stator::op {
namespace {

using json::Value;

constexpr int64_t kDiscoveredMax = 32;  // a request takes no whole data centre by mistake

/// What products are called by the feature discovery, and by us.
std::string sku_of(std::string_view product) {
  const std::string name = lower(product);
  const auto has = [&](std::string_view word) { return name.find(word) != std::string::npos; };
  constexpr std::array<std::pair<std::string_view, std::string_view>, 8> kNames = {
      {{"gb200", "gb200_sxm"},
       {"b200", "b200_sxm"},
       {"h200", "h200_sxm"},
       {"h100", "h100"},
       {"a100", "a100"},
       {"l40s", "l40s"},
       {"l40", "l40"},
       {"a30", "a30"}}};
  for (const auto& [word, sku] : kNames) {
    if (has(word)) {
      const bool is_pair = sku == "h100" || sku == "a100";
      return std::string(sku) + (is_pair ? (has("pcie") ? "_pcie" : "_sxm") : "");
    }
  }
  return has("l4") ? "l4" : name;
}

/// The request's names of GPUs are not all the model's: the nearest one there is.
Result<perf::SystemSpec> find_system_of(std::string_view sku) {
  if (auto found = perf::find_system(sku)) {
    return found;
  }
  const std::string_view base = sku.substr(0, sku.find('_'));
  return perf::find_system(base);
}

double number_at(const Value& object, std::initializer_list<std::string_view> path,
                 double fallback) {
  const Value* value = object.find_at(path);
  return value == nullptr ? fallback : value->as_double().value_or(fallback);
}

std::string_view precision_of(std::string_view model, std::string_view quantization) {
  const std::string name = lower(model);
  if (quantization == "mxfp4") {
    return "bfloat16";
  }
  if (name.find("nvfp4") != std::string::npos) {
    return "nvfp4";
  }
  return quantization == "fp8" || name.find("fp8") != std::string::npos ? "fp8_block" : "bfloat16";
}

Result<configurator::Goal> read_goal(const Value& request, const Hardware& hardware) {
  configurator::Goal goal;
  const std::string model(request.text_at({"spec", "model"}));
  STATOR_TRY(goal.engine.model, perf::read_model_config(model), "spec.model");
  STATOR_TRY(goal.engine.system, find_system_of(hardware.sku), "spec.hardware.gpuSku");
  const std::string_view backend = request.text_at({"spec", "backend"});
  STATOR_TRY(goal.engine.backend,
             perf::find_backend(backend.empty() || backend == "auto" ? "vllm" : backend),
             "spec.backend");
  const std::string_view precision = precision_of(model, goal.engine.model.quantization);
  STATOR_TRY(goal.engine.weights, perf::find_quant(precision));
  STATOR_TRY(
      goal.engine.experts,
      perf::find_quant(goal.engine.model.quantization == "mxfp4" ? "w4a16_mxfp4" : precision));
  STATOR_TRY(goal.engine.kv, perf::find_quant("bfloat16"));
  goal.gpus = static_cast<uint32_t>(std::clamp<int64_t>(hardware.gpus, 1, 4096));
  goal.engine.system.gpus_per_node =
      static_cast<uint32_t>(std::clamp<int64_t>(hardware.gpus_per_node, 1, hardware.gpus));
  if (hardware.vram_mb > 0) {
    goal.engine.system.memory_bytes = static_cast<double>(hardware.vram_mb) * 1048576.0;
  }
  goal.work.input_tokens = number_at(request, {"spec", "workload", "isl"}, 4000);
  goal.work.output_tokens = number_at(request, {"spec", "workload", "osl"}, 1000);
  goal.ttft_ms = number_at(request, {"spec", "sla", "ttft"}, 2000);
  goal.itl_ms = number_at(request, {"spec", "sla", "itl"}, 30);
  if (const double whole = number_at(request, {"spec", "sla", "e2eLatency"}, 0); whole > 0) {
    // The first token may take as long as it said; the rest is shared by the others.
    goal.ttft_ms = std::min(goal.ttft_ms, whole / 2);
    goal.itl_ms = (whole - goal.ttft_ms) / std::max(1.0, goal.work.output_tokens - 1);
  }
  return goal;
}

/// The model's cache, an existing claim, in every component that loads the model.
void mount_cache(const Value& request, Value& graph) {
  const Value* cache = request.find_at({"spec", "modelCache"});
  const std::string_view claim = cache == nullptr ? "" : cache->text_at({"pvcName"});
  if (claim.empty()) {
    return;
  }
  const std::string_view path = cache->text_at({"pvcMountPath"});
  for (Value& component : *kube::at(graph, {"spec"})["components"].mutable_elements()) {
    Value& pod = kube::at(component, {"podTemplate", "spec"});
    Value volume = Value::object();
    volume["name"] = "model-cache";
    volume["persistentVolumeClaim"]["claimName"] = claim;
    volume["persistentVolumeClaim"]["readOnly"] = true;
    pod["volumes"].push_back(std::move(volume));
    Value mount = Value::object();
    mount["name"] = "model-cache";
    mount["mountPath"] = path.empty() ? std::string_view("/opt/model-cache") : path;
    mount["readOnly"] = true;
    kube::find_named(pod.find("containers"), "main")->operator[]("volumeMounts").push_back(mount);
  }
}

/// Components of the override are merged by name, everything else as a patch.
void add_overrides(const Value& request, Value& graph) {
  const Value* given = request.find_at({"spec", "overrides", "dgd"});
  if (given == nullptr || !given->is_object()) {
    return;
  }
  Value patch = *given;
  for (const std::string_view key : {"apiVersion", "kind", "status"}) {
    patch.erase(key);
  }
  Value components = Value::array();
  if (Value* spec = patch.find("spec"); spec != nullptr && spec->find("components") != nullptr) {
    components = *spec->find("components");
    spec->erase("components");
  }
  kube::merge_patch(graph, patch);
  Value& own = kube::at(graph, {"spec"})["components"];
  for (const Value& component : components.elements()) {
    const std::string_view name = component.text_at({"name"});
    Value* existing = kube::find_named(&own, name);
    if (existing == nullptr && name == "decode") {
      existing = kube::find_named(&own, "worker");  // it decodes, too
    }
    if (existing != nullptr) {
      Value changed = component;
      changed.erase("name");
      kube::merge_patch(*existing, changed);
    } else {
      own.push_back(component);
    }
  }
}

}  // namespace

Result<Hardware> discover_hardware(const std::vector<Value>& nodes) {
  struct Kind {
    int64_t nodes = 0, vram_mb = 0, per_node = 0, gpus = 0;
  };
  std::map<std::string, Kind> kinds;
  for (const Value& node : nodes) {
    const std::string_view product = kube::label_of(node, "nvidia.com/gpu.product");
    const std::string count_text(kube::label_of(node, "nvidia.com/gpu.count"));
    const std::string memory_text(kube::label_of(node, "nvidia.com/gpu.memory"));
    const int64_t allocatable =
        kube::parse_quantity_milli(node.text_at({"status", "allocatable", "nvidia.com/gpu"}))
            .value_or(0) /
        1000;
    const int64_t count =
        count_text.empty() ? allocatable : std::strtoll(count_text.c_str(), nullptr, 10);
    if (product.empty() || count <= 0) {
      continue;
    }
    Kind& kind = kinds[sku_of(product)];
    kind.nodes += 1;
    kind.gpus += count;
    kind.per_node = std::max(kind.per_node, count);
    kind.vram_mb = std::max<int64_t>(kind.vram_mb, std::strtoll(memory_text.c_str(), nullptr, 10));
  }
  if (kinds.empty()) {
    return Error(Code::kNotFound,
                 "no node says what its GPUs are (label nvidia.com/gpu.product): set "
                 "spec.hardware.gpuSku, numGpusPerNode and totalGpus");
  }
  const auto best = std::ranges::max_element(kinds, {}, [](const auto& each) {
    return std::pair(each.second.nodes, each.second.vram_mb);
  });
  return Hardware{.sku = best->first,
                  .vram_mb = best->second.vram_mb,
                  .gpus_per_node = best->second.per_node,
                  .gpus = std::min(best->second.gpus, kDiscoveredMax)};
}

Hardware hardware_of(const Value& request, const Hardware& discovered) {
  Hardware hardware = discovered;
  if (const std::string_view sku = request.text_at({"spec", "hardware", "gpuSku"}); !sku.empty()) {
    hardware.sku = lower(sku);
  }
  const auto over = [&](std::string_view key, int64_t& value) {
    value = kube::int_at(request, {"spec", "hardware", key}, value);
  };
  over("vramMb", hardware.vram_mb);
  over("numGpusPerNode", hardware.gpus_per_node);
  over("totalGpus", hardware.gpus);
  if (hardware.gpus_per_node == 0) {
    hardware.gpus_per_node = std::min<int64_t>(8, hardware.gpus);
  }
  return hardware;
}

Result<Sizing> size_request(const Value& request, const Hardware& hardware) {
  STATOR_TRY(const configurator::Goal goal, read_goal(request, hardware));
  STATOR_TRY(const configurator::SearchResult result, configurator::search(goal));
  if (result.best.empty()) {
    return Error(Code::kUnavailable, fmt::format("no configuration fits: {} is the limit. {}",
                                                 result.binding_limit, result.explanation));
  }
  const configurator::Candidate& best = result.best.front();
  const std::string_view model = request.text_at({"spec", "model"});
  Sizing sizing{.goal_met = result.goal_met};
  for (const auto& [name, content] : configurator::render_files(goal, best, model)) {
    if (name == "deployment.yaml") {
      STATOR_TRY(auto documents, kube::parse_yaml(content, name));
      sizing.graph = std::move(documents.front());
    }
  }
  const kube::ObjectName own = kube::name_of(request);
  Value& metadata = sizing.graph["metadata"];
  metadata["name"] = own.name + "-dgd";
  if (!own.space.empty()) {
    metadata["namespace"] = own.space;
  }
  mount_cache(request, sizing.graph);
  add_features(request, sizing.graph);
  add_overrides(request, sizing.graph);
  sizing.selected = configurator::to_json(goal, result, 0).at("best").at(size_t{0});
  sizing.why = fmt::format(
      "{} on {} {} GPUs for {} + {} tokens, first token within {} ms, then {} ms each: {} of {} "
      "configurations looked at; {}, first token after {:.0f} ms, then {:.1f} ms, {:.0f} tokens/s "
      "per GPU{}",
      model, goal.gpus, hardware.sku, goal.work.input_tokens, goal.work.output_tokens, goal.ttft_ms,
      goal.itl_ms, result.evaluated, result.considered,
      best.mode == configurator::Mode::kDisaggregated
          ? fmt::format(
                "prefill on {} x {}, decode on {} x {}", best.prefill.workers * best.replicas,
                configurator::describe(best.prefill.parallel), best.decode.workers * best.replicas,
                configurator::describe(best.decode.parallel))
          : fmt::format("{} workers of {}", best.decode.workers * best.replicas,
                        configurator::describe(best.decode.parallel)),
      best.point.ttft_ms, best.point.itl_ms, best.cluster_tokens_per_s_per_gpu,
      result.goal_met
          ? std::string()
          : fmt::format("; the goal is missed ({}): {}", result.binding_limit, result.explanation));
  return sizing;
}

}  // namespace stator::op
