// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "stator/json/value.h"
#include "stator/operator/graph.h"

namespace stator::op {

/// A pod's part in a component of several nodes.
enum class Role : uint8_t { kMain, kLeader, kWorker };

struct PodContext {
  const Graph& graph;
  const Component& component;
  const Environment& environment;
  Role role = Role::kMain;
  int64_t rank = 0;              ///< the node's number where each has a clique of its own
  std::string worker_hash = {};  ///< generation; empty: the base namespace
  std::string selector = {};     ///< value of the selector label; empty: none (Grove has its own)
  std::string restart_id = {};   ///< value of the restartAt annotation; empty: none
};

/// {metadata {labels, annotations}, spec} of a component's pods: the type's defaults, under what
/// the user wrote, under what the system needs (docs/kubernetes/operator.md has the order).
json::Value make_pod_template(const PodContext& context);

/// Labels that select a component's pods, and what is found by them.
json::Value system_labels(const PodContext& context);

/// Entries of `over` win over those of `under` with the same name; `under`'s others come first, so
/// that `over` may refer to them.
json::Value merge_env(const json::Value& under, const json::Value& over);

/// Whether pods of the component's workers wait for a frontend to know them.
bool has_routable_gate(const Graph& graph, const Component& component);

/// Whether an image is ours: its repository's last part starts with "stator".
bool is_stator_image(std::string_view image);

}  // namespace stator::op
