// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "stator/json/value.h"
#include "stator/operator/pod_template.h"

namespace stator::op {

/// Weights that a server keeps on GPUs for several engines (experimental.gpuMemoryService), and a
/// second engine that takes over (experimental.failover): names and wiring are Dynamo's.
struct GpuMemory {
  bool enabled = false;
  bool is_inter_pod = false;  ///< server and engines are pods of their own; else one pod's
  std::string device_class = "gpu.nvidia.com";
  std::vector<std::string> clients;  ///< further containers that use the GPUs
  bool has_shadow = false;
  int64_t engines() const { return has_shadow ? 2 : 1; }
};
GpuMemory read_gpu_memory(const Component& component);

/// "<graph>-<component>-gpu": the claim that the containers of a pod share.
std::string gpu_claim_template_name(std::string_view graph, std::string_view component);
json::Value make_gpu_claim_template(const Graph& graph, const Component& component);

/// IntraPod: the GPUs become a claim, a server runs beside the containers that use it, and with a
/// shadow `main` becomes the containers engine-0 and engine-1. Does nothing for other components.
void share_gpus_in_pod(const PodContext& context, json::Value& pod_spec);

/// InterPod: "<component>-gpu-rank-<n>", shared by the pods of a rank.
std::string rank_claim_name(const Component& component, int64_t rank);
/// The spec of that claim.
json::Value make_rank_claim_spec(const Component& component);
/// Makes an engine's pod a rank's weight server …
void become_weight_server(const Component& component, int64_t rank, json::Value& pod_spec);
/// … and an engine's pod its client.
void become_weight_client(const Component& component, int64_t rank, json::Value& pod_spec);

}  // namespace stator::op
