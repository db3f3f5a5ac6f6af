// SPDX-License-Identifier: Apache-2.0
// Ours against what Grove publishes of its own way: a gang's minimum is offered to a scheduler pod
// by pod within one topology domain after the other, taken as a whole or given back; replicas
// beyond the minimum are gangs of their own, after their base.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <deque>
#include <map>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "stator/core/random.h"
#include "stator/gang/placement.h"

namespace stator::gang {
namespace {

constexpr uint32_t kRacks = 12;
constexpr uint32_t kNodesOfRack = 4;
constexpr int64_t kGpus = 8;

struct Clique {
  uint32_t pods = 0;
  int64_t gpus = 0;  // of a pod
};

/// A base gang, and replicas of its scaling group that may follow, each on its own.
struct Job {
  std::vector<Clique> base;
  std::vector<std::vector<Clique>> scaled;
  bool is_required = false;
  bool is_preferred = false;
  uint64_t lasts = 0;
};

/// Nodes and how many of their GPUs a part of a job holds.
using Held = std::vector<std::pair<uint32_t, int64_t>>;

class Fleet {
 public:
  virtual ~Fleet() = default;
  virtual std::optional<Held> place(const std::vector<Clique>& gang, const Job& rules) = 0;
  virtual void release(const Held& held) = 0;
};

class Ours final : public Fleet {
 public:
  Ours() : cluster_(Cluster::create(nodes(), 1).value()) {}

  std::optional<Held> place(const std::vector<Clique>& gang, const Job& rules) override {
    Gang asked{.name = "g", .sets = {{}}};
    if (rules.is_required) {
      asked.pack.required = 0;
    }
    if (rules.is_preferred) {
      asked.pack.preferred = 0;
    }
    for (const Clique& clique : gang) {
      PodGroup group{.name = "c", .pods_min = clique.pods};
      group.demand.of[0] = clique.gpus;
      asked.sets[0].groups.push_back(group);
    }
    const auto placed = cluster_.place(asked);
    if (!placed) {
      return std::nullopt;
    }
    Held held;
    for (size_t c = 0; c < gang.size(); ++c) {
      for (const uint32_t node : placed->groups[c].nodes) {
        held.emplace_back(node, gang[c].gpus);
      }
    }
    return held;
  }

  void release(const Held& held) override {
    for (const auto& [node, gpus] : held) {
      Amounts amounts;
      amounts.of[0] = gpus;
      cluster_.release(node, amounts);
    }
  }

 private:
  static std::vector<Node> nodes() {
    std::vector<Node> all;
    for (uint32_t n = 0; n < kRacks * kNodesOfRack; ++n) {
      Node node{.name = "n" + std::to_string(n),
                .domains = {"r" + std::to_string(n / kNodesOfRack)}};
      node.free.of[0] = kGpus;
      all.push_back(std::move(node));
    }
    return all;
  }

  Cluster cluster_;
};

/// Pods one by one onto the fullest node that takes them; racks with the least room that is enough
/// come first.
class Published final : public Fleet {
 public:
  Published() : free_(size_t{kRacks} * kNodesOfRack, kGpus) {}

  std::optional<Held> place(const std::vector<Clique>& gang, const Job& rules) override {
    int64_t wanted = 0;
    for (const Clique& clique : gang) {
      wanted += clique.pods * clique.gpus;
    }
    if (rules.is_required || rules.is_preferred) {
      std::vector<uint32_t> racks(kRacks);
      std::iota(racks.begin(), racks.end(), 0);
      std::ranges::sort(racks, {}, [this](uint32_t rack) { return std::pair(room(rack), rack); });
      for (const uint32_t rack : racks) {
        if (room(rack) < wanted) {
          continue;
        }
        if (auto held = offer(gang, rack * kNodesOfRack, (rack + 1) * kNodesOfRack)) {
          return held;
        }
      }
      if (rules.is_required) {
        return std::nullopt;
      }
    }
    return offer(gang, 0, kRacks * kNodesOfRack);
  }

  void release(const Held& held) override {
    for (const auto& [node, gpus] : held) {
      free_[node] += gpus;
    }
  }

 private:
  int64_t room(uint32_t rack) const {
    const auto begin = free_.begin() + rack * kNodesOfRack;
    return std::accumulate(begin, begin + kNodesOfRack, int64_t{0});
  }

  std::optional<Held> offer(const std::vector<Clique>& gang, uint32_t begin, uint32_t end) {
    Held held;
    for (const Clique& clique : gang) {
      for (uint32_t pod = 0; pod < clique.pods; ++pod) {
        uint32_t best = end;
        for (uint32_t node = begin; node < end; ++node) {
          if (free_[node] >= clique.gpus && (best == end || free_[node] < free_[best])) {
            best = node;
          }
        }
        if (best == end) {
          release(held);
          return std::nullopt;
        }
        free_[best] -= clique.gpus;
        held.emplace_back(best, clique.gpus);
      }
    }
    return held;
  }

  std::vector<int64_t> free_;
};

/// 16 GPUs in pods of one to three sizes: gangs count alike, however they are cut.
std::vector<Clique> random_gang(Random& random) {
  constexpr std::array<int64_t, 4> kSizes = {1, 2, 4, 8};
  std::vector<Clique> gang;
  int64_t left = 16;
  for (uint64_t c = 1 + random.below(3); c > 0 && left > 0; --c) {
    const int64_t gpus = kSizes[random.below(kSizes.size())];
    const int64_t most = left / gpus;
    const int64_t pods = c == 1 ? most : random.below(static_cast<uint64_t>(most) + 1);
    if (pods > 0) {
      gang.push_back({static_cast<uint32_t>(pods), gpus});
      left -= pods * gpus;
    }
  }
  if (left > 0) {
    gang.push_back({static_cast<uint32_t>(left), 1});
  }
  return gang;
}

/// Whether gangs must or should be in one rack.
enum class Rules : uint8_t { kNone, kRequired, kPreferred, kMixed };

/// How many gangs, base and scaled, one fleet placed while jobs came and went.
size_t play(Fleet& fleet, uint64_t seed, Rules rules) {
  constexpr uint64_t kJobs = 300;
  Random random(seed);
  struct Waiting {
    Job job;
    bool has_base = false;
    size_t scaled = 0;
    uint64_t ends = 0;
  };
  std::deque<Waiting> jobs;
  std::multimap<uint64_t, Held> running;
  size_t placed = 0;
  for (uint64_t now = 0; now < kJobs; ++now) {
    Job job{.base = random_gang(random), .lasts = 5 + random.below(40)};
    for (uint64_t r = random.below(3); r > 0; --r) {
      job.scaled.push_back(random_gang(random));
    }
    job.is_required = rules == Rules::kRequired || (rules == Rules::kMixed && random.below(3) == 0);
    job.is_preferred =
        rules == Rules::kPreferred || (rules == Rules::kMixed && random.below(2) == 0);
    jobs.push_back({.job = std::move(job)});
    for (auto it = running.begin(); it != running.end() && it->first <= now;) {
      fleet.release(it->second);
      it = running.erase(it);
    }
    for (auto it = jobs.begin(); it != jobs.end();) {
      if (!it->has_base) {
        if (auto held = fleet.place(it->job.base, it->job)) {
          it->has_base = true;
          it->ends = now + it->job.lasts;
          running.emplace(it->ends, std::move(*held));
          ++placed;
        }
      }
      while (it->has_base && it->scaled < it->job.scaled.size()) {
        auto held = fleet.place(it->job.scaled[it->scaled], it->job);
        if (!held) {
          break;
        }
        running.emplace(it->ends, std::move(*held));
        ++it->scaled;
        ++placed;
      }
      const bool is_over = it->has_base && (it->scaled == it->job.scaled.size() || it->ends <= now);
      it = is_over ? jobs.erase(it) : it + 1;
    }
  }
  return placed;
}

TEST(Placement, PlacesAsManyGangsAsThePublishedWay) {
  for (const Rules rules : {Rules::kNone, Rules::kRequired, Rules::kPreferred, Rules::kMixed}) {
    size_t ours = 0;
    size_t published = 0;
    for (uint64_t seed = 1; seed <= 40; ++seed) {
      Ours own;
      Published other;
      ours += play(own, seed, rules);
      published += play(other, seed, rules);
    }
    EXPECT_GE(ours, published) << static_cast<int>(rules);
    EXPECT_GT(published, 10'000U);
  }
}

}  // namespace
}  // namespace stator::gang
