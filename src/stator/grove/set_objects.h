// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "stator/grove/layout.h"

namespace stator::grove {

/// What the objects of a set are made of. Functions of it alone.
struct SetContext {
  const SetSpec& spec;
  const Layout& layout;
  const SetView& view;
};

/// {apiVersion, kind, metadata} of something that belongs to the set, with Grove's labels.
json::Value make_managed(const SetContext& context, std::string_view kind, std::string name,
                         std::string_view part);

/// Headless Services, PodCliques, PodCliqueScalingGroups, HorizontalPodAutoscalers: what a set has
/// beside its pods and gangs. Owners are set where the owner is there already; what has none yet is
/// left out until it has.
std::vector<json::Value> make_set_objects(const SetContext& context);

/// Pod `index` of a clique, behind our scheduling gate. `clique`: the stored PodClique, its owner.
json::Value make_pod(const SetContext& context, const CliqueInstance& instance,
                     const json::Value& clique, int64_t index, const std::string& name);

/// The PodGangs: a group of pods for each clique, with the topology's rules as node labels.
std::vector<json::Value> make_gangs(const SetContext& context,
                                    const std::vector<const json::Value*>& pods);

/// Rules that name a level which the topology does not have; empty when all are there.
std::vector<std::string> missing_levels(const SetContext& context, bool& topology_missing);

}  // namespace stator::grove
