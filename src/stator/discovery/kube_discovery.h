// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "stator/core/clock.h"
#include "stator/core/metrics.h"
#include "stator/core/result.h"
#include "stator/discovery/discovery.h"
#include "stator/kube/client.h"

namespace stator::discovery {

struct KubeDiscoveryOptions {
  kube::ClientConfig client;
  std::string space;  ///< whose workers
  /// The pod this process runs in: its records end with it. Empty: outside a cluster, where a
  /// record ends when it is withdrawn.
  std::string pod_name = {};
  std::string pod_uid = {};
  /// A frontend's: pods of workers that it knows get the condition their readiness gate waits for.
  bool marks_routable = false;
  Duration startup_timeout = std::chrono::seconds(30);
};

/// Discovery in a Kubernetes namespace: each worker writes a DynamoWorkerMetadata with its record
/// under spec.data.stator; frontends watch them. A record whose pod is there but not ready, or
/// going away, does not count; one with our readiness gate counts when its containers are ready,
/// and our own pod's always.
/// While the API server is away the last view stays (D4). Waits for the
/// first view: kUnavailable when it does not come in time.
Result<std::unique_ptr<Discovery>> open_kube_discovery(KubeDiscoveryOptions options,
                                                       const Clock& clock, Metrics& metrics);

/// A record's object, and back: kCorrupt for one that is none of ours.
json::Value to_object(const InstanceRecord& record, const KubeDiscoveryOptions& options);
Result<InstanceRecord> from_object(const json::Value& object);

}  // namespace stator::discovery
