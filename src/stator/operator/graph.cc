// SPDX-License-Identifier: Apache-2.0
#include "stator/operator/graph.h"

#include <algorithm>

#include "stator/kube/object.h"
#include "stator/operator/names.h"

namespace stator::op {
namespace {

using json::Value;

/// The engine that a container's command names, or "".
std::string_view engine_of(const Value& container) {
  std::string words;
  for (const std::string_view key : {"command", "args"}) {
    if (const Value* list = container.find(key)) {
      for (const Value& word : list->elements()) {
        words.append(word.text()).push_back(' ');
      }
    }
  }
  for (const std::string_view engine : {"sglang", "trtllm", "vllm"}) {
    const std::string module = "dynamo." + std::string(engine);
    if (words.find(module) != std::string::npos) {
      return engine;
    }
  }
  for (const auto& [word, engine] :
       {std::pair<std::string_view, std::string_view>("sglang", "sglang"),
        {"trtllm", "trtllm"},
        {"vllm", "vllm"}}) {
    if (words.find(word) != std::string::npos) {
      return engine;
    }
  }
  return {};
}

Provider choose_provider(const Value& graph, const Environment& environment) {
  const std::string_view chosen = kube::annotation_of(graph, kAnnotationProvider);
  if (!chosen.empty()) {
    return chosen == "grove" ? Provider::kGrove : Provider::kComponent;
  }
  const std::string opted = lower(kube::annotation_of(graph, kAnnotationEnableGrove));
  if (opted == "false") {
    return Provider::kComponent;
  }
  if (environment.has_grove || opted == "true") {
    return Provider::kGrove;
  }
  // Several nodes need whoever starts them together.
  const Value* components = graph.find_at({"spec", "components"});
  const bool needs_groups =
      components != nullptr && std::ranges::any_of(components->elements(), [](const Value& each) {
        return each.find("multinode") != nullptr;
      });
  const bool shares_gpus =
      components != nullptr && std::ranges::any_of(components->elements(), [](const Value& each) {
        return each.text_at({"experimental", "gpuMemoryService", "mode"}) == "InterPod";
      });
  const bool needs_sets = shares_gpus || (needs_groups && !environment.has_lws);
  return needs_sets && environment.serves_grove ? Provider::kGrove : Provider::kComponent;
}

}  // namespace

std::string_view to_string(Provider provider) {
  return provider == Provider::kGrove ? "grove" : "component";
}

bool Component::is_worker() const {
  return is_worker_type(type());
}
int64_t Component::replicas() const {
  return kube::int_at(*spec_, {"replicas"}, 1);
}
int64_t Component::min_available() const {
  return std::min(kube::int_at(*spec_, {"minAvailable"}, 1), std::max<int64_t>(replicas(), 1));
}
int64_t Component::nodes() const {
  return spec_->find("multinode") == nullptr ? 1
                                             : kube::int_at(*spec_, {"multinode", "nodeCount"}, 2);
}
bool Component::is_global() const {
  return kube::bool_at(*spec_, {"globalDynamoNamespace"}, false);
}
const Value* Component::main() const {
  return kube::find_named(spec_->find_at({"podTemplate", "spec", "containers"}), "main");
}
std::string_view Component::annotation(std::string_view key) const {
  return spec_->text_at({"podTemplate", "metadata", "annotations", key});
}

int64_t Component::gpus() const {
  const Value* container = main();
  for (const std::string_view section : {"limits", "requests"}) {
    const Value* amounts =
        container == nullptr ? nullptr : container->find_at({"resources", section});
    if (amounts == nullptr) {
      continue;
    }
    for (const json::Member& amount : amounts->members()) {
      const bool is_gpu = amount.key.ends_with("/gpu") || amount.key.starts_with("gpu.");
      if (is_gpu) {
        return kube::parse_quantity_milli(amount.value.text()).value_or(0) / 1000;
      }
    }
  }
  return 0;
}

Graph::Graph(const Value& object, const Environment& environment)
    : object_(&object),
      space_(object.text_at({"metadata", "namespace"})),
      name_(object.text_at({"metadata", "name"})),
      backend_(object.text_at({"spec", "backendFramework"})),
      provider_(choose_provider(object, environment)),
      discovery_default_(environment.discovery) {
  if (space_.empty()) {
    space_ = environment.namespace_default;
  }
  if (const Value* components = object.find_at({"spec", "components"})) {
    for (const Value& component : components->elements()) {
      components_.emplace_back(component, std::string(component.text_at({"name"})));
    }
  }
  for (const Component& component : components_) {
    if (backend_.empty() && component.is_worker() && component.main() != nullptr) {
      backend_ = engine_of(*component.main());
    }
  }
}

const Component* Graph::find(std::string_view component) const {
  const auto it = std::ranges::find(components_, component, &Component::name);
  return it == components_.end() ? nullptr : &*it;
}

std::string_view Graph::annotation(std::string_view key) const {
  return kube::annotation_of(*object_, key);
}

std::string Graph::runtime_namespace_of(const Component& component) const {
  return runtime_namespace(space_, name_, component.is_global());
}

std::string Graph::discovery() const {
  const std::string_view own = annotation(kAnnotationDiscovery);
  return own.empty() ? discovery_default_ : std::string(own);
}

void set_defaults(Value& graph, const Environment& environment, bool is_create) {
  const bool is_grove = choose_provider(graph, environment) == Provider::kGrove;
  if (is_create) {
    Value& annotations = kube::at(graph, {"metadata", "annotations"});
    if (annotations.find(kAnnotationOrigin) == nullptr) {
      kube::at(graph, {"metadata", "annotations"})[kAnnotationOrigin] = environment.version;
    }
    if (annotations.find(kAnnotationProvider) == nullptr) {
      kube::at(graph, {"metadata", "annotations"})[kAnnotationProvider] =
          is_grove ? "grove" : "component";
    }
  }
  Value* spec = graph.find("spec");
  Value* components = spec == nullptr ? nullptr : spec->find("components");
  if (components == nullptr || components->mutable_elements() == nullptr) {
    return;
  }
  for (Value& component : *components->mutable_elements()) {
    if (!component.is_object()) {
      continue;
    }
    set_component_defaults(component);
    if (is_grove && component.find("minAvailable") == nullptr) {
      component["minAvailable"] = 1;
    }
  }
}

void set_component_defaults(Value& component) {
  if (component.find("replicas") == nullptr) {
    component["replicas"] = 1;
  }
  if (Value* multinode = component.find("multinode");
      multinode != nullptr && multinode->is_object() && multinode->find("nodeCount") == nullptr) {
    (*multinode)["nodeCount"] = 2;
  }
}

std::string worker_hash(const Graph& graph) {
  Value hashed = Value::array();
  for (const Component& component : graph.components()) {
    if (!component.is_worker()) {
      continue;
    }
    Value spec = component.spec();
    for (const std::string_view key :
         {"replicas", "minAvailable", "scalingAdapter", "topologyConstraint"}) {
      spec.erase(key);
    }
    hashed.push_back(std::move(spec));
  }
  if (hashed.size() == 0) {
    return {};
  }
  if (const Value* env = graph.object().find_at({"spec", "env"})) {
    hashed.push_back(*env);
  }
  return kube::short_hash(json::to_text(kube::sorted(hashed)));
}

}  // namespace stator::op
