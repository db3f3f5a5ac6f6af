// SPDX-License-Identifier: Apache-2.0
#include "stator/router/kv_index.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "stator/core/random.h"

namespace stator::router {
namespace {

using blocks::ExternalHash;
using blocks::LocalHash;
using blocks::SequenceHash;

constexpr WorkerKey kA{WorkerId(1), 0};
constexpr WorkerKey kB{WorkerId(2), 0};

std::vector<SequenceHash> chain_of(std::span<const uint64_t> locals) {
  std::vector<SequenceHash> out;
  for (const uint64_t local : locals) {
    out.push_back(out.empty() ? blocks::chain(LocalHash(local))
                              : blocks::chain(out.back(), LocalHash(local)));
  }
  return out;
}

kv::KvEvent stored(std::optional<uint64_t> parent,
                   std::initializer_list<std::pair<uint64_t, uint64_t>> external_and_local) {
  kv::BlocksStored run;
  if (parent) {
    run.parent = ExternalHash(*parent);
  }
  for (const auto& [external, local] : external_and_local) {
    run.blocks.push_back({ExternalHash(external), LocalHash(local)});
  }
  return {.event_id = 1, .data = std::move(run)};
}

kv::KvEvent removed(std::initializer_list<uint64_t> externals) {
  kv::BlocksRemoved run;
  for (const uint64_t external : externals) {
    run.blocks.emplace_back(external);
  }
  return {.event_id = 1, .data = std::move(run)};
}

uint32_t overlap_of(const KvIndex& index, WorkerKey worker, std::vector<uint64_t> locals) {
  for (const Overlap& overlap : index.find_longest_match(chain_of(locals))) {
    if (overlap.worker == worker) {
      return overlap.blocks;
    }
  }
  return 0;
}

TEST(ExactIndex, FindsTheLongestPrefixPerWorker) {
  ExactIndex index;
  index.apply(kA, stored({}, {{10, 1}, {11, 2}, {12, 3}}));
  index.apply(kB, stored({}, {{20, 1}}));
  EXPECT_EQ(overlap_of(index, kA, {1, 2, 3, 4}), 3U);
  EXPECT_EQ(overlap_of(index, kB, {1, 2, 3, 4}), 1U);
  EXPECT_EQ(overlap_of(index, kA, {2, 3}), 0U);
  EXPECT_EQ(index.holder_blocks(), 4U);
}

TEST(ExactIndex, StopsAtTheFirstMissingBlock) {
  ExactIndex index;
  index.apply(kA, stored({}, {{10, 1}, {11, 2}, {12, 3}}));
  index.apply(kA, removed({11}));
  EXPECT_EQ(overlap_of(index, kA, {1, 2, 3}), 1U);
}

TEST(ExactIndex, ContinuesARunFromItsParent) {
  ExactIndex index;
  index.apply(kA, stored({}, {{10, 1}}));
  EXPECT_EQ(index.apply(kA, stored(10, {{11, 2}})), Applied::kOk);
  EXPECT_EQ(overlap_of(index, kA, {1, 2}), 2U);
}

TEST(ExactIndex, ARunWithoutItsParentIsNotStored) {
  ExactIndex index;
  EXPECT_EQ(index.apply(kA, stored(99, {{11, 2}})), Applied::kUnknownParent);
  EXPECT_EQ(index.holder_blocks(), 0U);
}

TEST(ExactIndex, WorkersWithOtherIdsForEqualContentScoreAndRemoveCleanly) {
  ExactIndex index;
  index.apply(kA, stored({}, {{10, 1}, {11, 2}}));
  index.apply(kB, stored({}, {{777, 1}, {778, 2}}));
  EXPECT_EQ(overlap_of(index, kB, {1, 2}), 2U);
  EXPECT_EQ(index.apply(kB, removed({777, 778})), Applied::kOk);
  EXPECT_EQ(overlap_of(index, kB, {1, 2}), 0U);
  EXPECT_EQ(overlap_of(index, kA, {1, 2}), 2U);
}

TEST(ExactIndex, RepeatedStoresAndUnknownRemovalsAreHarmless) {
  ExactIndex index;
  index.apply(kA, stored({}, {{10, 1}}));
  EXPECT_EQ(index.apply(kA, stored({}, {{10, 1}})), Applied::kOk);
  EXPECT_EQ(index.holder_blocks(), 1U);
  EXPECT_EQ(index.apply(kA, removed({55})), Applied::kUnknownBlock);
  EXPECT_EQ(index.apply(kB, removed({10})), Applied::kUnknownBlock);
  EXPECT_EQ(overlap_of(index, kA, {1}), 1U);
}

TEST(ExactIndex, AReusedIdMovesToItsNewContent) {
  ExactIndex index;
  index.apply(kA, stored({}, {{10, 1}}));
  index.apply(kA, stored({}, {{10, 5}}));
  EXPECT_EQ(overlap_of(index, kA, {1}), 0U);
  EXPECT_EQ(overlap_of(index, kA, {5}), 1U);
}

TEST(ExactIndex, RanksAreSeparateHolders) {
  ExactIndex index;
  const WorkerKey rank1{WorkerId(1), 1};
  index.apply(kA, stored({}, {{10, 1}}));
  index.apply(rank1, stored({}, {{10, 1}}));
  index.remove_worker(kA);
  EXPECT_EQ(overlap_of(index, kA, {1}), 0U);
  EXPECT_EQ(overlap_of(index, rank1, {1}), 1U);
}

TEST(ExactIndex, ClearLeavesNothingBehind) {
  ExactIndex index;
  index.apply(kA, stored({}, {{10, 1}, {11, 2}}));
  index.apply(kA, {.event_id = 2, .data = kv::AllCleared{}});
  EXPECT_EQ(index.holder_blocks(), 0U);
}

TEST(ExactIndex, OtherTiersDoNotCountAsDeviceOverlap) {
  ExactIndex index;
  kv::KvEvent event = stored({}, {{10, 1}});
  event.tier = kv::StorageTier::kHostPinned;
  EXPECT_EQ(index.apply(kA, event), Applied::kIgnoredTier);
  EXPECT_EQ(overlap_of(index, kA, {1}), 0U);
}

TEST(ExactIndex, RefusesStoresBeyondItsBudget) {
  ExactIndex index(2);
  EXPECT_EQ(index.apply(kA, stored({}, {{10, 1}, {11, 2}, {12, 3}})), Applied::kOverBudget);
  EXPECT_EQ(index.holder_blocks(), 2U);
  EXPECT_EQ(overlap_of(index, kA, {1, 2, 3}), 2U);
  index.apply(kA, removed({10, 11}));
  EXPECT_EQ(index.apply(kA, stored({}, {{13, 4}})), Applied::kOk);
}

// Random operations against a model that holds, per worker, the set of content chains.
TEST(ExactIndex, AgreesWithANaiveModelUnderRandomEvents) {
  Random random(2024);
  ExactIndex index;
  std::map<WorkerKey, std::map<uint64_t, std::vector<uint64_t>>>
      model;  // external → path of locals
  for (int step = 0; step < 20'000; ++step) {
    const WorkerKey worker{WorkerId(random.below(4)), 0};
    auto& held = model[worker];
    const uint64_t action = random.below(100);
    if (action < 60) {
      std::vector<uint64_t> path;
      std::optional<uint64_t> parent;
      if (!held.empty() && random.below(4) != 0) {
        auto it = held.begin();
        std::advance(it, static_cast<ptrdiff_t>(random.below(held.size())));
        parent = it->first;
        path = it->second;
      }
      path.push_back(random.below(3));
      // External ids are a function of worker and content, as engines with private seeds have them.
      const uint64_t external = chain_of(path).back().value() ^ (worker.worker.value() * 0x9E37);
      ASSERT_EQ(index.apply(worker, stored(parent, {{external, path.back()}})), Applied::kOk);
      held[external] = path;
    } else if (action < 98 && !held.empty()) {
      auto it = held.begin();
      std::advance(it, static_cast<ptrdiff_t>(random.below(held.size())));
      ASSERT_EQ(index.apply(worker, removed({it->first})), Applied::kOk);
      held.erase(it);
    } else if (action == 99) {
      index.remove_worker(worker);
      held.clear();
    }
    std::vector<uint64_t> query;
    for (int i = 0; i < 6; ++i) {
      query.push_back(random.below(3));
    }
    for (uint64_t id = 0; id < 4; ++id) {
      const WorkerKey candidate{WorkerId(id), 0};
      std::set<std::vector<uint64_t>> paths;
      for (const auto& [external, path] : model[candidate]) {
        paths.insert(path);
      }
      uint32_t expected = 0;
      while (expected < query.size() &&
             paths.contains({query.begin(), query.begin() + expected + 1})) {
        ++expected;
      }
      ASSERT_EQ(overlap_of(index, candidate, query), expected) << "step " << step;
    }
  }
}

}  // namespace
}  // namespace stator::router
