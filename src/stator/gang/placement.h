// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "stator/core/result.h"

namespace stator::gang {

/// Kinds of resources that one cluster may have: cpu, memory, GPUs, pods and a few more.
inline constexpr size_t kResourceKindsMax = 8;

/// Amounts by kind, in the smallest whole unit of each (millicores, bytes, devices).
struct Amounts {
  std::array<int64_t, kResourceKindsMax> of{};

  bool covers(const Amounts& other) const;
  void add(const Amounts& other, int64_t times = 1);
  /// How many times `demand` fits; a demand of nothing fits INT32_MAX times.
  int64_t count(const Amounts& demand) const;
};

/// Where a group must or should be together: indices of topology levels, broad to narrow.
struct Pack {
  std::optional<uint32_t> required;   ///< never wider than one domain of this level
  std::optional<uint32_t> preferred;  ///< one domain of this level where that is possible
};

/// Pods that are alike: a clique.
struct PodGroup {
  std::string name;
  uint32_t pods_min = 0;    ///< placed with the gang, or the gang is not
  uint32_t pods_extra = 0;  ///< placed after it, one by one, as far as there is room
  Amounts demand = {};      ///< of one pod
  Pack pack = {};
  uint32_t selector = 0;   ///< index from Cluster::add_selector; 0: every node
  bool is_spread = false;  ///< at most one of its pods on a node
};

/// Groups with a rule of their own: a replica of a scaling group, or a clique on its own.
struct GroupSet {
  std::vector<PodGroup> groups;
  Pack pack = {};
};

struct Gang {
  std::string name;
  std::vector<GroupSet> sets;
  Pack pack = {};
};

/// Which node has which pod; groups in the order of the gang's sets and groups.
struct Placement {
  struct Group {
    std::vector<uint32_t> nodes;  ///< of the minimum, then of the extras that found room
    uint32_t extra_unplaced = 0;
  };
  std::vector<Group> groups;
  /// Share of the preferences that were met, 1 where there was none.
  double score = 1;
};

struct Node {
  std::string name;
  Amounts free = {};
  /// The node's domain at each level, broad to narrow; an empty name: the node is in none there,
  /// and takes no pods that require this level.
  std::vector<std::string> domains = {};
};

/// Places gangs on nodes, all of a gang's minimum or nothing. A pure computation: no clock, no
/// lock, no I/O; one thread. The same nodes and gangs in the same order give the same placement.
///
/// How: nodes are sorted by their domains, so every domain is a range of nodes. A group with a rule
/// tries the domains of its preferred level, tightest that has room first, then wider ones up to
/// the required level. Inside a domain its parts are placed in turn, the largest first, and undone
/// when one of them finds no room. Pods of one group fill the narrowest domain that holds them.
///
/// Cost: O(nodes of the domain) for a group in it; at most kAttemptsMax domains are tried per
/// level and group, so a gang costs at most kAttemptsMax² × O(nodes of a domain).
///
/// I1: the free amounts of no node are ever below zero. I2: place() that fails changes nothing.
class Cluster {
 public:
  static constexpr size_t kAttemptsMax = 64;

  /// `levels`: how many topology levels the nodes have. kInvalidArgument when a node has another
  /// number of domains.
  static Result<Cluster> create(std::vector<Node> nodes, uint32_t levels);

  /// Nodes by name that a group may use; the result goes into PodGroup::selector.
  uint32_t add_selector(std::vector<bool> may_use);

  /// kUnavailable, naming the part that found no room, when the minimum does not fit.
  Result<Placement> place(const Gang& gang);
  /// Gives back or takes what pods on a node hold.
  void release(uint32_t node, const Amounts& amounts) { nodes_[node].free.add(amounts); }
  Status take(uint32_t node, const Amounts& amounts);

  std::span<const Node> nodes() const { return nodes_; }
  std::optional<uint32_t> find_node(std::string_view name) const;
  /// The domain a node belongs to, to compare with another node's.
  uint32_t domain_of(uint32_t node, uint32_t level) const { return domain_of_[level][node]; }

 private:
  struct Range {
    uint32_t begin = 0;
    uint32_t end = 0;
    uint32_t level = 0;  ///< of the domain; levels_ for one node, kWhole for the cluster
    bool is_named = true;
  };
  struct Run;
  static constexpr uint32_t kWhole = UINT32_MAX;

  Cluster(std::vector<Node> nodes, uint32_t levels);
  uint32_t next_level(const Range& range) const;
  std::span<const Range> children(const Range& range) const;
  std::span<const Range> domains_within(const Range& range, uint32_t level) const;
  int64_t room(const PodGroup& group, const Range& range) const;
  int64_t room_on(const PodGroup& group, uint32_t node) const;
  bool place_set(Run& run, std::span<const GroupSet> sets, const Pack& pack, const Range& range);
  bool place_groups(Run& run, const GroupSet& set, const Range& range);
  bool place_group(Run& run, const PodGroup& group, const Range& range);
  bool fill(Run& run, const PodGroup& group, const Range& range, uint32_t& left);
  void fill_nodes(Run& run, const PodGroup& group, const Range& range, uint32_t& left);
  PodGroup away_from(PodGroup group, const std::vector<uint32_t>& nodes);
  void place_extras(const Gang& gang, Run& run, Placement& placement);
  template <typename Fits, typename Try>
  bool try_domains(Run& run, const Pack& pack, const Range& range, Fits fits, Try attempt);
  Range domain_around(uint32_t node, uint32_t level) const;

  std::vector<Node> nodes_;  ///< sorted by their domains
  uint32_t levels_;
  std::vector<std::vector<Range>> ranges_;        ///< by level, in order of nodes
  std::vector<std::vector<uint32_t>> domain_of_;  ///< by level and node: index into ranges_
  std::vector<Range> single_;                     ///< one range for each node
  std::vector<std::vector<bool>> selectors_;
};

}  // namespace stator::gang
