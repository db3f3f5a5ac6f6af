// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "stator/grove/set_objects.h"

namespace stator::grove {

/// Who places the gangs of a set.
enum class Placer : uint8_t {
  kOwn,      ///< we do, and the cluster's scheduler binds
  kKai,      ///< the KAI scheduler: schedulerName kai-scheduler, where it is installed
  kVolcano,  ///< Volcano: schedulerName volcano, where it is installed
};
Placer placer_of(const SetContext& context);
/// The same of a pod as it was made. Pods of schedulers that are not installed have no name of one.
bool is_placed_by_others(const json::Value& pod);

/// Prepares a pod for its set's placer: annotations, labels, the scheduler's name.
void prepare_for_placer(const SetContext& context, const CliqueInstance& clique, json::Value& pod);

/// The gangs in the words of the set's placer: a PodGroup for each PodGang that is stored, and for
/// KAI the Topologies that they name. Empty where we place.
std::vector<json::Value> make_pod_groups(const SetContext& context,
                                         const std::vector<json::Value>& gangs);

}  // namespace stator::grove
