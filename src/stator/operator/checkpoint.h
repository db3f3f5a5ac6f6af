// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "stator/core/clock.h"
#include "stator/json/value.h"
#include "stator/kube/client.h"
#include "stator/operator/pod_template.h"
#include "stator/operator/reconcile.h"

namespace stator::op {

/// What a component wants of a snapshot of its process (experimental.checkpoint). Capturing and
/// restoring is done by a snapshot agent on the nodes; names are Dynamo's, so that its agent works.
struct CheckpointUse {
  std::string name;          ///< of the DynamoCheckpoint
  bool is_own = false;       ///< made of the component by us; else checkpointRef names it
  bool waits = false;        ///< startupPolicy WaitForCheckpoint: no pods before it is ready
  bool is_retained = false;  ///< deletionPolicy Retain: it outlives the graph
  std::string target = "main";
};
/// Nothing for components without one, or with enabled: false.
std::optional<CheckpointUse> read_checkpoint(const Graph& graph, const Component& component);

/// The DynamoCheckpoint of a component: its pod as the job that is captured.
json::Value make_checkpoint(const PodContext& context, const CheckpointUse& use);

/// Marks a pod template as one whose pods may be restored. What they are restored from is decided
/// when each pod is made (restore_pod), so that a checkpoint that gets ready replaces no pod.
void mark_restore_candidate(const PodContext& context, json::Value& labels,
                            json::Value& annotations);

/// A pod that is about to be made, changed so that the agent restores it from a ready checkpoint.
/// Nothing when it is no candidate, or the checkpoint is not ready.
std::optional<json::Value> restore_pod(const json::Value& pod, const json::Value& checkpoint);
/// The checkpoint that a candidate names; empty for other pods.
std::string_view checkpoint_of_pod(const json::Value& pod);

/// A DynamoCheckpoint and what is there of it.
struct CheckpointView {
  json::Value checkpoint;
  std::optional<json::Value> job = {};
  std::optional<json::Value> pod = {};  ///< of the job
  std::optional<json::Value> snapshot = {};
  bool has_agent = false;  ///< PodSnapshots are served
  std::string now;
};
/// Pending → Creating (a Job runs, its pod is captured) → Ready, or Failed with the reason.
Plan plan_checkpoint(const CheckpointView& view);

struct CheckpointOptions {
  std::string space = {};  ///< only this namespace; empty: all
  std::string holder = {};
  std::function<bool(std::string_view)> wanted = {};  ///< null: all namespaces
};
/// Keeps DynamoCheckpoints. The client must have been stopped before it is destroyed.
class CheckpointController {
 public:
  virtual ~CheckpointController() = default;
};
std::unique_ptr<CheckpointController> start_checkpoint_controller(kube::Client& client,
                                                                  CheckpointOptions options,
                                                                  Clock& clock);

inline constexpr std::string_view kLabelSnapshotId = "nvidia.com/snapshot-checkpoint-id";
inline constexpr std::string_view kLabelSnapshotOwner = "nvidia.com/snapshot-owner";
inline constexpr std::string_view kLabelSnapshotSource = "nvidia.com/snapshot-is-checkpoint-source";
/// On pods that may be restored: what the webhook for pods selects by.
inline constexpr std::string_view kLabelCandidate = "stator.dev/restore-candidate";

}  // namespace stator::op
