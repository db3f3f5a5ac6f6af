// SPDX-License-Identifier: Apache-2.0
#include "stator/operator/validate_container.h"

#include <fmt/format.h>

#include <array>

#include "stator/kube/object.h"

namespace stator::op {
namespace {

using json::Value;

constexpr int64_t kPortMax = 65535;
constexpr int64_t kMilli = 1000;

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

void check_port(FieldCheck& check, const Value& port, const std::string& path,
                std::string_view key) {
  const auto number = check.integer(port, path, key);
  if (number && (*number < 1 || *number > kPortMax)) {
    check.invalid(fmt::format("{}.{}", path, key), *port.find(key),
                  fmt::format("must be from 1 to {}", kPortMax));
  }
}

void check_ports(FieldCheck& check, const Value& container, const std::string& path) {
  const Value* ports = check.array(container, path, "ports");
  if (ports == nullptr) {
    return;
  }
  constexpr std::array<std::string_view, 3> kProtocols = {"TCP", "UDP", "SCTP"};
  for (size_t i = 0; i < ports->size(); ++i) {
    const std::string own = fmt::format("{}.ports[{}]", path, i);
    const Value& port = ports->elements()[i];
    if (port.find("containerPort") == nullptr) {
      check.required(own + ".containerPort");
    }
    check_port(check, port, own, "containerPort");
    check.one_of(port, own, "protocol", kProtocols);
  }
}

/// Devices are counted in whole numbers; cpu, memory and storage are not.
bool is_counted(std::string_view resource) {
  return resource.find('/') != std::string_view::npos &&
         resource.find("kubernetes.io/") == std::string_view::npos;
}

void check_amount(FieldCheck& check, const json::Member& amount, const std::string& path) {
  const bool is_scalar = amount.value.is_string() || amount.value.is_number();
  const auto quantity = kube::parse_quantity_milli(amount.value.text());
  if (!is_scalar || !quantity) {
    check.invalid(path, amount.value, "must be a quantity, such as 1, 500m or 8Gi");
  } else if (*quantity < 0) {
    check.invalid(path, amount.value, "must be at least 0");
  } else if (is_counted(amount.key) && *quantity % kMilli != 0) {
    check.invalid(path, amount.value, "must be an integer: devices are not divided");
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
      check_amount(check, amount, fmt::format("{}.resources.{}[{}]", path, section, amount.key));
    }
  }
  for (const json::Member& request : resources->at("requests").members()) {
    const Value* limit = resources->at("limits").find(request.key);
    const auto wanted = kube::parse_quantity_milli(request.value.text());
    const auto most = kube::parse_quantity_milli(limit == nullptr ? "" : limit->text());
    if (limit == nullptr || !wanted || !most) {
      continue;
    }
    const std::string own = fmt::format("{}.resources.requests[{}]", path, request.key);
    if (*wanted > *most) {
      check.invalid(own, request.value,
                    fmt::format("must be at most the limit, {}", limit->text()));
    } else if (is_counted(request.key) && *wanted != *most) {
      check.invalid(
          own, request.value,
          fmt::format("must be equal to the limit, {}: devices are not shared", limit->text()));
    }
  }
}

void check_mounts(FieldCheck& check, const Value& container, const std::string& path) {
  const Value* mounts = check.array(container, path, "volumeMounts");
  for (size_t i = 0; mounts != nullptr && i < mounts->size(); ++i) {
    const std::string own = fmt::format("{}.volumeMounts[{}]", path, i);
    for (const std::string_view key : {"name", "mountPath"}) {
      if (check.string(mounts->elements()[i], own, key).value_or("").empty()) {
        check.required(fmt::format("{}.{}", own, key));
      }
    }
  }
}

void check_probes(FieldCheck& check, const Value& container, const std::string& path) {
  for (const std::string_view key : {"startupProbe", "livenessProbe", "readinessProbe"}) {
    const Value* probe = check.object(container, path, key);
    if (probe == nullptr) {
      continue;
    }
    const std::string own = fmt::format("{}.{}", path, key);
    for (const std::string_view number : {"initialDelaySeconds", "timeoutSeconds", "periodSeconds",
                                          "successThreshold", "failureThreshold"}) {
      check.at_least(*probe, own, number, 0);
    }
  }
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
    const Value& entry = env->elements()[e];
    const auto name = check.string(entry, own, "name");
    if (!name || name->empty()) {
      check.required(own + ".name");
    } else if (name->find('=') != std::string_view::npos) {
      check.invalid(own + ".name", Value(*name), "must not have '='");
    }
    const auto value = check.string(entry, own, "value");
    const Value* source = check.object(entry, own, "valueFrom");
    if (source != nullptr && value && !value->empty()) {
      check.invalid(own + ".valueFrom", *source, "set value or valueFrom, not both");
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
  check.string(container, path, "name");
  check.string(container, path, "image");
  for (const std::string_view key : {"name", "image"}) {
    if (container.text_at({key}).empty()) {
      check.required(fmt::format("{}.{}", path, key));
    }
  }
  if (kube::find_named(&containers, container.text_at({"name"})) != &container) {
    check.invalid(path + ".name", *container.find("name"), "is the name of another container");
  }
  constexpr std::array<std::string_view, 3> kPolicies = {"Always", "IfNotPresent", "Never"};
  check.one_of(container, path, "imagePullPolicy", kPolicies);
  check_env(check, container, path, "env");
  check_words(check, container, path);
  check_ports(check, container, path);
  check_resources(check, container, path);
  check_mounts(check, container, path);
  check_probes(check, container, path);
}

}  // namespace stator::op
