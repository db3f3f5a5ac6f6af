// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace stator::grove {

// Labels, gates and conditions, as Grove names them, so that selectors and tools go on working.
inline constexpr std::string_view kManagedBy = "app.kubernetes.io/managed-by";
inline constexpr std::string_view kManager = "grove-operator";
inline constexpr std::string_view kPartOf = "app.kubernetes.io/part-of";
inline constexpr std::string_view kAppName = "app.kubernetes.io/name";
inline constexpr std::string_view kPart = "app.kubernetes.io/component";
inline constexpr std::string_view kClique = "grove.io/podclique";
inline constexpr std::string_view kGang = "grove.io/podgang";
inline constexpr std::string_view kBaseGang = "grove.io/base-podgang";
inline constexpr std::string_view kSetIndex = "grove.io/podcliqueset-replica-index";
inline constexpr std::string_view kGroup = "grove.io/podcliquescalinggroup";
inline constexpr std::string_view kGroupIndex = "grove.io/podcliquescalinggroup-replica-index";
inline constexpr std::string_view kPodIndex = "grove.io/podclique-pod-index";
inline constexpr std::string_view kTemplateHash = "grove.io/pod-template-hash";
inline constexpr std::string_view kGate = "grove.io/podgang-pending-creation";
inline constexpr std::string_view kTopologyName = "grove.io/topology-name";
/// Which gang members a pod waits for before it starts: names of PodCliques, with commas.
inline constexpr std::string_view kStartsAfter = "stator.dev/starts-after";

inline constexpr std::string_view kBreached = "MinAvailableBreached";
inline constexpr std::string_view kScheduled = "PodCliqueScheduled";

inline constexpr std::string_view kKaiScheduler = "kai-scheduler";
inline constexpr std::string_view kVolcanoScheduler = "volcano";
/// On engines that share GPUs with a shadow: all of one index end when one of them does.
inline constexpr std::string_view kEngineGroup = "nvidia.com/dynamo-failover-engine-group-member";

}  // namespace stator::grove
