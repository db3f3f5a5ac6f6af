// SPDX-License-Identifier: Apache-2.0
#include "stator/grove/gang_schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <unordered_map>

#include "stator/gang/placement.h"
#include "stator/grove/layout.h"
#include "stator/grove/names.h"
#include "stator/grove/node_match.h"
#include "stator/grove/pod_groups.h"
#include "stator/grove/set_status.h"

namespace stator::grove {
namespace {

using json::Value;
using namespace std::chrono_literals;

/// So long may a pod that was let go find no node before its gang starts anew.
constexpr Duration kUnboundMax = 30s;

/// Resources by number: as many kinds as the placement counts; further ones are left to the
/// cluster's scheduler.
class Resources {
 public:
  gang::Amounts read(const Value& amounts, bool is_demand) {
    gang::Amounts sum;
    for (const json::Member& amount : amounts.members()) {
      const auto kind = number_of(amount.key, is_demand);
      if (kind < gang::kResourceKindsMax) {
        sum.of[kind] = kube::parse_quantity_milli(amount.value.text()).value_or(0);
      }
    }
    return sum;
  }
  size_t number_of(const std::string& name, bool adds) {
    const auto found = std::ranges::find(names_, name);
    if (found != names_.end()) {
      return static_cast<size_t>(found - names_.begin());
    }
    if (!adds || names_.size() >= gang::kResourceKindsMax) {
      return gang::kResourceKindsMax;
    }
    names_.push_back(name);
    return names_.size() - 1;
  }

 private:
  std::vector<std::string> names_ = {"pods", "cpu", "memory"};
};

gang::Amounts demand_of(const Value& pod, Resources& resources) {
  gang::Amounts sum;
  const Value& spec = pod.at("spec");
  const auto of_container = [&](const Value& container) {
    gang::Amounts own = resources.read(container.at("resources").at("limits"), true);
    const gang::Amounts asked = resources.read(container.at("resources").at("requests"), true);
    for (size_t kind = 0; kind < gang::kResourceKindsMax; ++kind) {
      own.of[kind] = asked.of[kind] > 0 ? asked.of[kind] : own.of[kind];
    }
    return own;
  };
  for (const Value& container : spec.at("containers").elements()) {
    sum.add(of_container(container));
  }
  for (const Value& container : spec.at("initContainers").elements()) {
    const gang::Amounts own = of_container(container);
    for (size_t kind = 0; kind < gang::kResourceKindsMax; ++kind) {
      sum.of[kind] = std::max(sum.of[kind], own.of[kind]);
    }
  }
  sum.add(resources.read(spec.at("overhead"), true));
  sum.of[0] = 1000;  // one pod, in thousandths
  return sum;
}

/// One topology's view of the nodes, kept in step with the others.
struct Map {
  gang::Cluster cluster;
  std::vector<std::string> keys;  ///< node labels, broad to narrow
  std::unordered_map<std::string, uint32_t> index;
  std::map<std::string, uint32_t> selectors;
};

/// The pods of one PodGroup.
struct Group {
  std::string name;
  int64_t least = 1;
  gang::Pack pack;
  std::vector<const Value*> placed;
  std::vector<const Value*> open;  ///< without a node
  int64_t ready = 0;
};

struct Rules {
  gang::Pack whole;
  std::vector<std::pair<std::set<std::string>, gang::Pack>> sets;
};

class Scheduler {
 public:
  explicit Scheduler(const ScheduleView& view) : view_(view) {
    for (const Value& pod : view.pods) {
      const std::string_view gang = kube::label_of(pod, kGang);
      if (!gang.empty() && !is_terminating(pod) && !is_over(pod)) {
        by_gang_[{kube::name_of(pod).space, std::string(gang)}].push_back(&pod);
      }
    }
    for (auto& [gang, pods] : by_gang_) {
      for (const Value* pod : pods) {
        demand_of(*pod, resources_);  // so that its kinds are counted
      }
    }
    count_used();
  }

  Schedule run() {
    std::vector<const Value*> gangs;
    for (const Value& gang : view_.gangs) {
      gangs.push_back(&gang);
    }
    std::ranges::sort(gangs, [&](const Value* a, const Value* b) { return rank(*a) < rank(*b); });
    for (const Value* gang : gangs) {
      handle(*gang);
    }
    return std::move(schedule_);
  }

 private:
  using Rank = std::tuple<bool, int64_t, std::string, kube::ObjectName>;

  std::string node_for(const Value& pod) const {
    const auto assumed = view_.assumed.find(std::string(kube::uid_of(pod)));
    const std::string_view own = node_of(pod);
    return own.empty() && assumed != view_.assumed.end() ? assumed->second : std::string(own);
  }

  void count_used() {
    for (const Value& pod : view_.pods) {
      const std::string node = is_over(pod) ? "" : node_for(pod);
      if (!node.empty()) {
        used_[node].add(demand_of(pod, resources_));
      }
    }
  }

  Rank rank(const Value& gang) const {
    const kube::ObjectName name = kube::name_of(gang);
    const auto pods = by_gang_.find(name);
    const int64_t priority =
        pods == by_gang_.end() ? 0 : kube::int_at(*pods->second.front(), {"spec", "priority"}, 0);
    return {!kube::label_of(gang, kBaseGang).empty(), -priority,
            std::string(gang.text_at({"metadata", "creationTimestamp"})), name};
  }

  Map& map_of(const std::string& topology) {
    const auto found = maps_.find(topology);
    if (found != maps_.end()) {
      return found->second;
    }
    std::vector<std::string> keys;
    if (const Value* binding = find_object(view_.topologies, topology)) {
      for (const Value& level : binding->at("spec").at("levels").elements()) {
        keys.emplace_back(level.text_at({"key"}));
      }
    }
    std::vector<gang::Node> nodes;
    for (const Value& node : view_.nodes) {
      gang::Node made{.name = kube::name_of(node).name};
      made.free = resources_.read(node.at("status").at("allocatable"), false);
      if (const auto used = used_.find(made.name); used != used_.end()) {
        made.free.add(used->second, -1);
      }
      for (const std::string& key : keys) {
        made.domains.emplace_back(kube::label_of(node, key));
      }
      nodes.push_back(std::move(made));
    }
    const auto levels = static_cast<uint32_t>(keys.size());
    Map map{.cluster = gang::Cluster::create(std::move(nodes), levels).value(),
            .keys = std::move(keys),
            .index = {},
            .selectors = {}};
    for (uint32_t i = 0; i < map.cluster.nodes().size(); ++i) {
      map.index.emplace(map.cluster.nodes()[i].name, i);
    }
    return maps_.emplace(topology, std::move(map)).first->second;
  }

  /// Where the pods are that a selector finds.
  struct Apart {
    const Value* selector = nullptr;
    std::string space;
    std::set<std::string> nodes;
  };
  static void note(Apart& apart, const Value& pod, const std::string& node) {
    if (!node.empty() && kube::name_of(pod).space == apart.space && selects(*apart.selector, pod)) {
      apart.nodes.insert(node);
    }
  }

  static gang::Pack pack_of(const Value& owner, const Map& map) {
    gang::Pack pack;
    const Value& rule = owner.at("topologyConstraint").at("packConstraint");
    const auto level = [&](std::string_view key) -> std::optional<uint32_t> {
      const auto found = std::ranges::find(map.keys, key);
      return found == map.keys.end() || key.empty()
                 ? std::nullopt
                 : std::optional(static_cast<uint32_t>(found - map.keys.begin()));
    };
    pack.required = level(rule.text_at({"required"}));
    pack.preferred = level(rule.text_at({"preferred"}));
    return pack;
  }

  std::vector<Group> groups_of(const Value& gang, const Map& map) const {
    std::vector<Group> groups;
    std::map<std::string, size_t> index;
    for (const Value& entry : gang.at("spec").at("podgroups").elements()) {
      Group group{.name = std::string(entry.text_at({"name"})),
                  .least = kube::int_at(entry, {"minReplicas"}, 1),
                  .pack = pack_of(entry, map),
                  .placed = {},
                  .open = {}};
      index.emplace(group.name, groups.size());
      groups.push_back(std::move(group));
    }
    const auto pods = by_gang_.find(kube::name_of(gang));
    if (pods == by_gang_.end()) {
      return groups;
    }
    for (const Value* pod : pods->second) {
      const auto own = index.find(std::string(kube::label_of(*pod, kClique)));
      if (own != index.end()) {
        Group& group = groups[own->second];
        (node_for(*pod).empty() ? group.open : group.placed).push_back(pod);
        group.ready += is_ready(*pod) ? 1 : 0;
      }
    }
    for (Group& group : groups) {
      std::ranges::sort(group.open, {}, [](const Value* pod) {
        const std::string index_text(kube::label_of(*pod, kPodIndex));
        return std::pair(std::strtoll(index_text.c_str(), nullptr, 10), kube::name_of(*pod).name);
      });
    }
    return groups;
  }

  /// Whether the gang that this one was scaled from has its minimum.
  bool has_base(const Value& gang) const {
    const std::string_view base = kube::label_of(gang, kBaseGang);
    return base.empty() || complete_.contains({kube::name_of(gang).space, std::string(base)});
  }

  void handle(const Value& gang) {
    const kube::ObjectName name = kube::name_of(gang);
    const auto pods = by_gang_.find(name);
    if (is_terminating(gang) || pods == by_gang_.end()) {
      return;
    }
    Map& map = map_of(std::string(kube::annotation_of(gang, kTopologyName)));
    std::vector<Group> groups = groups_of(gang, map);
    const bool all_there = std::ranges::all_of(groups, [](const Group& group) {
      return static_cast<int64_t>(group.placed.size() + group.open.size()) >= group.least;
    });
    const bool wants = std::ranges::any_of(groups, [](const Group& g) { return !g.open.empty(); });
    if (is_placed_by_others(*pods->second.front())) {
      if (all_there && has_base(gang)) {
        open_for_others(name, groups);
      }
      return;
    }
    if (reset(groups)) {
      return;
    }
    if (wants && all_there && has_base(gang)) {
      place(gang, map, groups);
    }
    const bool complete = std::ranges::all_of(groups, [](const Group& group) {
      return static_cast<int64_t>(group.placed.size()) >= group.least;
    });
    if (complete) {
      complete_.insert(name);
      open_gates(groups);
    }
  }

  /// KAI and Volcano choose the nodes themselves: pods are only held back until all are there, and
  /// until the base gang and the cliques before them are.
  void open_for_others(const kube::ObjectName& name, const std::vector<Group>& groups) {
    bool complete = true;
    for (const Group& group : groups) {
      const auto scheduled =
          std::ranges::count_if(group.placed, [](const Value* pod) { return is_scheduled(*pod); });
      complete = complete && scheduled >= group.least;
      for (const Value* pod : group.open) {
        if (is_gated(*pod) && may_start(*pod, groups)) {
          schedule_.releases.push_back({pod, "", true});
        }
      }
    }
    if (complete) {
      complete_.insert(name);
    }
  }

  /// Others took the room between our choice and the binding: nothing of the gang stays.
  bool reset(const std::vector<Group>& groups) {
    bool is_stuck = false;
    bool is_whole = true;
    for (const Group& group : groups) {
      int64_t bound = 0;
      for (const Value* pod : group.placed) {
        bound += is_scheduled(*pod) ? 1 : 0;
        if (is_scheduled(*pod) || is_gated(*pod)) {
          continue;
        }
        const auto since = condition_since(pod, "PodScheduled", "False");
        is_stuck = is_stuck || (since && view_.now - *since > kUnboundMax);
      }
      is_whole = is_whole && bound >= group.least;
    }
    if (!is_stuck || is_whole) {
      return false;
    }
    for (const Group& group : groups) {
      schedule_.resets.insert(schedule_.resets.end(), group.placed.begin(), group.placed.end());
    }
    return true;
  }

  Rules rules_of(const Value& gang, const Map& map) const {
    Rules rules{.whole = pack_of(gang.at("spec"), map), .sets = {}};
    for (const Value& config : gang.at("spec").at("topologyConstraintGroupConfigs").elements()) {
      std::set<std::string> names;
      for (const Value& member : config.at("podGroupNames").elements()) {
        names.emplace(member.text());
      }
      rules.sets.emplace_back(std::move(names), pack_of(config, map));
    }
    return rules;
  }

  /// Whether pods like this one keep away from each other, too.
  static bool is_spread(const Value& pod) {
    return std::ranges::any_of(apart_from(pod.at("spec")),
                               [&](const Value* selector) { return selects(*selector, pod); });
  }

  /// The nodes of pods that this one must not share a node with, those just chosen among them.
  std::set<std::string> taken_nodes(const Value& pod) {
    std::set<std::string> nodes;
    const std::string space = kube::name_of(pod).space;
    for (const Value* selector : apart_from(pod.at("spec"))) {
      Apart& apart = apart_[space + json::to_text(*selector)];
      if (apart.selector == nullptr) {
        apart = {selector, space, {}};
        for (const Value& other : view_.pods) {
          note(apart, other, is_over(other) ? std::string() : node_for(other));
        }
        for (const auto& [other, node] : chosen_) {
          note(apart, *other, node);
        }
      }
      nodes.insert(apart.nodes.begin(), apart.nodes.end());
    }
    return nodes;
  }

  /// Nodes that pods like this one may have; where others of the gang run already, those of their
  /// domains only.
  uint32_t selector_for(Map& map, const Value& pod, const std::vector<Group>& groups,
                        const Group& group, const Rules& rules) {
    std::vector<std::pair<uint32_t, uint32_t>> within;  // level, a node whose domain it is
    const auto keep = [&](const gang::Pack& pack, const std::vector<const Value*>& placed) {
      if (pack.required && !placed.empty()) {
        const auto node = map.index.find(node_for(*placed.front()));
        if (node != map.index.end()) {
          within.emplace_back(*pack.required, node->second);
        }
      }
    };
    keep(group.pack, group.placed);
    for (const Group& other : groups) {
      keep(rules.whole, other.placed);
      for (const auto& [names, pack] : rules.sets) {
        if (names.contains(group.name) && names.contains(other.name)) {
          keep(pack, other.placed);
        }
      }
    }
    std::ranges::sort(within);
    std::string key = placement_signature(pod.at("spec"));
    const std::set<std::string> taken = taken_nodes(pod);
    for (const std::string& node : taken) {
      key += "!" + node;
    }
    for (const auto& [level, node] : within) {
      key += fmt::format("|{}:{}", level, map.cluster.domain_of(node, level));
    }
    const auto known = map.selectors.find(key);
    if (known != map.selectors.end()) {
      return known->second;
    }
    std::vector<bool> allowed(map.cluster.nodes().size());
    for (const Value& node : view_.nodes) {
      const uint32_t index = map.index.at(kube::name_of(node).name);
      allowed[index] = !taken.contains(kube::name_of(node).name) &&
                       may_run_on(pod.at("spec"), node) &&
                       std::ranges::all_of(within, [&](const auto& rule) {
                         return map.cluster.domain_of(index, rule.first) ==
                                map.cluster.domain_of(rule.second, rule.first);
                       });
    }
    return map.selectors.emplace(key, map.cluster.add_selector(std::move(allowed))).first->second;
  }

  void place(const Value& gang, Map& map, std::vector<Group>& groups) {
    const Rules rules = rules_of(gang, map);
    gang::Gang wanted{.name = kube::name_of(gang).name, .sets = {}, .pack = rules.whole};
    std::vector<Group*> order;
    const auto add = [&](const std::set<std::string>* names, const gang::Pack& pack) {
      gang::GroupSet set{.groups = {}, .pack = pack};
      for (Group& group : groups) {
        const bool is_grouped = std::ranges::any_of(
            rules.sets, [&](const auto& rule) { return rule.first.contains(group.name); });
        const bool is_member = names != nullptr ? names->contains(group.name) : !is_grouped;
        if (!is_member || group.open.empty()) {
          continue;
        }
        const auto missing =
            std::max<int64_t>(0, group.least - static_cast<int64_t>(group.placed.size()));
        const auto least = std::min<int64_t>(missing, static_cast<int64_t>(group.open.size()));
        set.groups.push_back(
            {.name = group.name,
             .pods_min = static_cast<uint32_t>(least),
             .pods_extra = static_cast<uint32_t>(group.open.size()) - static_cast<uint32_t>(least),
             .demand = demand_of(*group.open.front(), resources_),
             .pack = group.pack,
             .selector = selector_for(map, *group.open.front(), groups, group, rules),
             .is_spread = is_spread(*group.open.front())});
        order.push_back(&group);
      }
      if (!set.groups.empty()) {
        wanted.sets.push_back(std::move(set));
      }
    };
    for (const auto& [names, pack] : rules.sets) {
      add(&names, pack);
    }
    add(nullptr, {});
    auto placed = map.cluster.place(wanted);
    if (!placed) {
      schedule_.waiting.emplace(kube::name_of(gang), placed.error().message());
      return;
    }
    schedule_.placed += 1;
    schedule_.scores.emplace(kube::name_of(gang), placed->score);
    for (size_t i = 0; i < order.size(); ++i) {
      take(map, *order[i], placed->groups[i].nodes);
    }
  }

  void take(Map& map, Group& group, const std::vector<uint32_t>& nodes) {
    for (size_t i = 0; i < nodes.size(); ++i) {
      const Value* pod = group.open[i];
      const std::string& name = map.cluster.nodes()[nodes[i]].name;
      chosen_.emplace(pod, name);
      for (auto& [key, apart] : apart_) {
        note(apart, *pod, name);
      }
      group.placed.push_back(pod);
      const gang::Amounts demand = demand_of(*pod, resources_);
      used_[name].add(demand);
      for (auto& [topology, other] : maps_) {
        if (&other != &map) {
          other.cluster.take(other.index.at(name), demand).ignore("the maps are kept in step");
        }
      }
    }
    group.open.erase(group.open.begin(), group.open.begin() + static_cast<ptrdiff_t>(nodes.size()));
  }

  bool may_start(const Value& pod, const std::vector<Group>& groups) const {
    std::string_view parents = kube::annotation_of(pod, kStartsAfter);
    while (!parents.empty()) {
      const size_t comma = std::min(parents.find(','), parents.size());
      const std::string_view parent = parents.substr(0, comma);
      const auto group = std::ranges::find(groups, parent, &Group::name);
      if (group != groups.end() && group->ready < group->least) {
        return false;
      }
      parents.remove_prefix(std::min(comma + 1, parents.size()));
    }
    return true;
  }

  void open_gates(const std::vector<Group>& groups) {
    for (const Group& group : groups) {
      for (const Value* pod : group.placed) {
        if (!is_gated(*pod)) {
          continue;
        }
        const auto chosen = chosen_.find(pod);
        const bool opens = may_start(*pod, groups);
        const bool is_known =
            view_.assumed.contains(std::string(kube::uid_of(*pod))) && node_of(*pod).empty();
        if (is_known) {
          continue;  // our patch is on its way
        }
        if (opens || chosen != chosen_.end()) {
          schedule_.releases.push_back({pod, chosen == chosen_.end() ? "" : chosen->second, opens});
        }
      }
    }
  }

  const ScheduleView& view_;
  Resources resources_;
  std::map<kube::ObjectName, std::vector<const Value*>> by_gang_;
  std::unordered_map<std::string, gang::Amounts> used_;
  std::map<std::string, Map> maps_;
  std::map<const Value*, std::string> chosen_;
  std::map<std::string, Apart> apart_;  ///< by namespace and selector
  std::set<kube::ObjectName> complete_;
  Schedule schedule_;
};

}  // namespace

Schedule schedule_gangs(const ScheduleView& view) {
  return Scheduler(view).run();
}

Value release_patch(const Release& release) {
  Value patch = Value::object();
  patch["metadata"]["resourceVersion"] = release.pod->text_at({"metadata", "resourceVersion"});
  if (release.opens) {
    Value rest = Value::array();
    for (const Value& gate : release.pod->at("spec").at("schedulingGates").elements()) {
      if (gate.text_at({"name"}) != kGate) {
        rest.push_back(gate);
      }
    }
    patch["spec"]["schedulingGates"] = rest.size() == 0 ? Value() : std::move(rest);
  }
  if (!release.node.empty()) {
    Value field = Value::object();
    field["key"] = "metadata.name";
    field["operator"] = "In";
    field["values"].push_back(release.node);
    const Value& own = release.pod->at("spec")
                           .at("affinity")
                           .at("nodeAffinity")
                           .at("requiredDuringSchedulingIgnoredDuringExecution")
                           .at("nodeSelectorTerms");
    Value terms = own.size() == 0 ? Value::array() : own;
    if (terms.size() == 0) {
      terms.push_back(Value::object());
    }
    for (Value& term : *terms.mutable_elements()) {
      term["matchFields"].push_back(field);
    }
    kube::at(patch, {"spec", "affinity", "nodeAffinity",
                     "requiredDuringSchedulingIgnoredDuringExecution"})["nodeSelectorTerms"] =
        std::move(terms);
  }
  return patch;
}

}  // namespace stator::grove
