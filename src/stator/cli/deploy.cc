// SPDX-License-Identifier: Apache-2.0
#include "stator/cli/deploy.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <string>
#include <vector>

#include "stator/app/cluster_client.h"
#include "stator/app/signals.h"
#include "stator/app/terminal.h"
#include "stator/kube/object.h"
#include "stator/kube/yaml.h"
#include "stator/operator/diff.h"
#include "stator/operator/names.h"
#include "stator/operator/render.h"
#include "stator/operator/sizing.h"

namespace stator::cli {
namespace {

using namespace std::chrono_literals;
using json::Value;

/// "Qwen/Qwen3-32B" → "qwen3-32b": what DNS allows.
std::string name_from(std::string_view model) {
  const size_t slash = model.find_last_of('/');
  std::string name = op::lower(slash == std::string_view::npos ? model : model.substr(slash + 1));
  std::ranges::replace_if(
      name, [](char c) { return !((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9')); }, '-');
  while (!name.empty() && name.back() == '-') {
    name.pop_back();
  }
  return name.substr(0, 30);
}

Status add_number(const Invocation& invocation, std::string_view flag, Value& into) {
  const std::string text = option_of(invocation, flag, "");
  if (text.empty()) {
    return {};
  }
  double number = 0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (failed != std::errc() || end != text.data() + text.size() || number <= 0) {
    return Error(Code::kInvalidArgument,
                 fmt::format("{} '{}': write a number above 0", flag, text));
  }
  into = Value::number(text);
  return {};
}

/// The command line as a DynamoGraphDeploymentRequest.
Result<Value> read_request(const Invocation& invocation, const std::string& space) {
  const std::string model = option_of(invocation, "--model", "");
  if (model.empty()) {
    return Error(Code::kInvalidArgument,
                 "deploy needs --model: a name as on the hub, or a folder with config.json");
  }
  Value request = kube::make_object(kube::resource_of("DynamoGraphDeploymentRequest"),
                                    {space, option_of(invocation, "--name", name_from(model))});
  Value& spec = request["spec"];
  spec["model"] = model;
  spec["backend"] = option_of(invocation, "--backend", "auto");
  const std::pair<std::string_view, std::pair<std::string_view, std::string_view>> kNumbers[] = {
      {"--ttft", {"sla", "ttft"}},           {"--itl", {"sla", "itl"}},
      {"--isl", {"workload", "isl"}},        {"--osl", {"workload", "osl"}},
      {"--gpus", {"hardware", "totalGpus"}}, {"--gpus-per-node", {"hardware", "numGpusPerNode"}}};
  for (const auto& [flag, path] : kNumbers) {
    Value number;
    STATOR_CHECK(add_number(invocation, flag, number));
    if (!number.is_null()) {
      kube::at(spec, {path.first})[path.second] = std::move(number);
    }
  }
  if (const std::string sku = option_of(invocation, "--gpu", ""); !sku.empty()) {
    kube::at(spec, {"hardware"})["gpuSku"] = sku;
  }
  if (const std::string claim = option_of(invocation, "--model-cache", ""); !claim.empty()) {
    kube::at(spec, {"modelCache"})["pvcName"] = claim;
  }
  return request;
}

Result<op::Hardware> find_hardware(const Value& request, kube::Client* client) {
  const bool is_given = !request.text_at({"spec", "hardware", "gpuSku"}).empty() &&
                        request.find_at({"spec", "hardware", "totalGpus"}) != nullptr;
  if (is_given) {
    return op::hardware_of(request, {});
  }
  if (client == nullptr) {
    return Error(Code::kInvalidArgument,
                 "without a cluster to look at, say what there is: --gpu h100_sxm --gpus 8");
  }
  std::vector<Value> nodes;
  STATOR_TRY(const std::string version,
             client->list(kube::resource_of("Node"), {}, [&](Value node) -> Status {
               nodes.push_back(std::move(node));
               return {};
             }));
  auto found = op::discover_hardware(nodes);
  if (!found) {
    return Error(Code::kInvalidArgument,
                 fmt::format("{} (--gpu, --gpus)", found.error().message()));
  }
  return op::hardware_of(request, *found);
}

std::string comment(std::string_view text) {
  std::string out = "# ";
  size_t column = 0;
  for (const char c : text) {
    if (c == ' ' && column > 110) {
      out += "\n# ";
      column = 0;
      continue;
    }
    out.push_back(c == '\n' ? ' ' : c);
    ++column;
  }
  return out + "\n";
}

/// Until the graph is ready, with one line for each change.
Status wait_until_ready(const Invocation& invocation, kube::Client& client, const Value& graph) {
  STATOR_TRY(const int64_t limit, app::whole_option(invocation, "--wait", 600, 86400));
  Signals signals;
  std::string last;
  const kube::Resource& resource = kube::resource_of("DynamoGraphDeployment");
  for (int64_t second = 0; second < limit; ++second) {
    STATOR_TRY(const Value live, client.get(resource, kube::name_of(graph)));
    const bool is_current =
        kube::int_at(live, {"status", "observedGeneration"}, -1) >= kube::generation_of(live);
    std::string line = is_current ? std::string(live.text_at({"status", "state"})) : "waiting";
    for (const Value& condition : live.at("status").at("conditions").elements()) {
      if (condition.text_at({"type"}) == "Ready") {
        line += fmt::format(": {}", condition.text_at({"message"}));
      }
    }
    if (line != last) {
      print_status(line + "\n");
      last = line;
    }
    if (is_current && live.text_at({"status", "state"}) == "successful") {
      return {};
    }
    if (is_current && live.text_at({"status", "state"}) == "failed") {
      return Error(Code::kInvalidArgument, line);
    }
    if (signals.wait_for(1s)) {
      return Error(Code::kCancelled, "interrupted; the graph goes on being deployed");
    }
  }
  return Error(Code::kDeadline, fmt::format("not ready after {} s: kubectl describe dgd {}", limit,
                                            kube::name_of(graph).name));
}

}  // namespace

Status run_deploy(Invocation& invocation) {
  SystemClock clock;
  Metrics metrics;
  const bool dry_run = invocation.options.contains("--dry-run");
  auto client = app::make_cluster_client(invocation, "stator-deploy", clock, metrics);
  const bool needs_cluster = !dry_run || !option_of(invocation, "--kubeconfig", "").empty();
  if (!client && needs_cluster) {
    return std::move(client.error());
  }
  kube::Client* cluster = client ? client->get() : nullptr;
  const std::string space =
      option_of(invocation, "--namespace", cluster == nullptr ? "default" : cluster->space());
  STATOR_TRY(const Value request, read_request(invocation, space));
  STATOR_TRY(const op::Hardware hardware, find_hardware(request, cluster));
  STATOR_TRY(op::Sizing sizing, op::size_request(request, hardware));
  if (const std::string name = option_of(invocation, "--name", ""); !name.empty()) {
    sizing.graph["metadata"]["name"] = name;
  }
  STATOR_TRY(const Value admitted, op::admit(sizing.graph, {}));
  if (invocation.options.contains("--json")) {
    Value out = Value::object();
    out["why"] = sizing.why;
    out["sla_met"] = sizing.goal_met;
    out["estimate"] = sizing.selected;
    out["manifest"] = sizing.graph;
    print(json::to_pretty_text(out) + "\n");
  } else if (dry_run) {
    print(comment(sizing.why) + kube::to_yaml(sizing.graph));
  } else {
    print_status(sizing.why + "\n");
  }
  if (dry_run) {
    if (cluster != nullptr) {
      STATOR_TRY(const auto diffs, op::diff_with_cluster(*cluster, {sizing.graph}));
      print_status(diffs.empty() ? std::string("nothing would change\n") : op::to_text(diffs));
    }
    return {};
  }
  const kube::Resource& resource = kube::resource_of("DynamoGraphDeployment");
  STATOR_TRY(const Value made,
             cluster->apply(resource, sizing.graph, {.manager = "stator-deploy"}));
  print_status(fmt::format("DynamoGraphDeployment {} applied\n", kube::name_of(made).to_string()));
  return wait_until_ready(invocation, *cluster, sizing.graph);
}

}  // namespace stator::cli
