// SPDX-License-Identifier: Apache-2.0
#include "stator/operator/type_defaults.h"

#include <fmt/format.h>

#include "stator/kube/object.h"
#include "stator/operator/names.h"

namespace stator::op {
namespace {

using json::Value;

Value literal(std::string_view text) {
  return json::parse(text).value();
}

Value http_probe(std::string_view path, std::string_view port, int delay, int period) {
  Value probe = Value::object();
  probe["httpGet"]["path"] = path;
  probe["httpGet"]["port"] = port;
  if (delay > 0) {
    probe["initialDelaySeconds"] = delay;
  }
  probe["periodSeconds"] = period;
  return probe;
}

Value with_limits(Value probe, int timeout, int failures) {
  probe["timeoutSeconds"] = timeout;
  probe["failureThreshold"] = failures;
  return probe;
}

Value port(std::string_view name, int number) {
  Value entry = Value::object();
  entry["name"] = name;
  entry["containerPort"] = number;
  entry["protocol"] = "TCP";
  return entry;
}

Value list_of(std::initializer_list<std::string_view> words) {
  Value list = Value::array();
  for (const std::string_view word : words) {
    list.push_back(word);
  }
  return list;
}

Value common_env(const PodContext& context) {
  const Graph& graph = context.graph;
  Value env = Value::array();
  env.push_back(env_entry("DYN_NAMESPACE", graph.runtime_namespace_of(context.component)));
  env.push_back(env_entry("DYN_COMPONENT", context.component.type()));
  env.push_back(env_entry("DYN_PARENT_DGD_K8S_NAME", graph.name()));
  env.push_back(env_entry("DYN_PARENT_DGD_K8S_NAMESPACE", graph.space()));
  env.push_back(env_field("POD_NAME", "metadata.name"));
  env.push_back(env_field("POD_NAMESPACE", "metadata.namespace"));
  env.push_back(env_field("POD_UID", "metadata.uid"));
  const std::string discovery = graph.discovery();
  if (discovery != "etcd") {
    env.push_back(env_entry("DYN_DISCOVERY_BACKEND", "kubernetes"));
  }
  if (graph.annotation(kAnnotationDiscoveryMode) == "container") {
    env.push_back(env_entry("CONTAINER_NAME", "main"));
    env.push_back(env_entry("DYN_KUBE_DISCOVERY_MODE", "container"));
  }
  const Environment& environment = context.environment;
  for (const auto& [name, value] :
       {std::pair<std::string_view, const std::string&>("NATS_SERVER", environment.nats_server),
        {"ETCD_ENDPOINTS", environment.etcd_endpoints},
        {"MODEL_EXPRESS_URL", environment.model_express_url},
        {"PROMETHEUS_ENDPOINT", environment.prometheus_endpoint}}) {
    if (!value.empty()) {
      env.push_back(env_entry(name, value));
    }
  }
  return env;
}

void append(Value& list, Value more) {
  for (Value& element : *more.mutable_elements()) {
    list.push_back(std::move(element));
  }
}

Value frontend_env(const PodContext& context) {
  Value env = Value::array();
  env.push_back(env_entry("DYNAMO_PORT", std::to_string(kPortHttp)));
  env.push_back(env_entry("DYN_HTTP_PORT", std::to_string(kPortHttp)));
  env.push_back(
      env_entry("DYN_NAMESPACE_PREFIX", context.graph.runtime_namespace_of(context.component)));
  return env;
}

void add_frontend(const PodContext& context, Value& container) {
  const Value* main = context.component.main();
  const bool ours = main != nullptr && is_stator_image(main->text_at({"image"}));
  if (ours) {
    container["command"] = list_of({"stator", "frontend"});
    container["args"] = list_of(
        {"--host", "0.0.0.0", "--port", "8000", "--discovery", "kubernetes:$(POD_NAMESPACE)"});
  } else {
    container["command"] = list_of({"python3"});
    container["args"] = list_of({"-m", "dynamo.frontend"});
  }
  container["ports"].push_back(port("http", kPortHttp));
  container["livenessProbe"] = with_limits(http_probe("/live", "http", 15, 10), 1, 3);
  container["readinessProbe"] = with_limits(http_probe("/health", "http", 10, 10), 3, 3);
  append(container["env"], frontend_env(context));
}

/// Liveness fails three times before a restart: one lost answer is no reason to lose the KV cache.
void add_system_probes(Value& container) {
  container["startupProbe"] = with_limits(http_probe("/live", "system", 0, 10), 5, 720);
  container["livenessProbe"] = with_limits(http_probe("/live", "system", 0, 5), 4, 3);
  container["readinessProbe"] = with_limits(http_probe("/health", "system", 0, 10), 4, 3);
}

void add_worker(const PodContext& context, Value& container) {
  container["ports"].push_back(port("system", kPortSystem));
  container["ports"].push_back(port("nixl", kPortNixl));
  add_system_probes(container);
  Value& env = container["env"];
  env.push_back(env_entry("DYN_SYSTEM_ENABLED", "true"));
  env.push_back(env_entry("DYN_SYSTEM_USE_ENDPOINT_HEALTH_STATUS", "[\"generate\"]"));
  env.push_back(env_entry("DYN_SYSTEM_PORT", std::to_string(kPortSystem)));
  env.push_back(env_entry("DYN_HEALTH_CHECK_ENABLED", "false"));
  env.push_back(env_entry("NIXL_TELEMETRY_ENABLE", "n"));
  env.push_back(env_entry("NIXL_TELEMETRY_EXPORTER", "prometheus"));
  env.push_back(env_entry("NIXL_TELEMETRY_PROMETHEUS_PORT", std::to_string(kPortNixl)));
  env.push_back(env_entry("DYN_FORWARDPASS_METRIC_PORT", std::to_string(kPortForwardPass)));
  if (!context.worker_hash.empty()) {
    env.push_back(env_entry("DYN_NAMESPACE_WORKER_SUFFIX", context.worker_hash));
  }
}

void add_planner(Value& container) {
  container["ports"].push_back(port("metrics", kPortPlannerMetrics));
  container["ports"].push_back(port("system", kPortSystem));
  add_system_probes(container);
  container["env"].push_back(
      env_entry("PLANNER_PROMETHEUS_PORT", std::to_string(kPortPlannerMetrics)));
  container["env"].push_back(env_entry("DYN_SYSTEM_PORT", std::to_string(kPortSystem)));
}

void add_epp(const PodContext& context, Value& container) {
  const Graph& graph = context.graph;
  const Value* main = context.component.main();
  const bool ours = main != nullptr && is_stator_image(main->text_at({"image"}));
  container.erase("command");
  container["args"] =
      list_of({"--pool-name", fmt::format("{}-pool", graph.name()), "--pool-namespace",
               graph.space(), "--pool-group", "inference.networking.k8s.io", "--grpc-port", "9002",
               "--grpc-health-port", "9003", "--config-file", "/etc/epp/epp-config-dynamo.yaml"});
  if (ours) {  // gateways encrypt; the other pickers do both by default
    container["command"] = list_of({"stator", "epp"});
    append(container["args"], list_of({"--secure-serving", "--health-port", "9090"}));
  }
  container["ports"].push_back(port("grpc", kPortEppGrpc));
  container["ports"].push_back(port("grpc-health", kPortEppHealth));
  container["ports"].push_back(port("metrics", kPortSystem));
  Value probe =
      literal(R"({"grpc":{"port":9003,"service":"inference-extension"},"periodSeconds":10})");
  Value delayed = probe;
  delayed["initialDelaySeconds"] = 5;
  container["livenessProbe"] = delayed;
  container["readinessProbe"] = delayed;
  probe["failureThreshold"] = 180;
  container["startupProbe"] = probe;
  Value& env = container["env"];
  env.push_back(env_entry("DYN_ENFORCE_DISAGG", "false"));
  env.push_back(env_entry("USE_STREAMING", "true"));
  env.push_back(env_entry("DYN_NAMESPACE_PREFIX", graph.runtime_namespace_of(context.component)));
  container["volumeMounts"] =
      literal(R"([{"name":"epp-config","mountPath":"/etc/epp","readOnly":true}])");
}

}  // namespace

Value env_entry(std::string_view name, std::string_view value) {
  Value entry = Value::object();
  entry["name"] = name;
  entry["value"] = value;
  return entry;
}

Value env_field(std::string_view name, std::string_view path) {
  Value entry = Value::object();
  entry["name"] = name;
  kube::at(entry, {"valueFrom", "fieldRef"})["fieldPath"] = path;
  return entry;
}

Value default_container(const PodContext& context) {
  Value container = Value::object();
  container["name"] = "main";
  container["command"] = list_of({"/bin/sh", "-c"});
  container["env"] = common_env(context);
  const std::string_view type = context.component.type();
  if (type == "frontend") {
    add_frontend(context, container);
  } else if (is_worker_type(type)) {
    add_worker(context, container);
  } else if (type == "planner") {
    add_planner(container);
  } else if (type == "epp") {
    add_epp(context, container);
  }
  return container;
}

Value frontend_sidecar_defaults(const PodContext& context) {
  Value container = Value::object();
  container["env"] = common_env(context);
  append(container["env"], frontend_env(context));
  container["ports"].push_back(port("http", kPortHttp));
  container["livenessProbe"] = with_limits(http_probe("/live", "http", 15, 10), 1, 3);
  container["readinessProbe"] = with_limits(http_probe("/health", "http", 10, 10), 3, 3);
  return container;
}

}  // namespace stator::op
