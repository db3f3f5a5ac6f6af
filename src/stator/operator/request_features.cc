// SPDX-License-Identifier: Apache-2.0
#include "stator/operator/request_features.h"

#include <initializer_list>
#include <string>
#include <string_view>

#include "stator/kube/object.h"
#include "stator/operator/graph.h"
#include "stator/operator/names.h"
#include "stator/operator/pod_template.h"

namespace stator::op {
namespace {

using json::Value;

Value words(std::initializer_list<std::string_view> all) {
  Value list = Value::array();
  for (const std::string_view word : all) {
    list.push_back(word);
  }
  return list;
}

Value* main_of(Value& component) {
  Value& pod = kube::at(component, {"podTemplate", "spec"});
  Value* containers = pod.find("containers");
  return containers == nullptr ? nullptr : kube::find_named(containers, "main");
}

/// A worker that computes nothing: the same role, no GPUs.
void simulate(std::string_view model, std::string_view image, Value& component) {
  Value* main = main_of(component);
  if (main == nullptr) {
    return;
  }
  if (!image.empty()) {
    (*main)["image"] = image;
  }
  const std::string_view type = component.text_at({"type"});
  const bool is_disaggregated = type == "prefill" || type == "decode";
  if (is_stator_image(main->text_at({"image"}))) {
    (*main)["command"] = words({"stator", "worker"});
    (*main)["args"] = words({model, "--engine", "sim", "--discovery", "kubernetes:$(POD_NAMESPACE)",
                             "--role", is_disaggregated ? type : std::string_view("aggregated")});
  } else {
    (*main)["command"] = words({"python3", "-m", "dynamo.mocker"});
    (*main)["args"] = words({"--model-path", model, "--model-name", model});
    if (is_disaggregated) {
      (*main)["args"].push_back("--disaggregation-mode");
      (*main)["args"].push_back(type);
    }
  }
  main->erase("resources");
  component.erase("multinode");
}

Value make_planner(const Value& request, std::string_view image) {
  const Value& config = request.at("spec").at("features").at("planner");
  Value main = Value::object();
  main["name"] = "main";
  main["image"] = image;
  const std::string text = json::to_text(config);
  if (is_stator_image(image)) {
    main["command"] = words({"stator", "planner"});
    main["args"] = words({"--connector", "kubernetes", "--planner-config", text});
  } else {
    main["command"] = words({"python3", "-m", "dynamo.planner"});
    main["args"] = words({"--config", text});
  }
  Value component = Value::object();
  component["name"] = "planner";
  component["type"] = "planner";
  component["replicas"] = 1;
  component["podTemplate"]["spec"]["containers"].push_back(std::move(main));
  return component;
}

}  // namespace

void add_features(const Value& request, Value& graph) {
  const Value& features = request.at("spec").at("features");
  const bool is_simulated = kube::bool_at(features, {"mocker", "enabled"}, false);
  const bool is_planned = features.at("planner").is_object();
  const std::string model(request.text_at({"spec", "model"}));
  std::string image(request.text_at({"spec", "image"}));
  Value& components = kube::at(graph, {"spec"})["components"];
  for (Value& component : *components.mutable_elements()) {
    if (!is_worker_type(component.text_at({"type"}))) {
      continue;
    }
    if (is_simulated) {
      simulate(model, image, component);
    }
    if (is_planned && component.find("scalingAdapter") == nullptr) {
      component["scalingAdapter"] = Value::object();
    }
    if (const Value* main = main_of(component); image.empty() && main != nullptr) {
      image = main->text_at({"image"});
    }
  }
  if (is_planned) {
    components.push_back(make_planner(request, image));
  }
}

}  // namespace stator::op
