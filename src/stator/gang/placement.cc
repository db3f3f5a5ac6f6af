// SPDX-License-Identifier: Apache-2.0
#include "stator/gang/placement.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

namespace stator::gang {

bool Amounts::covers(const Amounts& other) const {
  for (size_t kind = 0; kind < kResourceKindsMax; ++kind) {
    if (of[kind] < other.of[kind]) {
      return false;
    }
  }
  return true;
}

void Amounts::add(const Amounts& other, int64_t times) {
  for (size_t kind = 0; kind < kResourceKindsMax; ++kind) {
    of[kind] += other.of[kind] * times;
  }
}

int64_t Amounts::count(const Amounts& demand) const {
  int64_t count = INT32_MAX;
  for (size_t kind = 0; kind < kResourceKindsMax; ++kind) {
    if (demand.of[kind] > 0) {
      count = std::min(count, std::max<int64_t>(of[kind], 0) / demand.of[kind]);
    }
  }
  return count;
}

/// What one place() has done so far, so that it can be undone.
struct Cluster::Run {
  struct Put {
    uint32_t node;
    const PodGroup* group;
  };
  std::vector<Put> done;
  uint32_t wishes = 0;
  uint32_t met = 0;
  std::string no_room;  ///< the part that found none, last
};

Cluster::Cluster(std::vector<Node> nodes, uint32_t levels)
    : nodes_(std::move(nodes)), levels_(levels) {
  std::ranges::sort(nodes_, [](const Node& a, const Node& b) {
    return std::tie(a.domains, a.name) < std::tie(b.domains, b.name);
  });
  const auto count = static_cast<uint32_t>(nodes_.size());
  ranges_.resize(levels_);
  domain_of_.resize(levels_);
  for (uint32_t level = 0; level < levels_; ++level) {
    std::vector<uint32_t>& domain_of = domain_of_[level];
    domain_of.resize(count);
    for (uint32_t node = 0; node < count; ++node) {
      const auto& path = nodes_[node].domains;
      const bool starts = node == 0 || !std::equal(path.begin(), path.begin() + level + 1,
                                                   nodes_[node - 1].domains.begin());
      if (starts) {
        ranges_[level].push_back({node, node, level, !path[level].empty()});
      }
      ranges_[level].back().end = node + 1;
      domain_of[node] = static_cast<uint32_t>(ranges_[level].size() - 1);
    }
  }
  for (uint32_t node = 0; node < count; ++node) {
    single_.push_back({node, node + 1, levels_, true});
  }
  selectors_.emplace_back();  // 0: every node
}

Result<Cluster> Cluster::create(std::vector<Node> nodes, uint32_t levels) {
  for (const Node& node : nodes) {
    if (node.domains.size() != levels) {
      return Error(Code::kInvalidArgument,
                   fmt::format("node {} names {} topology domains, the topology has {} levels",
                               node.name, node.domains.size(), levels));
    }
  }
  return Cluster(std::move(nodes), levels);
}

uint32_t Cluster::add_selector(std::vector<bool> may_use) {
  may_use.resize(nodes_.size(), false);
  selectors_.push_back(std::move(may_use));
  return static_cast<uint32_t>(selectors_.size() - 1);
}

Status Cluster::take(uint32_t node, const Amounts& amounts) {
  if (!nodes_[node].free.covers(amounts)) {
    return Error(Code::kOverloaded, fmt::format("node {} has less free", nodes_[node].name));
  }
  nodes_[node].free.add(amounts, -1);
  return {};
}

std::optional<uint32_t> Cluster::find_node(std::string_view name) const {
  const auto it = std::ranges::find(nodes_, name, &Node::name);
  return it == nodes_.end() ? std::nullopt
                            : std::optional<uint32_t>(static_cast<uint32_t>(it - nodes_.begin()));
}

uint32_t Cluster::next_level(const Range& range) const {
  return range.level == kWhole ? 0 : std::min(range.level + 1, levels_);
}

std::span<const Cluster::Range> Cluster::domains_within(const Range& range, uint32_t level) const {
  if (range.begin == range.end) {
    return {};
  }
  if (level >= levels_) {
    return std::span(single_).subspan(range.begin, range.end - range.begin);
  }
  const uint32_t first = domain_of_[level][range.begin];
  const uint32_t last = domain_of_[level][range.end - 1];
  return std::span(ranges_[level]).subspan(first, last - first + 1);
}

std::span<const Cluster::Range> Cluster::children(const Range& range) const {
  return domains_within(range, next_level(range));
}

int64_t Cluster::room_on(const PodGroup& group, uint32_t node) const {
  const std::vector<bool>& allowed = selectors_[group.selector];
  const bool may_use = allowed.empty() || allowed[node];
  const int64_t count = may_use ? nodes_[node].free.count(group.demand) : 0;
  return group.is_spread ? std::min<int64_t>(count, 1) : count;
}

int64_t Cluster::room(const PodGroup& group, const Range& range) const {
  int64_t sum = 0;
  for (uint32_t node = range.begin; node < range.end; ++node) {
    sum += room_on(group, node);
  }
  return sum;
}

/// Tries the domains of a rule's levels, narrow to wide. `fits` estimates from above how much room
/// a domain has (-1: too little), `attempt` places into it or changes nothing.
template <typename Fits, typename Try>
bool Cluster::try_domains(Run& run, const Pack& pack, const Range& range, Fits fits, Try attempt) {
  const uint32_t here = next_level(range);  // levels below `here` are wider than the range itself
  const bool has_required = pack.required && *pack.required >= here;
  const uint32_t widest = has_required ? *pack.required : here;
  const uint32_t narrowest = pack.preferred ? std::max(*pack.preferred, widest) : widest;
  const bool may_use_range = !has_required;
  run.wishes += pack.preferred ? 1 : 0;
  const bool wants_levels = has_required || (pack.preferred && *pack.preferred >= here);
  for (uint32_t level = narrowest + 1; wants_levels && level-- > widest;) {
    std::vector<std::pair<int64_t, uint32_t>> candidates;  // room, index
    const auto domains = domains_within(range, level);
    for (uint32_t index = 0; index < domains.size(); ++index) {
      if (!domains[index].is_named) {
        continue;
      }
      if (const int64_t room = fits(domains[index]); room >= 0) {
        candidates.emplace_back(room, index);
      }
    }
    std::ranges::sort(candidates);
    for (size_t i = 0; i < std::min(candidates.size(), kAttemptsMax); ++i) {
      const size_t mark = run.done.size();
      const auto [wishes, met] = std::pair(run.wishes, run.met);
      if (attempt(domains[candidates[i].second])) {
        run.met += pack.preferred && level >= *pack.preferred ? 1 : 0;
        return true;
      }
      for (; run.done.size() > mark; run.done.pop_back()) {
        nodes_[run.done.back().node].free.add(run.done.back().group->demand);
      }
      run.wishes = wishes;
      run.met = met;
    }
  }
  if (!may_use_range) {
    return false;
  }
  const bool already_narrow = pack.preferred && *pack.preferred < here;
  run.met += already_narrow ? 1 : 0;
  return attempt(range);
}

void Cluster::fill_nodes(Run& run, const PodGroup& group, const Range& range, uint32_t& left) {
  std::vector<std::pair<int64_t, uint32_t>> rooms;
  for (uint32_t node = range.begin; node < range.end; ++node) {
    if (const int64_t room = room_on(group, node); room > 0) {
      rooms.emplace_back(room, node);
    }
  }
  // The tightest node that takes all that is left, else the roomiest: few nodes, few holes.
  std::ranges::sort(rooms);
  while (left > 0 && !rooms.empty()) {
    auto chosen = std::ranges::lower_bound(rooms, std::pair<int64_t, uint32_t>(left, 0));
    if (chosen == rooms.end()) {
      --chosen;
    }
    const auto count = static_cast<uint32_t>(std::min<int64_t>(chosen->first, left));
    nodes_[chosen->second].free.add(group.demand, -int64_t{count});
    run.done.insert(run.done.end(), count, {chosen->second, &group});
    left -= count;
    rooms.erase(chosen);
  }
}

bool Cluster::fill(Run& run, const PodGroup& group, const Range& range, uint32_t& left) {
  if (next_level(range) >= levels_) {
    fill_nodes(run, group, range, left);
    return left == 0;
  }
  std::vector<std::pair<int64_t, uint32_t>> rooms;
  const auto parts = children(range);
  for (uint32_t index = 0; index < parts.size(); ++index) {
    if (const int64_t room = this->room(group, parts[index]); room > 0) {
      rooms.emplace_back(room, index);
    }
  }
  std::ranges::sort(rooms);
  while (left > 0 && !rooms.empty()) {
    auto chosen = std::ranges::lower_bound(rooms, std::pair<int64_t, uint32_t>(left, 0));
    if (chosen == rooms.end()) {
      --chosen;
    }
    const Range& part = parts[chosen->second];
    rooms.erase(chosen);
    fill(run, group, part, left);
  }
  return left == 0;
}

bool Cluster::place_group(Run& run, const PodGroup& group, const Range& range) {
  const auto fits = [&](const Range& domain) {
    const int64_t room = this->room(group, domain);
    return room >= group.pods_min ? room : -1;
  };
  const bool placed = try_domains(run, group.pack, range, fits, [&](const Range& domain) {
    uint32_t left = group.pods_min;
    return fill(run, group, domain, left);
  });
  if (!placed) {
    run.no_room = group.name;
  }
  return placed;
}

bool Cluster::place_groups(Run& run, const GroupSet& set, const Range& range) {
  const auto fits = [&](const Range& domain) {
    int64_t sum = 0;
    for (const PodGroup& group : set.groups) {
      const int64_t room = this->room(group, domain);
      if (room < group.pods_min) {
        return int64_t{-1};
      }
      sum += room;
    }
    return sum;
  };
  return try_domains(run, set.pack, range, fits, [&](const Range& domain) {
    return std::ranges::all_of(
        set.groups, [&](const PodGroup& group) { return place_group(run, group, domain); });
  });
}

bool Cluster::place_set(Run& run, std::span<const GroupSet> sets, const Pack& pack,
                        const Range& range) {
  const auto fits = [&](const Range& domain) {
    int64_t sum = 0;
    for (const GroupSet& set : sets) {
      for (const PodGroup& group : set.groups) {
        const int64_t room = this->room(group, domain);
        if (room < group.pods_min) {
          return int64_t{-1};
        }
        sum += room;
      }
    }
    return sum;
  };
  return try_domains(run, pack, range, fits, [&](const Range& domain) {
    return std::ranges::all_of(sets,
                               [&](const GroupSet& set) { return place_groups(run, set, domain); });
  });
}

Cluster::Range Cluster::domain_around(uint32_t node, uint32_t level) const {
  return level >= levels_ ? single_[node] : ranges_[level][domain_of_[level][node]];
}

/// The group without the nodes that have one of its pods already.
PodGroup Cluster::away_from(PodGroup group, const std::vector<uint32_t>& nodes) {
  std::vector<bool> allowed = selectors_[group.selector];
  if (allowed.empty()) {
    allowed.assign(nodes_.size(), true);
  }
  for (const uint32_t node : nodes) {
    allowed[node] = false;
  }
  group.selector = add_selector(std::move(allowed));
  return group;
}

/// Extra pods go where the minimum is, as near as the rules ask; without room there, anywhere that
/// the requirements allow.
void Cluster::place_extras(const Gang& gang, Run& run, Placement& placement) {
  size_t index = 0;
  for (const GroupSet& set : gang.sets) {
    for (const PodGroup& group : set.groups) {
      Placement::Group& placed = placement.groups[index++];
      Range widest{0, static_cast<uint32_t>(nodes_.size()), kWhole, true};
      Range nearest = widest;
      for (const Pack& pack : {gang.pack, set.pack, group.pack}) {
        if (placed.nodes.empty()) {
          break;
        }
        if (pack.required && (widest.level == kWhole || *pack.required > widest.level)) {
          widest = domain_around(placed.nodes.front(), *pack.required);
        }
        if (pack.preferred && (nearest.level == kWhole || *pack.preferred > nearest.level)) {
          nearest = domain_around(placed.nodes.front(), *pack.preferred);
        }
      }
      const bool is_wider =
          nearest.level == kWhole || (widest.level != kWhole && nearest.level < widest.level);
      nearest = is_wider ? widest : nearest;
      uint32_t left = group.pods_extra;
      for (const Range& range : {nearest, widest}) {
        const size_t mark = run.done.size();
        if (left > 0) {
          const PodGroup elsewhere = group.is_spread ? away_from(group, placed.nodes) : group;
          fill(run, elsewhere, range, left);
        }
        for (size_t i = mark; i < run.done.size(); ++i) {
          placed.nodes.push_back(run.done[i].node);
        }
      }
      placed.extra_unplaced = left;
    }
  }
}

Result<Placement> Cluster::place(const Gang& gang) {
  Run run;
  const Range whole{0, static_cast<uint32_t>(nodes_.size()), kWhole, true};
  // The largest part first: it has the fewest places to go.
  std::vector<GroupSet> sets = gang.sets;
  const auto pods = [](const GroupSet& set) {
    return std::accumulate(
        set.groups.begin(), set.groups.end(), uint64_t{0},
        [](uint64_t sum, const PodGroup& group) { return sum + group.pods_min; });
  };
  std::vector<size_t> order(sets.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::sort(order, [&](size_t a, size_t b) {
    const auto pods_a = pods(gang.sets[a]);
    const auto pods_b = pods(gang.sets[b]);
    return pods_a != pods_b ? pods_a > pods_b : a < b;
  });
  for (size_t i = 0; i < order.size(); ++i) {
    sets[i] = gang.sets[order[i]];
  }
  if (!place_set(run, sets, gang.pack, whole)) {
    for (const Run::Put& put : run.done) {
      nodes_[put.node].free.add(put.group->demand);  // I2
    }
    return Error(
        Code::kUnavailable,
        fmt::format("gang {}: no room for its minimum{}{}", gang.name,
                    run.no_room.empty() ? "" : ", the last that found none is ", run.no_room));
  }
  Placement placement;
  std::vector<std::vector<Placement::Group>> by_set(gang.sets.size());
  for (size_t i = 0; i < order.size(); ++i) {
    by_set[order[i]].resize(sets[i].groups.size());
    for (const Run::Put& put : run.done) {
      const PodGroup* first = sets[i].groups.data();
      if (put.group >= first && put.group < first + sets[i].groups.size()) {
        by_set[order[i]][static_cast<size_t>(put.group - first)].nodes.push_back(put.node);
      }
    }
  }
  for (auto& groups : by_set) {
    std::ranges::move(groups, std::back_inserter(placement.groups));
  }
  place_extras(gang, run, placement);
  placement.score = run.wishes == 0 ? 1.0 : static_cast<double>(run.met) / run.wishes;
  return placement;
}

}  // namespace stator::gang
