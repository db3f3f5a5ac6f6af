// SPDX-License-Identifier: Apache-2.0
#include "stator/operator/move_in.h"

#include <algorithm>

#include "stator/operator/names.h"

namespace stator::op {
namespace {

using json::Value;

std::string_view component_of(const Value& object) {
  return kube::label_of(object, kLabelComponent);
}

bool is_of(const Value& object, const Value& graph) {
  const Value* owners = object.find_at({"metadata", "ownerReferences"});
  return owners != nullptr && std::ranges::any_of(owners->elements(), [&](const Value& owner) {
           return owner.text_at({"uid"}) == kube::uid_of(graph);
         });
}

const Value* main_of(const Value& component) {
  const Value* containers = component.find_at({"spec", "podTemplate", "spec", "containers"});
  return containers == nullptr ? nullptr : kube::find_named(containers, "main");
}

bool runs_the_same(const Value& stored, const Value& desired) {
  const Value* old = main_of(stored);
  const Value* made = main_of(desired);
  return old != nullptr && made != nullptr &&
         std::ranges::all_of(std::initializer_list<std::string_view>{"image", "command", "args"},
                             [&](std::string_view key) {
                               const Value* before = old->find(key);
                               const Value* after = made->find(key);
                               return before == nullptr || after == nullptr
                                          ? before == after
                                          : kube::same(*before, *after);
                             });
}

/// The stored object of a component that could be kept; null without one, or with several.
const Value* kept_of(const GraphView& view, const Value& desired) {
  const Value* found = nullptr;
  for (const Value& stored : view.components) {
    if (component_of(stored) != component_of(desired)) {
      continue;
    }
    const bool is_foreign = kube::annotation_of(stored, kAnnotationMadeBy).empty() &&
                            is_of(stored, view.graph) && runs_the_same(stored, desired);
    if (!is_foreign || found != nullptr) {
      return nullptr;
    }
    found = &stored;
  }
  return found;
}

bool is_worker(const Value& component) {
  return is_worker_type(component.text_at({"spec", "type"}));
}

}  // namespace

std::string made_of(const Value& component) {
  Value spec = component.find("spec") == nullptr ? Value::object() : *component.find("spec");
  for (const std::string_view key : {"replicas", "scalingAdapter", "minAvailable"}) {
    spec.erase(key);
  }
  return kube::short_hash(json::to_text(spec));
}

std::string made_of_graph(const Graph& graph) {
  Value spec = graph.object().find("spec") == nullptr ? Value::object() : graph.object().at("spec");
  spec.erase("restart");
  if (Value* components = spec.find("components");
      components != nullptr && components->mutable_elements() != nullptr) {
    for (Value& component : *components->mutable_elements()) {
      for (const std::string_view key : {"replicas", "scalingAdapter", "minAvailable"}) {
        component.erase(key);
      }
    }
  }
  return kube::short_hash(json::to_text(kube::sorted(spec)));
}

bool Adoption::keeps(const Value& component) const {
  const auto found = made_of.find(component_of(component));
  return found != made_of.end() && found->second == op::made_of(component);
}

bool Adoption::keeps_workers(const std::vector<Value>& desired) const {
  return !generation.empty() && std::ranges::all_of(desired, [&](const Value& component) {
    return !is_worker(component) || keeps(component);
  });
}

std::optional<Adoption> read_adoption(const Graph& graph) {
  const auto stored = json::parse(graph.annotation(kAnnotationAdopted));
  if (!stored || !stored->is_object()) {
    return std::nullopt;
  }
  Adoption adoption{.generation = std::string(stored->text_at({"generation"})), .made_of = {}};
  for (const json::Member& member : stored->at("components").members()) {
    adoption.made_of.emplace(member.key, std::string(member.value.text()));
  }
  return adoption;
}

std::string to_text(const Adoption& adoption) {
  Value text = Value::object();
  text["generation"] = adoption.generation;
  text["components"] = Value::object();
  for (const auto& [component, hash] : adoption.made_of) {
    text["components"][component] = hash;
  }
  return json::to_text(text);
}

std::optional<Adoption> find_adoption(const GraphView& view, const Graph& graph,
                                      const std::vector<Value>& desired) {
  const int64_t seen = kube::int_at(view.graph, {"status", "observedGeneration"}, -1);
  if (view.components.empty() || seen != kube::generation_of(view.graph)) {
    return std::nullopt;
  }
  Adoption adoption;
  for (const Value& object : desired) {
    const Value* stored = kept_of(view, object);
    if (stored == nullptr) {
      return std::nullopt;
    }
    const std::string hash(kube::label_of(*stored, kLabelWorkerHash));
    const std::string name =
        component_object_name(graph.name(), std::string(component_of(object)), hash);
    const bool is_other_name = kube::name_of(*stored).name != name;
    const bool is_other_generation =
        is_worker(object) &&
        (hash.empty() || (!adoption.generation.empty() && adoption.generation != hash));
    if (is_other_name || is_other_generation) {
      return std::nullopt;
    }
    if (is_worker(object)) {
      adoption.generation = hash;
    }
    adoption.made_of.emplace(component_of(object), made_of(object));
  }
  return adoption;
}

}  // namespace stator::op
