// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <string>
#include <vector>

#include "stator/cli/command.h"
#include "stator/cli/terminal.h"
#include "stator/io/read_file.h"
#include "stator/json/value.h"
#include "stator/kube/object.h"
#include "stator/kube/yaml.h"
#include "stator/operator/convert.h"
#include "stator/operator/crds.h"
#include "stator/operator/render.h"

namespace stator::cli {
namespace {

std::string option(const Invocation& invocation, std::string_view flag, std::string_view fallback) {
  const auto it = invocation.options.find(flag);
  return it == invocation.options.end() ? std::string(fallback) : it->second;
}

op::Environment environment_of(const Invocation& invocation) {
  op::Environment environment;
  environment.has_grove = option(invocation, "--workload-provider", "component") == "grove";
  environment.namespace_default = option(invocation, "--namespace", "default");
  environment.discovery = option(invocation, "--discovery-backend", "kubernetes");
  environment.ingress_enabled = invocation.options.contains("--ingress");
  environment.ingress_host_suffix = option(invocation, "--ingress-host-suffix", "local");
  environment.gateway = option(invocation, "--gateway", "");
  environment.has_gateway = !environment.gateway.empty();
  return environment;
}

Result<std::vector<json::Value>> read_manifests(const Invocation& invocation) {
  std::vector<json::Value> manifests;
  if (invocation.positionals.size() < 2) {
    return Error(Code::kInvalidArgument,
                 fmt::format("name the manifests: stator operator {} FILE… (- for standard input)",
                             invocation.positionals.front()));
  }
  for (size_t i = 1; i < invocation.positionals.size(); ++i) {
    const std::string& path = invocation.positionals[i];
    STATOR_TRY(const std::string text, io::read_file(path == "-" ? "/dev/stdin" : path));
    STATOR_TRY(auto documents, kube::parse_yaml(text, path));
    for (json::Value& document : documents) {
      manifests.push_back(std::move(document));
    }
  }
  return manifests;
}

void print_list(std::vector<json::Value> objects, bool as_json) {
  json::Value list = json::Value::object();
  list["apiVersion"] = "v1";
  list["kind"] = "List";
  list["items"] = json::Value::array(std::move(objects));
  print(as_json ? json::to_pretty_text(list) + "\n" : kube::to_yaml(list));
}

Status run_render_manifests(const Invocation& invocation) {
  STATOR_TRY(const auto manifests, read_manifests(invocation));
  STATOR_TRY(auto objects, op::render(manifests, environment_of(invocation)));
  print_list(std::move(objects), invocation.options.contains("--json"));
  return {};
}

Status run_convert(const Invocation& invocation) {
  STATOR_TRY(const auto manifests, read_manifests(invocation));
  const std::string to = option(invocation, "--to", "v1beta1");
  std::vector<json::Value> converted;
  for (const json::Value& manifest : manifests) {
    if (!manifest.text_at({"apiVersion"}).starts_with("nvidia.com/")) {
      converted.push_back(manifest);
      continue;
    }
    STATOR_TRY(json::Value object, op::convert(manifest, "nvidia.com/" + to));
    converted.push_back(std::move(object));
  }
  print_list(std::move(converted), invocation.options.contains("--json"));
  return {};
}

Status run_crds(const Invocation& invocation) {
  const auto crds = op::make_crds({.webhook_service = option(invocation, "--webhook-service", "")});
  if (invocation.options.contains("--json")) {
    print_list(crds, true);
  } else {
    print(kube::to_yaml_documents(crds));
  }
  return {};
}

}  // namespace

Status run_operator(Invocation& invocation) {
  const std::string_view action =
      invocation.positionals.empty() ? std::string_view() : invocation.positionals.front();
  if (action == "render") {
    return run_render_manifests(invocation);
  }
  if (action == "convert") {
    return run_convert(invocation);
  }
  if (action == "crds") {
    return run_crds(invocation);
  }
  return Error(Code::kInvalidArgument,
               fmt::format("'{}' is no action of the operator: render, convert or crds", action));
}

}  // namespace stator::cli
