// SPDX-License-Identifier: Apache-2.0
#include "stator/grove/set_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "stator/grove/clique_state.h"
#include "stator/grove/names.h"
#include "stator/grove/pod_groups.h"
#include "stator/grove/resource_claims.h"
#include "stator/grove/set_objects.h"
#include "stator/grove/set_status.h"

namespace stator::grove {
namespace {

using json::Value;
using States = std::map<std::string, CliqueState>;

int64_t index_of(const Value& pod) {
  const std::string text(kube::label_of(pod, kPodIndex));
  return text.empty() ? -1 : std::strtoll(text.c_str(), nullptr, 10);
}

void remove_pod(const Value& pod, SetPlan& plan) {
  if (!is_terminating(pod)) {
    plan.remove_pods.push_back({kube::name_of(pod), std::string(kube::uid_of(pod))});
  }
}

/// What goes first when there are too many: old ones, those behind the gate, those not ready, the
/// youngest.
std::vector<const Value*> in_order_of_removal(const CliqueState& state) {
  std::vector<const Value*> pods = state.pods;
  const auto rank = [&](const Value* pod) {
    const bool is_new = kube::label_of(*pod, kTemplateHash) == state.instance->spec->hash;
    return std::tuple(is_new, !is_gated(*pod), is_scheduled(*pod), is_ready(*pod));
  };
  std::ranges::sort(pods, [&](const Value* a, const Value* b) {
    if (rank(a) != rank(b)) {
      return rank(a) < rank(b);
    }
    const std::string_view made_a = a->text_at({"metadata", "creationTimestamp"});
    const std::string_view made_b = b->text_at({"metadata", "creationTimestamp"});
    return made_a != made_b ? made_a > made_b : index_of(*a) > index_of(*b);
  });
  return pods;
}

/// A pod's name is a function of what was there before it, so that a second look at the same state
/// makes the same pod.
std::string pod_name(const CliqueState& state, int64_t index) {
  std::string seed = std::string(kube::uid_of(*state.stored)) + "/" + std::to_string(index);
  for (const Value* gone : state.leaving) {
    if (index_of(*gone) == index) {
      seed += "/" + std::string(kube::uid_of(*gone));
    }
  }
  return fmt::format("{}-{}", state.instance->name, kube::short_hash(seed).substr(0, 5));
}

/// As many pods as there should be, at the lowest free indices.
void plan_pods(const SetContext& context, const CliqueState& state, SetPlan& plan) {
  if (state.stored == nullptr || is_terminating(*state.stored)) {
    return;
  }
  for (const Value* pod : state.leaving) {
    if (is_over(*pod)) {
      remove_pod(*pod, plan);
    }
  }
  const auto have = static_cast<int64_t>(state.pods.size());
  const int64_t want = state.instance->replicas;
  if (have > want) {
    const auto pods = in_order_of_removal(state);
    for (int64_t i = 0; i < have - want; ++i) {
      remove_pod(*pods[static_cast<size_t>(i)], plan);
    }
    return;
  }
  std::set<int64_t> taken;
  for (const Value* pod : state.pods) {
    taken.insert(index_of(*pod));
  }
  int64_t index = 0;
  for (int64_t missing = want - have; missing > 0; ++index) {
    if (!taken.contains(index)) {
      plan.create.push_back(
          make_pod(context, *state.instance, *state.stored, index, pod_name(state, index)));
      --missing;
    }
  }
}

bool is_old(const CliqueState& state, const Value& pod) {
  return kube::label_of(pod, kTemplateHash) != state.instance->spec->hash;
}

/// Replaces pods of a clique: those of no use at once, ready ones one after the other.
void update_clique(const CliqueState& state, SetPlan& plan) {
  if (!state.is_updating()) {
    return;
  }
  bool waits = static_cast<int64_t>(state.pods.size()) < state.instance->replicas;
  const Value* oldest = nullptr;
  for (const Value* pod : state.pods) {
    const bool ready = is_ready(*pod);
    if (is_old(state, *pod) && !ready) {
      remove_pod(*pod, plan);
    } else if (!ready) {
      waits = true;  // a new one has to be ready first
    } else if (is_old(state, *pod) &&
               (oldest == nullptr || pod->text_at({"metadata", "creationTimestamp"}) <
                                         oldest->text_at({"metadata", "creationTimestamp"}))) {
      oldest = pod;
    }
  }
  if (!waits && plan.remove_pods.empty() && oldest != nullptr &&
      state.ready >= state.instance->min_available) {
    remove_pod(*oldest, plan);
  }
}

/// One replica of a group: all its pods at once, so that old and new never work together.
void update_group_replica(const std::vector<const CliqueState*>& members, SetPlan& plan) {
  for (const CliqueState* state : members) {
    for (const Value* pod : state->pods) {
      if (is_old(*state, *pod)) {
        remove_pod(*pod, plan);
      }
    }
  }
}

/// Updates one replica of the set at a time; in it, its cliques, then one group replica at a time.
void plan_update(const SetContext& context, const States& states, SetPlan& plan) {
  if (context.spec.on_delete) {
    return;
  }
  for (int64_t set_index = 0; set_index < context.spec.replicas; ++set_index) {
    bool is_busy = false;
    std::map<std::pair<std::string, int64_t>, std::vector<const CliqueState*>> replicas;
    for (const auto& [name, state] : states) {
      if (state.instance->set_index != set_index) {
        continue;
      }
      is_busy = is_busy || state.is_updating();
      if (state.instance->group.empty()) {
        SetPlan own;
        update_clique(state, own);
        std::ranges::move(own.remove_pods, std::back_inserter(plan.remove_pods));
      } else {
        replicas[{state.instance->group, state.instance->group_index}].push_back(&state);
      }
    }
    std::set<std::string> held;  // groups with a replica that is being replaced
    for (const auto& [key, members] : replicas) {
      const bool is_new = std::ranges::none_of(
          members, [](const CliqueState* state) { return state->is_updating(); });
      const bool is_up = std::ranges::all_of(members, [](const CliqueState* state) {
        return state->ready >= state->instance->replicas;
      });
      if (is_new && !is_up) {
        held.insert(key.first);
      }
    }
    for (const auto& [key, members] : replicas) {
      const bool is_old_replica = std::ranges::any_of(
          members, [](const CliqueState* state) { return state->is_updating(); });
      const bool is_idle =
          std::ranges::all_of(members, [](const CliqueState* state) { return state->ready == 0; });
      if (is_old_replica && (is_idle || !held.contains(key.first))) {
        update_group_replica(members, plan);
        held.insert(key.first);
      }
    }
    if (is_busy) {
      return;  // the next replica when this one is new and ready
    }
    const bool settles = std::ranges::any_of(states, [&](const auto& each) {
      const CliqueState& state = each.second;
      return state.instance->set_index == set_index && state.instance->base_gang.empty() &&
             state.ready < state.instance->min_available && state.was_scheduled();
    });
    const bool others_old =
        std::ranges::any_of(states, [](const auto& each) { return each.second.is_updating(); });
    if (settles && others_old) {
      return;
    }
  }
}

/// When the longest-lived pod of a replica of the set was made: the replica as it is lacks nothing
/// for longer than that.
std::optional<WallTime> oldest_pod_of(const States& states, int64_t set_index) {
  std::optional<WallTime> oldest;
  for (const auto& [name, state] : states) {
    for (const Value* pod : state.pods) {
      const auto made = parse_time(pod->text_at({"metadata", "creationTimestamp"}));
      if (state.instance->set_index == set_index && made) {
        oldest = oldest ? std::min(*oldest, *made) : *made;
      }
    }
  }
  return oldest;
}

/// Gangs that have lacked their minimum for too long are ended as a whole, and start anew together.
void plan_termination(const SetContext& context, States& states, SetPlan& plan) {
  for (int64_t set_index = 0; set_index < context.spec.replicas; ++set_index) {
    std::optional<WallTime> since;
    for (const auto& [name, state] : states) {
      if (state.instance->set_index != set_index || !state.instance->base_gang.empty()) {
        continue;
      }
      const auto began = condition_since(state.stored, kBreached, "True");
      if (state.is_breached() && began) {
        since = since ? std::min(*since, *began) : *began;
      }
    }
    if (!since) {
      continue;
    }
    // The clock of what was started anew begins anew, however old the status is that we see.
    since = std::max(*since, oldest_pod_of(states, set_index).value_or(*since));
    const Duration waited = context.view.now - *since;
    if (waited < context.spec.termination_delay) {
      const Duration rest = context.spec.termination_delay - waited;
      plan.again = plan.again == Duration::zero() ? rest : std::min(plan.again, rest);
      continue;
    }
    bool any = false;
    for (auto& [name, state] : states) {
      if (state.instance->set_index == set_index) {
        for (const Value* pod : state.pods) {
          any = true;
          remove_pod(*pod, plan);
        }
        state.start_anew();
      }
    }
    if (any) {
      plan.events.push_back(
          {true, "GangTerminated",
           fmt::format(
               "replica {} lacked its minimum for longer than {} s: all of it starts anew",
               set_index,
               std::chrono::duration_cast<std::chrono::seconds>(context.spec.termination_delay)
                   .count())});
    }
  }
}

/// Cliques, groups and gangs of replicas that are wanted no more.
void plan_removals(const SetContext& context, SetPlan& plan) {
  std::set<std::string> cliques;
  std::set<std::string> groups;
  std::set<std::string> gangs;
  for (const CliqueInstance& clique : context.layout.cliques) {
    cliques.insert(clique.name);
    gangs.insert(clique.gang);
  }
  for (const GroupInstance& group : context.layout.groups) {
    groups.insert(group.name);
  }
  const auto look = [&](const std::vector<Value>& objects, const std::set<std::string>& wanted) {
    for (const Value& object : objects) {
      const kube::ObjectName name = kube::name_of(object);
      if (!wanted.contains(name.name) && !is_terminating(object)) {
        plan.remove.emplace_back(kube::resource_of(object.text_at({"kind"})), name);
      }
    }
  };
  look(context.view.cliques, cliques);
  look(context.view.groups, groups);
  look(context.view.gangs, gangs);
  std::set<std::string> claims;
  for (const Value& made : plan.apply) {
    if (made.text_at({"kind"}) == "ResourceClaim") {
      claims.insert(kube::name_of(made).name);
    }
  }
  look(context.view.claims, claims);
}

/// Engines that share GPUs with a shadow end as one: what is left of such a group of pods cannot
/// work on, and its successors need the sockets that it holds.
void plan_cascade(const States& states, SetPlan& plan) {
  std::set<std::tuple<std::string, int64_t, int64_t>> broken;
  const auto place_of = [](const CliqueState& state, const Value& pod) {
    return std::tuple(state.instance->group, state.instance->group_index, index_of(pod));
  };
  const auto is_member = [](const Value& pod) {
    return kube::label_of(pod, kEngineGroup) == "true";
  };
  for (const auto& [name, state] : states) {
    for (const Value* pod : state.leaving) {
      if (is_over(*pod) && is_member(*pod) && !is_terminating(*pod)) {
        broken.insert(place_of(state, *pod));
      }
    }
  }
  for (const auto& [name, state] : states) {
    for (const Value* pod : state.pods) {
      if (is_member(*pod) && broken.contains(place_of(state, *pod))) {
        remove_pod(*pod, plan);
      }
    }
  }
}

void note_missing_claims(const std::vector<std::string>& missing, SetPlan& plan) {
  for (const std::string& name : missing) {
    plan.events.push_back({true, "ClaimTemplateMissing",
                           fmt::format("resourceSharing names the template {}, which is neither in "
                                       "resourceClaimTemplates nor a ResourceClaimTemplate",
                                       name)});
  }
}

}  // namespace

SetPlan plan_set(const SetView& view) {
  SetPlan plan;
  if (is_terminating(view.set)) {
    return plan;  // its children go by their owner
  }
  const SetSpec spec = read_set(view.set);
  const Layout layout = lay_out(spec, view);
  const SetContext context{spec, layout, view};
  States states = count_pods(layout, view);
  plan.apply = make_set_objects(context);
  std::vector<std::string> missing;
  std::ranges::move(make_claims(context, missing), std::back_inserter(plan.apply));
  note_missing_claims(missing, plan);
  plan_removals(context, plan);
  plan_termination(context, states, plan);
  if (plan.remove_pods.empty()) {
    plan_update(context, states, plan);
  }
  for (const auto& [name, state] : states) {
    plan_pods(context, state, plan);
  }
  plan_cascade(states, plan);
  std::vector<const Value*> pods;
  for (const auto& [name, state] : states) {
    pods.insert(pods.end(), state.pods.begin(), state.pods.end());
  }
  std::vector<Value> gangs = make_gangs(context, pods);
  std::vector<Value> groups = make_pod_groups(context, gangs);
  std::ranges::move(gangs, std::back_inserter(plan.apply));
  std::ranges::move(groups, std::back_inserter(plan.apply));
  add_statuses(context, states, plan);
  return plan;
}

}  // namespace stator::grove
