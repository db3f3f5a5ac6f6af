// SPDX-License-Identifier: Apache-2.0
#include "stator/grove/set_status.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <ctime>

#include "stator/grove/names.h"
#include "stator/kube/lease.h"
#include "stator/kube/object.h"

namespace stator::grove {
namespace {

using json::Value;

struct Condition {
  std::string_view type;
  std::string_view status;
  std::string_view reason;
  std::string message;
};

/// Builds one status, keeping the times of conditions that stay as they are.
class StatusDraft {
 public:
  StatusDraft(const Value& object, WallTime now)
      : object_(object), now_(kube::rfc3339(now)), conditions_(Value::array()) {
    status_["observedGeneration"] = kube::generation_of(object);
  }

  Value& operator[](std::string_view key) { return status_[key]; }

  void condition(const Condition& made) {
    Value value = Value::object();
    value["type"] = made.type;
    value["status"] = made.status;
    value["reason"] = made.reason;
    value["message"] = made.message;
    value["lastTransitionTime"] = now_;
    value["observedGeneration"] = kube::generation_of(object_);
    kube::set_condition(conditions_, object_.find_at({"status", "conditions"}), std::move(value));
  }

  void finish(SetPlan& plan) {
    if (conditions_.size() > 0) {
      status_["conditions"] = std::move(conditions_);
    }
    const Value* before = object_.find("status");
    if (before == nullptr || !kube::same(*before, status_)) {
      plan.statuses.emplace_back(object_, std::move(status_));
    }
  }

 private:
  const Value& object_;
  std::string now_;
  Value status_ = Value::object();
  Value conditions_;
};

void add_clique(const SetContext& context, const CliqueState& state, SetPlan& plan) {
  if (state.stored == nullptr) {
    return;
  }
  StatusDraft draft(*state.stored, context.view.now);
  const int64_t least = state.instance->min_available;
  draft["replicas"] = state.pods.size();
  draft["readyReplicas"] = state.ready;
  draft["updatedReplicas"] = state.updated;
  draft["scheduleGatedReplicas"] = state.gated;
  draft["scheduledReplicas"] = state.scheduled;
  draft["hpaPodSelector"] = fmt::format("{}={}", kClique, state.instance->name);
  draft["currentPodCliqueSetGenerationHash"] =
      state.is_updating() ? state.stored->text_at({"status", "currentPodCliqueSetGenerationHash"})
                          : std::string_view(context.spec.hash);
  draft["currentPodTemplateHash"] = state.instance->spec->hash;
  const bool scheduled = state.scheduled >= least;
  draft.condition({kScheduled, scheduled || state.is_breached() ? "True" : "False",
                   scheduled ? "SufficientScheduledPods" : "InsufficientScheduledPods",
                   fmt::format("{} of at least {} pods are scheduled", state.scheduled, least)});
  const bool breached = state.is_breached();
  draft.condition({kBreached,
                   state.is_updating() ? "Unknown"
                   : breached          ? "True"
                                       : "False",
                   state.is_updating()       ? "UpdateInProgress"
                   : !breached               ? "SufficientReadyPods"
                   : state.scheduled < least ? "ScheduledReplicasBelowMinAvailable"
                                             : "InsufficientReadyPods",
                   fmt::format("{} ready, {} scheduled, {} failed, at least {} needed", state.ready,
                               state.scheduled, state.failed, least)});
  draft.finish(plan);
}

/// How many replicas of a group are so, and whether enough of them are.
struct GroupCounts {
  int64_t scheduled = 0, available = 0, updated = 0, breached = 0;
};

GroupCounts count_group(const GroupInstance& group,
                        const std::map<std::string, CliqueState>& states) {
  GroupCounts counts;
  for (int64_t index = 0; index < group.replicas; ++index) {
    bool scheduled = true, available = true, updated = true, breached = false;
    for (const auto& [name, state] : states) {
      if (state.instance->group != group.name || state.instance->group_index != index) {
        continue;
      }
      const int64_t least = state.instance->min_available;
      scheduled = scheduled && state.scheduled >= least;
      available = available && state.ready >= least;
      updated = updated && !state.is_updating() &&
                static_cast<int64_t>(state.pods.size()) >= state.instance->replicas;
      breached = breached || state.is_breached();
    }
    counts.scheduled += scheduled ? 1 : 0;
    counts.available += available ? 1 : 0;
    counts.updated += updated ? 1 : 0;
    counts.breached += breached ? 1 : 0;
  }
  return counts;
}

bool add_group(const SetContext& context, const GroupInstance& group,
               const std::map<std::string, CliqueState>& states, SetPlan& plan) {
  const GroupCounts counts = count_group(group, states);
  const bool breached =
      group.replicas - counts.breached < group.spec->min_available && counts.breached > 0;
  const Value* stored = find_object(context.view.groups, group.name);
  if (stored == nullptr) {
    return breached;
  }
  StatusDraft draft(*stored, context.view.now);
  draft["replicas"] = group.replicas;
  draft["scheduledReplicas"] = counts.scheduled;
  draft["availableReplicas"] = counts.available;
  draft["updatedReplicas"] = counts.updated;
  draft["selector"] = fmt::format("{}={}", kGroup, group.name);
  draft["currentPodCliqueSetGenerationHash"] =
      counts.updated < group.replicas
          ? stored->text_at({"status", "currentPodCliqueSetGenerationHash"})
          : std::string_view(context.spec.hash);
  draft.condition({kBreached, breached ? "True" : "False",
                   breached ? "InsufficientAvailablePodCliqueScalingGroupReplicas"
                            : "SufficientAvailablePodCliqueScalingGroupReplicas",
                   fmt::format("{} of {} replicas available, at least {} needed", counts.available,
                               group.replicas, group.spec->min_available)});
  draft.finish(plan);
  return breached;
}

void add_gang(const SetContext& context, const Value& gang,
              const std::map<std::string, CliqueState>& states, SetPlan& plan, Value& phases) {
  const std::string name = kube::name_of(gang).name;
  bool created = true, scheduled = true, ready = true;
  for (const auto& [clique, state] : states) {
    if (state.instance->gang != name) {
      continue;
    }
    created = created && static_cast<int64_t>(state.pods.size()) >= state.instance->replicas;
    scheduled = scheduled && state.scheduled >= state.instance->min_available;
    ready = ready && state.ready >= state.instance->min_available;
  }
  StatusDraft draft(gang, context.view.now);
  const std::string_view phase = ready ? "Running" : scheduled ? "Starting" : "Pending";
  draft["phase"] = phase;
  if (const Value* score = gang.find_at({"status", "placementScore"})) {
    draft["placementScore"] = *score;
  }
  const auto word = [](bool holds) { return holds ? "True" : "False"; };
  draft.condition({"Initialized", word(created),
                   created ? "PodGangPodsCreated" : "PodGangPodsCreationPending", ""});
  draft.condition({"Scheduled", word(scheduled), scheduled ? "GangScheduled" : "GangPending", ""});
  draft.condition({"Ready", word(ready), ready ? "GangReady" : "GangNotReady", ""});
  draft.finish(plan);
  Value entry = Value::object();
  entry["name"] = name;
  entry["phase"] = phase;
  phases.push_back(std::move(entry));
}

struct ReplicaCounts {
  int64_t available = 0, updated = 0;
};

ReplicaCounts count_replicas(const SetContext& context,
                             const std::map<std::string, CliqueState>& states) {
  ReplicaCounts counts;
  for (int64_t index = 0; index < context.spec.replicas; ++index) {
    bool available = true, updated = true;
    for (const auto& [name, state] : states) {
      if (state.instance->set_index != index) {
        continue;
      }
      const bool is_base = state.instance->base_gang.empty();
      available = available && (!is_base || state.is_available());
      updated = updated && !state.is_updating() &&
                static_cast<int64_t>(state.pods.size()) >= state.instance->replicas;
    }
    counts.available += available ? 1 : 0;
    counts.updated += updated ? 1 : 0;
  }
  return counts;
}

void add_topology_condition(const SetContext& context, StatusDraft& draft) {
  bool no_topology = false;
  const std::vector<std::string> missing = missing_levels(context, no_topology);
  std::string names;
  for (const std::string& name : missing) {
    names += (names.empty() ? "" : ", ") + name;
  }
  draft.condition({"TopologyLevelsUnavailable",
                   no_topology       ? "Unknown"
                   : missing.empty() ? "False"
                                     : "True",
                   no_topology       ? "ClusterTopologyNotFound"
                   : missing.empty() ? "AllClusterTopologyLevelsAvailable"
                                     : "ClusterTopologyLevelsUnavailable",
                   missing.empty() ? "" : fmt::format("the topology has no level {}", names)});
}

}  // namespace

void add_statuses(const SetContext& context, const std::map<std::string, CliqueState>& states,
                  SetPlan& plan) {
  for (const auto& [name, state] : states) {
    add_clique(context, state, plan);
  }
  for (const GroupInstance& group : context.layout.groups) {
    add_group(context, group, states, plan);
  }
  Value phases = Value::array();
  for (const Value& gang : context.view.gangs) {
    add_gang(context, gang, states, plan, phases);
  }
  StatusDraft draft(*context.spec.object, context.view.now);
  const ReplicaCounts counts = count_replicas(context, states);
  draft["replicas"] = context.spec.replicas;
  draft["availableReplicas"] = counts.available;
  draft["updatedReplicas"] = counts.updated;
  draft["hpaPodSelector"] = fmt::format("{}={}", kPartOf, context.spec.name);
  draft["currentGenerationHash"] = context.spec.hash;
  draft["podGangStatuses"] = std::move(phases);
  add_topology_condition(context, draft);
  const Value* before = context.spec.object->find_at({"status", "updateProgress"});
  const bool updating = counts.updated < context.spec.replicas;
  const bool is_change =
      context.spec.object->text_at({"status", "currentGenerationHash"}) != context.spec.hash &&
      !context.spec.object->text_at({"status", "currentGenerationHash"}).empty();
  if (is_change) {
    draft["updateProgress"]["updateStartedAt"] = kube::rfc3339(context.view.now);
  } else if (before != nullptr) {
    draft["updateProgress"] = *before;
    if (!updating && before->find("updateEndedAt") == nullptr) {
      draft["updateProgress"]["updateEndedAt"] = kube::rfc3339(context.view.now);
    }
  }
  draft.finish(plan);
}

std::optional<WallTime> condition_since(const Value* object, std::string_view type,
                                        std::string_view status) {
  if (object == nullptr) {
    return std::nullopt;
  }
  for (const Value& condition : object->at("status").at("conditions").elements()) {
    if (condition.text_at({"type"}) != type || condition.text_at({"status"}) != status) {
      continue;
    }
    return parse_time(condition.text_at({"lastTransitionTime"}));
  }
  return std::nullopt;
}

std::optional<WallTime> parse_time(std::string_view text) {
  std::tm when{};
  const std::string copy(text);
  if (::strptime(copy.c_str(), "%Y-%m-%dT%H:%M:%S", &when) == nullptr) {
    return std::nullopt;
  }
  return WallTime(std::chrono::seconds(::timegm(&when)));
}

}  // namespace stator::grove
