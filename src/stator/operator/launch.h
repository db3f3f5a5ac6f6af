// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "stator/json/value.h"
#include "stator/operator/pod_template.h"

namespace stator::op {

/// Where the pods of a component of several nodes find each other, in the words of what makes them.
struct Meeting {
  std::string leader_host;  ///< with $(VARIABLES) of the pod
  /// The rank of a worker as a $(VARIABLE), empty where it takes a shell's arithmetic …
  std::string rank_variable;
  /// … and this is the arithmetic: "GROVE_PCLQ_POD_INDEX + 1".
  std::string rank_arithmetic;
};
Meeting meeting_of(const PodContext& context);

/// Adds to the engine's command what makes several nodes one engine: flags for vLLM (processes,
/// Ray, data parallel), SGLang and TensorRT-LLM. Does nothing for single nodes, other engines, and
/// vLLM commands whose parallelism fits one node. `pod_spec` gets an init container where a worker
/// must wait for its leader.
void add_multinode_launch(const PodContext& context, json::Value& container, json::Value& pod_spec);

}  // namespace stator::op
