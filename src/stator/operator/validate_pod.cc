// SPDX-License-Identifier: Apache-2.0
#include "stator/operator/validate_pod.h"

#include <fmt/format.h>

#include "stator/kube/object.h"

namespace stator::op {
namespace {

using json::Value;

constexpr int64_t kPortMax = 65535;

void check_words(FieldCheck& check, const Value& container, const std::string& path) {
  for (const std::string_view key : {"command", "args"}) {
    const Value* words = check.array(container, path, key);
    if (words == nullptr) {
      continue;
    }
    for (size_t w = 0; w < words->size(); ++w) {
      if (!words->elements()[w].is_string()) {
        check.invalid(fmt::format("{}.{}[{}]", path, key, w), words->elements()[w],
                      "must be a string: quote it");
      }
    }
  }
}

void check_ports(FieldCheck& check, const Value& container, const std::string& path) {
  const Value* ports = check.array(container, path, "ports");
  if (ports == nullptr) {
    return;
  }
  for (size_t i = 0; i < ports->size(); ++i) {
    const std::string own = fmt::format("{}.ports[{}]", path, i);
    const auto number = check.integer(ports->elements()[i], own, "containerPort");
    if (!number) {
      check.required(own + ".containerPort");
    } else if (*number < 1 || *number > kPortMax) {
      check.invalid(own + ".containerPort", *ports->elements()[i].find("containerPort"),
                    fmt::format("must be from 1 to {}", kPortMax));
    }
  }
}

void check_resources(FieldCheck& check, const Value& container, const std::string& path) {
  const Value* resources = check.object(container, path, "resources");
  if (resources == nullptr) {
    return;
  }
  for (const std::string_view section : {"limits", "requests"}) {
    const Value* amounts = check.object(*resources, path + ".resources", section);
    if (amounts == nullptr) {
      continue;
    }
    for (const json::Member& amount : amounts->members()) {
      const std::string own = fmt::format("{}.resources.{}[{}]", path, section, amount.key);
      const bool is_scalar = amount.value.is_string() || amount.value.is_number();
      const auto quantity = kube::parse_quantity_milli(amount.value.text());
      if (!is_scalar || !quantity) {
        check.invalid(own, amount.value, "must be a quantity, such as 1, 500m or 8Gi");
      } else if (*quantity < 0) {
        check.invalid(own, amount.value, "must be at least 0");
      }
    }
  }
}

void check_container(FieldCheck& check, const Value& containers, size_t index,
                     const std::string& path) {
  const Value& container = containers.elements()[index];
  if (!container.is_object()) {
    check.invalid(path, container, "must be an object");
    return;
  }
  if (container.text_at({"name"}).empty()) {
    check.required(path + ".name");
  }
  if (container.text_at({"image"}).empty()) {
    check.required(path + ".image");
  }
  if (kube::find_named(&containers, container.text_at({"name"})) != &container) {
    check.invalid(path + ".name", *container.find("name"), "is the name of another container");
  }
  check_env(check, container, path, "env");
  check_words(check, container, path);
  check_ports(check, container, path);
  check_resources(check, container, path);
  check.array(container, path, "volumeMounts");
}

}  // namespace

void check_env(FieldCheck& check, const Value& parent, const std::string& path,
               std::string_view key) {
  const Value* env = check.array(parent, path, key);
  if (env == nullptr) {
    return;
  }
  for (size_t e = 0; e < env->size(); ++e) {
    const std::string own = fmt::format("{}.{}[{}]", path, key, e);
    if (env->elements()[e].text_at({"name"}).empty()) {
      check.required(own + ".name");
    }
    check.string(env->elements()[e], own, "value");
  }
}

void check_pod_template(FieldCheck& check, const Value& owner, const PodPlace& place) {
  const std::string template_path = fmt::format("{}.{}", place.owner, place.key);
  const std::string path = template_path + ".spec";
  const std::string wanted = fmt::format("a container named {} with an image", place.main);
  const Value* pod = check.object(owner, place.owner, place.key);
  if (pod == nullptr) {
    check.required(path + ".containers", wanted);
    return;
  }
  if (const Value* metadata = check.object(*pod, template_path, "metadata")) {
    check.string_map(*metadata, template_path + ".metadata", "labels");
    check.string_map(*metadata, template_path + ".metadata", "annotations");
  }
  const Value* spec = check.object(*pod, template_path, "spec");
  const Value* containers = spec == nullptr ? nullptr : check.array(*spec, path, "containers");
  if (!check.ok()) {
    return;
  }
  if (kube::find_named(containers, place.main) == nullptr) {
    check.required(path + ".containers", wanted);
    return;
  }
  check.at_least(*spec, path, "terminationGracePeriodSeconds", 0);
  for (const std::string_view key : {"volumes", "tolerations", "initContainers"}) {
    check.array(*spec, path, key);
  }
  for (size_t i = 0; i < containers->size(); ++i) {
    check_container(check, *containers, i, fmt::format("{}.containers[{}]", path, i));
  }
}

}  // namespace stator::op
