// SPDX-License-Identifier: Apache-2.0
#include "stator/operator/names.h"

#include <fmt/format.h>

#include <algorithm>

#include "stator/kube/object.h"
#include "stator/operator/ssh_secret.h"

namespace stator::op {

std::string lower(std::string_view text) {
  std::string out(text);
  std::ranges::transform(out, out.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  return out;
}

std::string dns_name(std::string_view name) {
  std::string out(name);
  std::ranges::replace(out, '.', '-');
  return out;
}

std::string ssh_secret_name(std::string_view graph) {
  return shortened(dns_name(graph), 50) + "-mpi-ssh";
}

std::string shortened(std::string_view name, size_t max) {
  return name.size() <= max ? std::string(name)
                            : fmt::format("{}-{}", name.substr(0, max - 9), kube::short_hash(name));
}

std::string label_value(std::string_view text) {
  return shortened(text, 63);
}

std::string runtime_namespace(std::string_view space, std::string_view graph, bool is_global) {
  return is_global ? "dynamo" : fmt::format("{}-{}", space, dns_name(graph));
}

std::string component_object_name(std::string_view graph, std::string_view component,
                                  std::string_view worker_hash) {
  std::string name = fmt::format("{}-{}", graph, lower(component));
  if (!worker_hash.empty()) {
    name += fmt::format("-{}", worker_hash);
  }
  return name;
}

std::string model_service_name(std::string_view base_model) {
  return fmt::format("dynamo-model-{}", kube::short_hash(base_model));
}

bool is_worker_type(std::string_view type) {
  return type == "worker" || type == "prefill" || type == "decode";
}

}  // namespace stator::op
