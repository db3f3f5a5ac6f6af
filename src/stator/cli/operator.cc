// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <iterator>
#include <string>
#include <vector>

#include "stator/app/cluster_client.h"
#include "stator/app/signals.h"
#include "stator/app/terminal.h"
#include "stator/cli/command.h"
#include "stator/core/log.h"
#include "stator/core/random.h"
#include "stator/grove/controller.h"
#include "stator/io/read_file.h"
#include "stator/json/value.h"
#include "stator/kube/object.h"
#include "stator/kube/yaml.h"
#include "stator/net/thread.h"
#include "stator/operator/checkpoint.h"
#include "stator/operator/controller.h"
#include "stator/operator/convert.h"
#include "stator/operator/crds.h"
#include "stator/operator/diff.h"
#include "stator/operator/model.h"
#include "stator/operator/render.h"
#include "stator/operator/topology_labels.h"
#include "stator/operator/warnings.h"
#include "stator/operator/webhooks.h"

namespace stator::cli {
namespace {

op::Environment environment_of(const Invocation& invocation) {
  op::Environment environment;
  environment.has_grove = option_of(invocation, "--workload-provider", "component") == "grove";
  environment.namespace_default = option_of(invocation, "--namespace", "default");
  environment.discovery = option_of(invocation, "--discovery-backend", "kubernetes");
  environment.ingress_enabled = invocation.options.contains("--ingress");
  environment.ingress_host_suffix = option_of(invocation, "--ingress-host-suffix", "local");
  environment.gateway = option_of(invocation, "--gateway", "");
  environment.has_gateway = !environment.gateway.empty();
  return environment;
}

/// What a list holds, as `kubectl get -o yaml` writes one; anything else is itself.
void add_items(json::Value document, std::vector<json::Value>& manifests) {
  json::Value* items = document.find("items");
  if (!document.text_at({"kind"}).ends_with("List") || items == nullptr || !items->is_array()) {
    manifests.push_back(std::move(document));
    return;
  }
  for (json::Value& item : *items->mutable_elements()) {
    add_items(std::move(item), manifests);
  }
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
      add_items(std::move(document), manifests);
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
  for (const json::Value& manifest : manifests) {
    const bool is_old = manifest.text_at({"apiVersion"}) == "nvidia.com/v1alpha1";
    const Result<json::Value> current =
        is_old ? op::convert(manifest, "nvidia.com/v1beta1") : Result<json::Value>(manifest);
    for (const std::string& warning : op::warnings_for(current ? *current : manifest)) {
      print_status(fmt::format("warning: {}\n", warning));
    }
  }
  print_list(std::move(objects), invocation.options.contains("--json"));
  return {};
}

Status run_convert(const Invocation& invocation) {
  STATOR_TRY(const auto manifests, read_manifests(invocation));
  const std::string to = option_of(invocation, "--to", "v1beta1");
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

/// The manifests and what the operator would make of them, against what is there.
Result<std::vector<op::ObjectDiff>> find_diffs(const Invocation& invocation) {
  SystemClock clock;
  Metrics metrics;
  STATOR_TRY(auto client, app::make_cluster_client(invocation, "stator-diff", clock, metrics));
  op::Environment base = environment_of(invocation);
  base.namespace_default = option_of(invocation, "--namespace", client->space());
  const op::Environment environment = op::ClusterFacts(*client, base, clock).environment();
  STATOR_TRY(auto manifests, read_manifests(invocation));
  STATOR_TRY(auto made, op::render(manifests, environment));
  std::vector<json::Value> objects;
  for (json::Value& manifest : manifests) {
    if (manifest.text_at({"apiVersion"}).starts_with("nvidia.com/")) {
      if (manifest.text_at({"metadata", "namespace"}).empty()) {
        manifest["metadata"]["namespace"] = environment.namespace_default;
      }
      objects.push_back(std::move(manifest));
    }
  }
  std::ranges::move(made, std::back_inserter(objects));
  return op::diff_with_cluster(*client, objects);
}

/// As diff(1): status 1 when something would change, 2 when that cannot be told.
Status run_diff(const Invocation& invocation) {
  const auto diffs = find_diffs(invocation);
  if (!diffs) {
    return Error(Code::kInvalidArgument, diffs.error().message());
  }
  if (invocation.options.contains("--json")) {
    print(json::to_pretty_text(op::to_json(*diffs)) + "\n");
  } else {
    print(op::to_text(*diffs));
  }
  if (!diffs->empty()) {
    return Error(Code::kUnavailable, fmt::format("{} objects would change", diffs->size()));
  }
  return {};
}

/// Written to the cluster, by an account that may do so: the operator's own may not.
Status apply_crds(const Invocation& invocation, const std::vector<json::Value>& crds) {
  SystemClock clock;
  Metrics metrics;
  STATOR_TRY(auto client, app::make_cluster_client(invocation, "stator-crds", clock, metrics));
  for (const json::Value& crd : crds) {
    const std::string name = kube::name_of(crd).name;
    STATOR_TRY(const json::Value applied,
               client->apply(kube::resource_of("CustomResourceDefinition"), crd,
                             {.manager = "stator-crds"}),
               name);
    print(fmt::format("{} applied\n", kube::name_of(applied).name));
  }
  return {};
}

Status run_crds(const Invocation& invocation) {
  const auto crds =
      op::make_crds({.webhook_service = option_of(invocation, "--webhook-service", "")});
  if (invocation.options.contains("--apply")) {
    return apply_crds(invocation, crds);
  }
  if (invocation.options.contains("--json")) {
    print_list(crds, true);
  } else {
    print(kube::to_yaml_documents(crds));
  }
  return {};
}

/// "1/4": the second of four.
Status read_shard(const Invocation& invocation, op::ControllerOptions& options) {
  const std::string text = option_of(invocation, "--shard", "0/1");
  const size_t slash = text.find('/');
  const auto parse = [](std::string_view digits, uint32_t& number) {
    const auto [end, failed] =
        std::from_chars(digits.data(), digits.data() + digits.size(), number);
    return failed == std::errc() && end == digits.data() + digits.size();
  };
  if (slash == std::string::npos ||
      !parse(std::string_view(text).substr(0, slash), options.shard) ||
      !parse(std::string_view(text).substr(slash + 1), options.shards) || options.shards == 0 ||
      options.shard >= options.shards) {
    return Error(Code::kInvalidArgument,
                 fmt::format("--shard '{}': write I/N, as 0/4 to 3/4 for four operators", text));
  }
  if (options.shards > 1) {
    options.lease_name = fmt::format("stator-operator-{}-of-{}", options.shard, options.shards);
  }
  return {};
}

Result<std::unique_ptr<op::Webhooks>> start_webhooks(const Invocation& invocation,
                                                     kube::Client& client, op::ClusterFacts& facts,
                                                     const op::ControllerOptions& options,
                                                     Clock& clock, Metrics& metrics) {
  STATOR_TRY(const int32_t port, app::port_option(invocation, "--webhook-port", -1));
  if (port < 0) {
    return std::unique_ptr<op::Webhooks>();
  }
  op::WebhookConfig config;
  config.port = static_cast<uint16_t>(port);
  config.address.port = port;
  config.address.service = option_of(invocation, "--webhook-service", "");
  config.address.url = option_of(invocation, "--webhook-url", "");
  if (config.address.service.empty() == config.address.url.empty()) {
    return Error(Code::kInvalidArgument,
                 "--webhook-port: say how the API server gets there, with --webhook-service "
                 "NAMESPACE/NAME or --webhook-url https://HOST:PORT");
  }
  config.address.space = options.space;
  if (!options.space.empty()) {
    config.address.name = "stator-operator-" + options.space;
  }
  config.secret_space = options.lease_space;
  return op::Webhooks::start(client, facts, std::move(config), clock, metrics);
}

/// Models and adapters, checkpoints and places, beside the graphs.
Status add_models(const Invocation& invocation, const op::ControllerOptions& options,
                  kube::Client& client, Clock& clock, Metrics& metrics,
                  std::vector<op::Companion>& companions) {
  op::ModelOptions models{.space = options.space, .holder = options.holder};
  if (const std::string path = option_of(invocation, "--worker-token-file", ""); !path.empty()) {
    STATOR_TRY(models.token, io::read_file(path), "--worker-token-file");
    while (!models.token.empty() && models.token.back() == '\n') {
      models.token.pop_back();
    }
  }
  models.wanted = [shard = options.shard, shards = options.shards](std::string_view space) {
    return op::shard_of(space, shards) == shard;
  };
  companions.emplace_back([&client, models, &clock, &metrics]() -> std::shared_ptr<void> {
    return op::start_model_controller(client, models, clock, metrics);
  });
  companions.emplace_back([&client, models, &clock]() -> std::shared_ptr<void> {
    return op::start_checkpoint_controller(
        client, {.space = models.space, .holder = models.holder, .wanted = models.wanted}, clock);
  });
  companions.emplace_back([&client, models, &clock]() -> std::shared_ptr<void> {
    return op::start_topology_labeller(
        client, {.space = models.space, .holder = models.holder, .wanted = models.wanted}, clock);
  });
  return {};
}

Status run_controller(const Invocation& invocation) {
  using namespace std::chrono_literals;
  Signals signals;
  SystemClock clock;
  Metrics metrics;
  STATOR_TRY(auto client, app::make_cluster_client(invocation, "stator-operator", clock, metrics));
  STATOR_TRY(const int32_t health_port, app::port_option(invocation, "--health-port", -1));
  op::ControllerOptions options;
  options.space = option_of(invocation, "--namespace", "");
  options.lease_space = option_of(invocation, "--lease-namespace",
                                  options.space.empty() ? client->space() : options.space);
  options.holder = fmt::format("stator-{:x}", Random::from_entropy().below(1ULL << 48));
  STATOR_TRY(const int64_t lease, app::whole_option(invocation, "--lease-seconds", 15, 3600));
  options.lease_duration = std::chrono::seconds(std::max<int64_t>(lease, 3));
  STATOR_CHECK(read_shard(invocation, options));
  op::ClusterFacts facts(*client, environment_of(invocation), clock);
  STATOR_TRY(auto webhooks, start_webhooks(invocation, *client, facts, options, clock, metrics));
  std::vector<op::Companion> companions;
  if (option_of(invocation, "--gangs", "own") == "own") {
    grove::GangOptions gangs{.space = options.space, .holder = options.holder};
    gangs.wanted = [shard = options.shard, shards = options.shards](std::string_view space) {
      return op::shard_of(space, shards) == shard;
    };
    gangs.has_kai = [&facts] { return facts.environment().has_kai; };
    gangs.has_volcano = [&facts] { return facts.environment().has_volcano; };
    companions.emplace_back([&client, gangs, &clock, &metrics]() -> std::shared_ptr<void> {
      return grove::start_gang_controller(*client, gangs, clock, metrics);
    });
  }
  STATOR_CHECK(add_models(invocation, options, *client, clock, metrics, companions));
  auto controller = op::make_controller(*client, facts, std::move(options), clock, metrics,
                                        std::move(companions));
  STATOR_TRY(const auto health,
             app::start_health_server(
                 health_port, [&controller] { return controller->is_ready(); }, clock, metrics));
  Status outcome;
  std::atomic<bool> ended{false};
  net::Thread thread("operator", [&] {
    outcome = controller->run();
    ended.store(true);
  });
  while (!ended.load() && !signals.wait_for(200ms)) {
  }
  controller->stop();
  thread.join();
  client->stop();
  webhooks.reset();
  log::info("operator", "stopped", {{"writes", client->writes()}});
  controller.reset();
  return outcome ? Status() : Status(std::move(outcome.error()));
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
  if (action == "diff") {
    return run_diff(invocation);
  }
  if (action == "crds") {
    return run_crds(invocation);
  }
  if (action.empty()) {
    return run_controller(invocation);
  }
  return Error(
      Code::kInvalidArgument,
      fmt::format("'{}' is no action of the operator: render, diff, convert or crds; none runs it",
                  action));
}

}  // namespace stator::cli
