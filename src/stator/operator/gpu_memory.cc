// SPDX-License-Identifier: Apache-2.0
#include "stator/operator/gpu_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "stator/kube/object.h"
#include "stator/operator/names.h"
#include "stator/operator/type_defaults.h"

namespace stator::op {
namespace {

using json::Value;

constexpr std::string_view kClaim = "intrapod-shared-gpu";
constexpr std::string_view kServer = "gms-server";
constexpr std::string_view kServerModule = "gpu_memory_service.cli.server";
constexpr std::string_view kSocketEnv = "GMS_SOCKET_DIR";
constexpr std::string_view kPodVolume = "gms-intrapod-control";
constexpr std::string_view kPodPath = "/gms-intrapod-control";
constexpr std::string_view kHostVolume = "gms-shared";
constexpr std::string_view kHostPath = "/run/gms";
constexpr std::string_view kHostMount = "/run/gms/shared";
constexpr int kMasterPortStride = 100;
constexpr int kSideChannelPort = 5600;
constexpr int kKvEventPort = 20080;

Value named(std::string_view name) {
  Value made = Value::object();
  made["name"] = name;
  return made;
}

Value words(std::initializer_list<std::string_view> list) {
  Value made = Value::array();
  for (const std::string_view word : list) {
    made.push_back(word);
  }
  return made;
}

bool is_gpu(std::string_view resource) {
  return resource.ends_with("/gpu") || resource.starts_with("gpu.") ||
         resource.starts_with("nvidia.com/mig-");
}

/// The claim gives the GPUs: asked for twice they would be counted twice.
void drop_gpus(Value& container) {
  Value* resources = container.find("resources");
  for (const std::string_view section : {"limits", "requests"}) {
    Value* amounts = resources == nullptr ? nullptr : resources->find(section);
    if (amounts != nullptr && amounts->mutable_members() != nullptr) {
      std::erase_if(*amounts->mutable_members(),
                    [](const json::Member& amount) { return is_gpu(amount.key); });
    }
  }
}

void set_named(Value& list, Value entry) {
  if (Value* own = kube::find_named(&list, entry.text_at({"name"}))) {
    *own = std::move(entry);
  } else {
    list.push_back(std::move(entry));
  }
}

void drop_named(Value& list, std::string_view name) {
  if (list.mutable_elements() != nullptr) {
    std::erase_if(*list.mutable_elements(),
                  [&](const Value& entry) { return entry.text_at({"name"}) == name; });
  }
}

void tolerate_gpu_nodes(Value& pod_spec) {
  Value toleration = Value::object();
  toleration["key"] = "nvidia.com/gpu";
  toleration["operator"] = "Exists";
  toleration["effect"] = "NoSchedule";
  const Value& own = pod_spec.at("tolerations");
  const bool is_there = std::ranges::any_of(own.elements(), [](const Value& each) {
    return each.text_at({"key"}) == "nvidia.com/gpu" && each.text_at({"effect"}) == "NoSchedule";
  });
  if (!is_there) {
    pod_spec["tolerations"].push_back(std::move(toleration));
  }
}

void make_client_in_pod(Value& container) {
  drop_gpus(container);
  set_named(container["resources"]["claims"], named(kClaim));
  Value mount = named(kPodVolume);
  mount["mountPath"] = kPodPath;
  set_named(container["volumeMounts"], std::move(mount));
  set_named(container["env"], env_entry(kSocketEnv, kPodPath));
}

Value make_server_container(const Value& main) {
  Value server = named(kServer);
  server["image"] = main.at("image");
  server["command"] = words({"python3", "-m", kServerModule});
  make_client_in_pod(server);
  server["restartPolicy"] = "Always";  // it must not keep a pod alive whose engines have ended
  return server;
}

Value make_device_requests(const GpuMemory& memory, int64_t count) {
  Value request = named("gpu");
  Value& exactly = request["exactly"];
  exactly["deviceClassName"] = memory.device_class;
  exactly["allocationMode"] = "ExactCount";
  exactly["count"] = count;
  Value spec = Value::object();
  spec["devices"]["requests"].push_back(std::move(request));
  return spec;
}

/// The rendezvous of the second engine must not be the first one's.
void move_master_port(Value& engine, int number) {
  constexpr std::string_view kFlag = "--master-port";
  Value* args = engine.find("args");
  if (number == 0) {
    return;
  }
  if (args != nullptr && args->mutable_elements() != nullptr) {
    auto& all = *args->mutable_elements();
    for (size_t i = 0; i + 1 < all.size(); ++i) {
      int port = 0;
      const std::string_view text = all[i + 1].text();
      const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), port);
      if (all[i].text() == kFlag && failed == std::errc()) {
        all[i + 1] = std::to_string(port + number * kMasterPortStride);
        return;
      }
    }
  }
  engine["args"].push_back(kFlag);
  engine["args"].push_back(std::to_string(kPortRendezvous + number * kMasterPortStride));
}

Value make_engine(const Value& main, int number, int64_t nodes) {
  Value engine = main;
  const std::string name = fmt::format("engine-{}", number);
  const std::string port = fmt::format("system-{}", number);
  engine["name"] = name;
  Value only = named(port);
  only["containerPort"] = kPortSystem + number;
  only["protocol"] = "TCP";
  engine["ports"] = Value::array();
  engine["ports"].push_back(std::move(only));
  Value& env = engine["env"];
  for (const std::string_view gone :
       {"DYN_SYSTEM_USE_ENDPOINT_HEALTH_STATUS", "DYN_HEALTH_CHECK_ENABLED"}) {
    drop_named(env, gone);
  }
  const auto set = [&](std::string_view key, std::string_view value) {
    set_named(env, env_entry(key, value));
  };
  set("ENGINE_ID", std::to_string(number));
  set("CONTAINER_NAME", name);
  set("FAILOVER_LOCK_PATH", fmt::format("{}/failover.lock", kPodPath));
  set("DYN_SYSTEM_STARTING_HEALTH_STATUS", "notready");
  set("DYN_SYSTEM_PORT", std::to_string(kPortSystem + number));
  set("DYN_SYSTEM_ENABLED", "true");
  set("DYN_FORWARDPASS_METRIC_PORT", std::to_string(kPortForwardPass + number));
  set("DYN_VLLM_GMS_SHADOW_MODE", "true");
  set("VLLM_NIXL_SIDE_CHANNEL_PORT", std::to_string(kSideChannelPort + number));
  set("DYN_VLLM_KV_EVENT_PORT", std::to_string(kKvEventPort + number));
  if (nodes > 1) {
    set("NNODES", std::to_string(nodes));
  }
  move_master_port(engine, number);
  for (const std::string_view probe : {"startupProbe", "livenessProbe", "readinessProbe"}) {
    if (Value* own = engine.find(probe); own != nullptr && own->find("httpGet") != nullptr) {
      (*own)["httpGet"]["port"] = port;
    }
  }
  return engine;
}

/// A folder of the node that the pods of one rank see: their sockets and their lock.
void share_host_folder(int64_t rank, Value& pod_spec, Value& container) {
  Value volume = named(kHostVolume);
  volume["hostPath"]["path"] = kHostPath;
  volume["hostPath"]["type"] = "DirectoryOrCreate";
  set_named(pod_spec["volumes"], std::move(volume));
  Value mount = named(kHostVolume);
  mount["mountPath"] = kHostMount;
  mount["subPathExpr"] = fmt::format("$(GROVE_PCSG_NAME)-$(GROVE_PCSG_INDEX)/rank-{}", rank);
  set_named(container["volumeMounts"], mount);
  set_named(container["env"], env_entry(kSocketEnv, kHostMount));
  // The node makes the folder as root, and engines are not.
  Value open = named("fix-gms-perms");
  open["image"] = container.at("image");
  open["command"] = words({"chmod", "1777", kHostMount});
  open["securityContext"]["runAsUser"] = 0;
  open["securityContext"]["runAsNonRoot"] = false;
  open["volumeMounts"].push_back(std::move(mount));
  set_named(pod_spec["initContainers"], std::move(open));
  drop_gpus(container);
  tolerate_gpu_nodes(pod_spec);
}

Value* first_container(Value& pod_spec) {
  Value* containers = pod_spec.find("containers");
  return containers == nullptr || containers->size() == 0
             ? nullptr
             : &containers->mutable_elements()->front();
}

}  // namespace

GpuMemory read_gpu_memory(const Component& component) {
  GpuMemory read;
  const Value* memory = component.spec().find_at({"experimental", "gpuMemoryService"});
  if (memory == nullptr || !memory->is_object() || !component.is_worker()) {
    return read;
  }
  read.enabled = true;
  read.is_inter_pod = memory->text_at({"mode"}) == "InterPod";
  if (const std::string_view name = memory->text_at({"deviceClassName"}); !name.empty()) {
    read.device_class = name;
  }
  for (const Value& client : memory->at("extraClientContainers").elements()) {
    read.clients.emplace_back(client.text());
  }
  const Value* failover = component.spec().find_at({"experimental", "failover"});
  read.has_shadow = failover != nullptr && failover->is_object();
  return read;
}

std::string gpu_claim_template_name(std::string_view graph, std::string_view component) {
  return fmt::format("{}-{}-gpu", graph, lower(component));
}

Value make_gpu_claim_template(const Graph& graph, const Component& component) {
  Value made =
      kube::make_object(kube::resource_of("ResourceClaimTemplate"),
                        {graph.space(), gpu_claim_template_name(graph.name(), component.name())});
  made["metadata"]["labels"][kLabelGraph] = label_value(graph.name());
  made["metadata"]["labels"][kLabelComponent] = component.name();
  made["spec"]["spec"] = make_device_requests(read_gpu_memory(component), component.gpus());
  return made;
}

void share_gpus_in_pod(const PodContext& context, Value& pod_spec) {
  const GpuMemory memory = read_gpu_memory(context.component);
  Value* main = first_container(pod_spec);
  if (!memory.enabled || memory.is_inter_pod || main == nullptr) {
    return;
  }
  Value claim = named(kClaim);
  claim["resourceClaimTemplateName"] =
      gpu_claim_template_name(context.graph.name(), context.component.name());
  set_named(pod_spec["resourceClaims"], std::move(claim));
  tolerate_gpu_nodes(pod_spec);
  Value volume = named(kPodVolume);
  volume["emptyDir"] = Value::object();
  set_named(pod_spec["volumes"], std::move(volume));
  make_client_in_pod(*main);
  for (const std::string& name : memory.clients) {
    if (Value* client = kube::find_named(pod_spec.find("containers"), name)) {
      make_client_in_pod(*client);
    }
  }
  set_named(pod_spec["initContainers"], make_server_container(*main));
  if (!memory.has_shadow) {
    return;
  }
  Value containers = Value::array();
  for (int number = 0; number < memory.engines(); ++number) {
    containers.push_back(make_engine(*main, number, context.component.nodes()));
  }
  const Value all = *pod_spec.find("containers");
  for (size_t i = 1; i < all.size(); ++i) {
    containers.push_back(all.elements()[i]);
  }
  pod_spec["containers"] = std::move(containers);
}

std::string rank_claim_name(const Component& component, int64_t rank) {
  return fmt::format("{}-gpu-rank-{}", lower(component.name()), rank);
}

Value make_rank_claim_spec(const Component& component) {
  return make_device_requests(read_gpu_memory(component), component.gpus());
}

void become_weight_server(const Component& component, int64_t rank, Value& pod_spec) {
  Value* main = first_container(pod_spec);
  if (main == nullptr) {
    return;
  }
  (*main)["command"] = words({"python3", "-m", kServerModule});
  for (const std::string_view gone : {"args", "livenessProbe", "readinessProbe"}) {
    main->erase(gone);
  }
  // It is up when each GPU has its two sockets. Nothing of a user's is in these words.
  Value& probe = (*main)["startupProbe"];
  probe = Value::object();
  probe["exec"]["command"] =
      words({"sh", "-c",
             fmt::format("test $(ls {}/gms_*.sock 2>/dev/null | wc -l) -ge {}", kHostMount,
                         2 * component.gpus())});
  probe["periodSeconds"] = 2;
  probe["timeoutSeconds"] = 2;
  probe["failureThreshold"] = 150;
  share_host_folder(rank, pod_spec, *main);
}

void become_weight_client(const Component& component, int64_t rank, Value& pod_spec) {
  Value* main = first_container(pod_spec);
  if (main == nullptr) {
    return;
  }
  Value& env = (*main)["env"];
  drop_named(env, "DYN_SYSTEM_USE_ENDPOINT_HEALTH_STATUS");
  set_named(env, env_field("ENGINE_ID", "metadata.labels['grove.io/podclique-pod-index']"));
  set_named(env, env_entry("FAILOVER_LOCK_PATH", fmt::format("{}/failover.lock", kHostMount)));
  set_named(env, env_entry("DYN_SYSTEM_STARTING_HEALTH_STATUS", "notready"));
  share_host_folder(rank, pod_spec, *main);
  if (read_gpu_memory(component).has_shadow) {
    pod_spec["restartPolicy"] = "Never";  // the group of engines is replaced as a whole
  }
}

}  // namespace stator::op
