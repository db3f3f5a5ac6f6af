// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace stator::op {

// Labels and annotations, as Dynamo names them, so that selectors and tools go on working.
inline constexpr std::string_view kLabelSelector = "nvidia.com/selector";
inline constexpr std::string_view kLabelGraph = "nvidia.com/dynamo-graph-deployment-name";
inline constexpr std::string_view kLabelComponent = "nvidia.com/dynamo-component";
inline constexpr std::string_view kLabelRuntimeNamespace = "nvidia.com/dynamo-namespace";
inline constexpr std::string_view kLabelComponentType = "nvidia.com/dynamo-component-type";
/// prefill or decode, of workers: what selectors of older manifests ask for.
inline constexpr std::string_view kLabelSubComponentType = "nvidia.com/dynamo-sub-component-type";
inline constexpr std::string_view kLabelComponentClass = "nvidia.com/dynamo-component-class";
inline constexpr std::string_view kLabelWorkerHash = "nvidia.com/dynamo-worker-hash";
inline constexpr std::string_view kLabelBaseModelHash = "nvidia.com/dynamo-base-model-hash";
inline constexpr std::string_view kLabelDiscoveryBackend = "nvidia.com/dynamo-discovery-backend";
inline constexpr std::string_view kLabelDiscoveryEnabled = "nvidia.com/dynamo-discovery-enabled";
inline constexpr std::string_view kLabelMetricsEnabled = "nvidia.com/metrics-enabled";
/// On engines that share GPUs with a shadow: all of one pod index end when one of them does.
inline constexpr std::string_view kLabelEngineGroup =
    "nvidia.com/dynamo-failover-engine-group-member";
inline constexpr std::string_view kLabelQueue = "kai.scheduler/queue";

inline constexpr std::string_view kAnnotationEnableGrove = "nvidia.com/enable-grove";
inline constexpr std::string_view kAnnotationProvider = "nvidia.com/workload-provider";
inline constexpr std::string_view kAnnotationGroveUpdate = "nvidia.com/grove-update-strategy";
inline constexpr std::string_view kAnnotationStrategy = "nvidia.com/deployment-strategy";
inline constexpr std::string_view kAnnotationMaxSurge =
    "nvidia.com/deployment-rolling-update-max-surge";
inline constexpr std::string_view kAnnotationMaxUnavailable =
    "nvidia.com/deployment-rolling-update-max-unavailable";
inline constexpr std::string_view kAnnotationDiscovery = "nvidia.com/dynamo-discovery-backend";
inline constexpr std::string_view kAnnotationDiscoveryMode =
    "nvidia.com/dynamo-kube-discovery-mode";
inline constexpr std::string_view kAnnotationVllmExecutor =
    "nvidia.com/vllm-distributed-executor-backend";
inline constexpr std::string_view kAnnotationEnableMetrics = "nvidia.com/enable-metrics";
inline constexpr std::string_view kAnnotationQueue = "nvidia.com/kai-scheduler-queue";
inline constexpr std::string_view kAnnotationOrigin = "nvidia.com/dynamo-operator-origin-version";
inline constexpr std::string_view kAnnotationRestartAt = "nvidia.com/restartAt";
inline constexpr std::string_view kAnnotationWorkerHash = "nvidia.com/current-worker-hash-v2";
/// On pods: the node label that they get, too; or the binding that says which label a domain has.
inline constexpr std::string_view kAnnotationTopologyKey = "nvidia.com/topology-label-key";
inline constexpr std::string_view kAnnotationTopologyName =
    "nvidia.com/topology-cluster-topology-name";
inline constexpr std::string_view kAnnotationTopologyDomain = "stator.dev/topology-domain";
/// On pods that wait for one of these labels: what we watch.
inline constexpr std::string_view kLabelWantsTopology = "stator.dev/wants-topology";
inline constexpr std::string_view kAnnotationNoPullSecrets =
    "nvidia.com/disable-image-pull-secret-discovery";
/// "true": pods of workers are ready only when a frontend knows them.
inline constexpr std::string_view kAnnotationRoutableGate = "stator.dev/routable-gate";
inline constexpr std::string_view kRoutableCondition = "stator.dev/routable";
/// On children of ours, beside the pods' template: who made it last.
inline constexpr std::string_view kAnnotationMadeBy = "stator.dev/made-by";
/// On a graph: which of another operator's pods stay (see move_in.h).
inline constexpr std::string_view kAnnotationAdopted = "stator.dev/adopted";
/// On a component: its workload's pod template is another operator's, and stays.
inline constexpr std::string_view kAnnotationKeepsPods = "stator.dev/keeps-pods";
inline constexpr std::string_view kOperatorName = "stator-operator";
inline constexpr std::string_view kFinalizer = "nvidia.com/finalizer";

inline constexpr int kPortHttp = 8000;
inline constexpr int kPortSystem = 9090;
inline constexpr int kPortPlannerMetrics = 9085;
inline constexpr int kPortNixl = 19090;
inline constexpr int kPortEppGrpc = 9002;
inline constexpr int kPortEppHealth = 9003;
inline constexpr int kPortForwardPass = 20380;
inline constexpr int kPortRendezvous = 29500;
inline constexpr int kPortRay = 6379;
inline constexpr int kPortDataParallelRpc = 13445;

/// What a PodCliqueSet's, a group's and a clique's name may have together.
inline constexpr size_t kGroveNameMax = 45;

std::string lower(std::string_view text);
/// Dots become hyphens: a name that DNS-1035 allows.
std::string dns_name(std::string_view name);
/// A label value: over 63 characters it is cut and gets a hash.
std::string label_value(std::string_view text);
/// "<namespace>-<graph>", "dynamo" when the component is global.
std::string runtime_namespace(std::string_view space, std::string_view graph, bool is_global);
/// "<graph>-<component>", with "-<hash>" for workers of a generation.
std::string component_object_name(std::string_view graph, std::string_view component,
                                  std::string_view worker_hash = {});
/// "dynamo-model-<hash of the base model>".
std::string model_service_name(std::string_view base_model);
/// A name of at most `max` characters: the end of longer ones becomes a hash.
std::string shortened(std::string_view name, size_t max);

/// worker, prefill, decode: what holds KV blocks and rolls as one.
bool is_worker_type(std::string_view type);

}  // namespace stator::op
