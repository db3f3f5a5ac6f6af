// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "stator/kube/object.h"
#include "stator/operator/convert.h"
#include "stator/operator/names.h"
#include "stator/operator/objects.h"
#include "stator/operator/pod_template.h"

namespace stator::op {
namespace {

using json::Value;

Value service_port(std::string_view name, int port, Value target) {
  Value entry = Value::object();
  entry["name"] = name;
  entry["port"] = port;
  entry["targetPort"] = std::move(target);
  entry["protocol"] = "TCP";
  return entry;
}

Value make_service(const ServiceContext& context) {
  const Graph& graph = context.graph;
  const Component& component = context.component;
  Value service = kube::make_object(kube::resource_of("Service"), {graph.space(), context.name});
  Value& labels = service["metadata"]["labels"];
  labels[kLabelGraph] = label_value(graph.name());
  labels[kLabelComponent] = component.name();
  labels[kLabelRuntimeNamespace] = label_value(graph.runtime_namespace_of(component));
  if (graph.discovery() != "etcd") {
    labels[kLabelDiscoveryBackend] = "kubernetes";
    labels[kLabelDiscoveryEnabled] = "true";
  }
  Value& selector = service["spec"]["selector"];
  selector[kLabelComponent] = component.name();
  selector[kLabelRuntimeNamespace] = label_value(graph.runtime_namespace_of(component));
  if (!component.type().empty()) {
    labels[kLabelComponentType] = component.type();
    selector[kLabelComponentType] = component.type();
  }
  if (!context.worker_hash.empty()) {
    labels[kLabelWorkerHash] = context.worker_hash;
    selector[kLabelWorkerHash] = context.worker_hash;
  }
  Value& ports = service["spec"]["ports"];
  if (component.type() == "frontend") {
    ports.push_back(service_port("http", kPortHttp, "http"));
  } else if (component.type() == "epp") {
    Value port = service_port("grpc", kPortEppGrpc, kPortEppGrpc);
    port["appProtocol"] = "http2";
    ports.push_back(std::move(port));
  } else {
    ports.push_back(service_port("system", kPortSystem, "system"));
  }
  return service;
}

Value make_model_service(const ServiceContext& context, std::string_view model) {
  Value service = kube::make_object(kube::resource_of("Service"),
                                    {context.graph.space(), model_service_name(model)});
  service["metadata"]["labels"][kLabelBaseModelHash] = kube::short_hash(model);
  service["metadata"]["annotations"]["nvidia.com/dynamo-base-model"] = model;
  Value& spec = service["spec"];
  spec["clusterIP"] = "None";
  spec["publishNotReadyAddresses"] = false;
  spec["selector"][kLabelBaseModelHash] = kube::short_hash(model);
  spec["ports"].push_back(service_port("system", kPortSystem, kPortSystem));
  return service;
}

struct Entry {
  bool enabled = false;
  std::string host;
  std::string tls_secret;
  std::string class_name;
  std::string mesh_gateway;  ///< of a VirtualService; empty: an Ingress
  Value labels = Value::object();
  Value annotations = Value::object();
};

Entry read_entry(const ServiceContext& context) {
  const Environment& environment = context.environment;
  Entry entry{.enabled = environment.ingress_enabled,
              .tls_secret = environment.ingress_tls_secret,
              .class_name = environment.ingress_class};
  std::string prefix;
  std::string base = dns_name(context.graph.name());
  std::string suffix = environment.ingress_host_suffix;
  Value own;
  if (const std::string_view text = context.graph.annotation(kAnnotationIngress); !text.empty()) {
    own = json::parse(text).value_or(Value());
  } else {
    own = preserved_ingress(context.graph.object(), context.component.name());
  }
  if (own.is_object()) {
    const auto take = [&](std::initializer_list<std::string_view> path, std::string& into) {
      if (const std::string_view text = own.text_at(path); !text.empty()) {
        into = text;
      }
    };
    entry.enabled = kube::bool_at(own, {"enabled"}, false);
    take({"hostPrefix"}, prefix);
    take({"host"}, base);
    take({"hostSuffix"}, suffix);
    take({"tls", "secretName"}, entry.tls_secret);
    take({"ingressControllerClassName"}, entry.class_name);
    if (kube::bool_at(own, {"useVirtualService"}, false)) {
      take({"virtualServiceGateway"}, entry.mesh_gateway);
    }
    entry.labels = own.find("labels") == nullptr ? Value::object() : *own.find("labels");
    entry.annotations =
        own.find("annotations") == nullptr ? Value::object() : *own.find("annotations");
  }
  entry.host = fmt::format("{}{}.{}", prefix, base, suffix.empty() ? "local" : suffix);
  return entry;
}

void decorate(const ServiceContext& context, const Entry& entry, Value& object) {
  object["metadata"]["labels"] = entry.labels;
  object["metadata"]["labels"][kLabelGraph] = label_value(context.graph.name());
  object["metadata"]["labels"][kLabelComponent] = context.component.name();
  if (entry.annotations.size() > 0) {
    object["metadata"]["annotations"] = entry.annotations;
  }
}

Value make_ingress(const ServiceContext& context, const Entry& entry) {
  Value ingress =
      kube::make_object(kube::resource_of("Ingress"), {context.graph.space(), context.name});
  decorate(context, entry, ingress);
  Value& spec = ingress["spec"];
  if (!entry.class_name.empty()) {
    spec["ingressClassName"] = entry.class_name;
  }
  if (!entry.tls_secret.empty()) {
    Value tls = Value::object();
    tls["hosts"].push_back(entry.host);
    tls["secretName"] = entry.tls_secret;
    spec["tls"].push_back(std::move(tls));
  }
  Value path = Value::object();
  path["path"] = "/";
  path["pathType"] = "Prefix";
  kube::at(path, {"backend", "service"})["name"] = context.name;
  kube::at(path, {"backend", "service", "port"})["number"] = kPortHttp;
  Value rule = Value::object();
  rule["host"] = entry.host;
  rule["http"]["paths"].push_back(std::move(path));
  spec["rules"].push_back(std::move(rule));
  return ingress;
}

Value make_virtual_service(const ServiceContext& context, const Entry& entry) {
  Value service =
      kube::make_object(kube::resource_of("VirtualService"), {context.graph.space(), context.name});
  decorate(context, entry, service);
  service["spec"]["hosts"].push_back(entry.host);
  service["spec"]["gateways"].push_back(entry.mesh_gateway);
  Value http = json::parse(R"({"match":[{"uri":{"prefix":"/"}}]})").value();
  Value route = Value::object();
  route["destination"]["host"] = context.name;
  kube::at(route, {"destination", "port"})["number"] = kPortHttp;
  http["route"].push_back(std::move(route));
  service["spec"]["http"].push_back(std::move(http));
  return service;
}

Value make_http_route(const ServiceContext& context, const Entry& entry) {
  const std::string& gateway = context.environment.gateway;
  const size_t slash = gateway.find('/');
  Value route =
      kube::make_object(kube::resource_of("HTTPRoute"), {context.graph.space(), context.name});
  decorate(context, entry, route);
  Value parent = Value::object();
  parent["name"] = gateway.substr(slash == std::string::npos ? 0 : slash + 1);
  if (slash != std::string::npos) {
    parent["namespace"] = gateway.substr(0, slash);
  }
  route["spec"]["parentRefs"].push_back(std::move(parent));
  route["spec"]["hostnames"].push_back(entry.host);
  Value backend = Value::object();
  backend["name"] = context.name;
  backend["port"] = kPortHttp;
  Value rule = json::parse(R"({"matches":[{"path":{"type":"PathPrefix","value":"/"}}]})").value();
  rule["backendRefs"].push_back(std::move(backend));
  rule["timeouts"]["request"] = "300s";
  route["spec"]["rules"].push_back(std::move(rule));
  return route;
}

}  // namespace

std::vector<Value> make_services(const ServiceContext& context) {
  std::vector<Value> made;
  const std::string_view type = context.component.type();
  const bool is_found_by_service = context.graph.discovery() != "etcd";
  if (type == "frontend" || type == "epp" || is_found_by_service) {
    made.push_back(make_service(context));
  }
  const std::string_view model = context.component.spec().text_at({"modelRef", "name"});
  if (!model.empty()) {
    made.push_back(make_model_service(context, model));
  }
  return made;
}

std::vector<Value> make_entries(const ServiceContext& context) {
  std::vector<Value> made;
  if (context.component.type() != "frontend") {
    return made;
  }
  const Entry entry = read_entry(context);
  if (entry.enabled && !entry.mesh_gateway.empty()) {
    made.push_back(make_virtual_service(context, entry));
  } else if (entry.enabled) {
    made.push_back(make_ingress(context, entry));
  }
  if (context.environment.has_gateway && !context.environment.gateway.empty()) {
    made.push_back(make_http_route(context, entry));
  }
  return made;
}

}  // namespace stator::op
