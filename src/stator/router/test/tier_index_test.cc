// SPDX-License-Identifier: Apache-2.0
#include "stator/router/index/tier_index.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "stator/core/random.h"

namespace stator::router {
namespace {

using blocks::ExternalHash;
using blocks::LocalHash;
using blocks::SequenceHash;
using kv::StorageTier;

constexpr WorkerKey kA{WorkerId(1), 0};
constexpr WorkerKey kB{WorkerId(2), 0};
constexpr StorageTier kTiers[] = {StorageTier::kHostPinned, StorageTier::kDisk,
                                  StorageTier::kExternal};

/// Twelve blocks of one prompt, stored and removed in parts.
struct Prompt {
  Prompt() {
    for (uint64_t i = 1; i <= 12; ++i) {
      locals.emplace_back(mix64(i));
      sequences.push_back(sequences.empty() ? blocks::chain(locals.back())
                                            : blocks::chain(sequences.back(), locals.back()));
    }
  }
  ExternalHash name(size_t block, uint64_t naming) const {
    return ExternalHash(naming == 0 ? sequences[block].value()
                                    : mix64(sequences[block].value() + naming));
  }
  kv::KvEvent store(StorageTier tier, size_t from, size_t to, uint64_t naming = 0) const {
    kv::BlocksStored run;
    if (from > 0) {
      run.parent = name(from - 1, naming);
    }
    for (size_t i = from; i < to; ++i) {
      run.blocks.push_back({name(i, naming), locals[i]});
    }
    return {.event_id = 1, .tier = tier, .data = std::move(run)};
  }
  kv::KvEvent remove(StorageTier tier, size_t block, uint64_t naming = 0) const {
    return {.event_id = 1, .tier = tier, .data = kv::BlocksRemoved{{name(block, naming)}}};
  }
  std::vector<LocalHash> locals;
  std::vector<SequenceHash> sequences;
};

std::vector<Overlap> extended(const TierIndex& index, const Prompt& prompt,
                              std::vector<Overlap> overlaps) {
  index.extend(prompt.sequences, overlaps);
  std::ranges::sort(overlaps, {}, &Overlap::worker);
  return overlaps;
}

TEST(TierIndex, EveryTierGoesOnWhereTheOneBeforeEnds) {
  TierIndex index;
  const Prompt prompt;
  index.apply(kA, prompt.store(StorageTier::kHostPinned, 3, 6), prompt.sequences[2]);
  index.apply(kA, prompt.store(StorageTier::kDisk, 5, 9), std::nullopt);
  index.apply(kA, prompt.store(StorageTier::kExternal, 9, 10), std::nullopt);

  const auto found = extended(index, prompt, {{.worker = kA, .blocks = 4}});

  EXPECT_EQ(
      found,
      (std::vector<Overlap>{
          {.worker = kA, .blocks = 4, .host_blocks = 2, .disk_blocks = 3, .external_blocks = 1}}));
}

TEST(TierIndex, AWorkerWithoutADeviceMatchStartsAtTheFirstBlock) {
  TierIndex index;
  const Prompt prompt;
  index.apply(kA, prompt.store(StorageTier::kHostPinned, 0, 3), std::nullopt);
  index.apply(kB, prompt.store(StorageTier::kHostPinned, 5, 7), prompt.sequences[4]);

  EXPECT_EQ(extended(index, prompt, {{.worker = kB, .blocks = 2}}),
            (std::vector<Overlap>{{.worker = kA, .blocks = 0, .host_blocks = 3},
                                  {.worker = kB, .blocks = 2}}));
}

TEST(TierIndex, ARunWithoutAKnownParentIsNotStored) {
  TierIndex index;
  const Prompt prompt;
  EXPECT_EQ(index.apply(kA, prompt.store(StorageTier::kDisk, 3, 6), std::nullopt),
            Applied::kUnknownParent);
  EXPECT_EQ(index.holder_blocks(), 0U);
}

TEST(TierIndex, ANameGivenToOtherContentTakesTheOldAway) {
  TierIndex index;
  const Prompt prompt;
  index.apply(kA, prompt.store(StorageTier::kHostPinned, 0, 1, 7), std::nullopt);
  kv::BlocksStored run;
  run.blocks = {{prompt.name(0, 7), LocalHash(99)}};
  index.apply(kA, {.event_id = 2, .tier = StorageTier::kDisk, .data = run}, std::nullopt);

  EXPECT_TRUE(extended(index, prompt, {}).empty());
  EXPECT_EQ(index.holder_blocks(), 1U);
}

TEST(TierIndex, RefusesMoreThanItMayHold) {
  TierIndex index(4);
  const Prompt prompt;
  EXPECT_EQ(index.apply(kA, prompt.store(StorageTier::kDisk, 0, 6), std::nullopt),
            Applied::kOverBudget);
  EXPECT_EQ(index.holder_blocks(), 4U);
  EXPECT_EQ(index.apply(kA, prompt.store(StorageTier::kDisk, 0, 4), std::nullopt), Applied::kOk);
}

TEST(TierIndex, DeviceEventsAreNotItsBusiness) {
  TierIndex index;
  const Prompt prompt;
  EXPECT_EQ(index.apply(kA, prompt.store(StorageTier::kDevice, 0, 6), std::nullopt),
            Applied::kIgnoredTier);
}

/// What a worker holds, written down plainly.
using Held = std::map<WorkerKey, std::array<std::set<size_t>, 3>>;

std::vector<Overlap> expected(const Held& held, const std::map<WorkerKey, uint32_t>& device) {
  std::vector<Overlap> out;
  for (const auto& [worker, tiers] : held) {
    const auto on_device = device.find(worker);
    Overlap overlap{.worker = worker, .blocks = on_device == device.end() ? 0 : on_device->second};
    uint32_t reach = overlap.blocks;
    uint32_t* gained[] = {&overlap.host_blocks, &overlap.disk_blocks, &overlap.external_blocks};
    for (size_t tier = 0; tier < 3; ++tier) {
      for (; tiers[tier].contains(reach); ++reach) {
        ++*gained[tier];
      }
    }
    if (reach > 0) {
      out.push_back(overlap);
    }
  }
  return out;
}

TEST(TierIndex, AgreesWithAPlainListOfWhatEveryWorkerHolds) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Random random(seed);
    TierIndex index;
    const Prompt prompt;
    Held held;
    uint64_t pairs = 0;
    for (int step = 0; step < 400; ++step) {
      const WorkerKey worker{WorkerId(1 + random.below(4)), 0};
      const uint64_t naming = worker.worker.value() % 3;  // two of them name alike
      const size_t tier = random.below(3);
      const size_t from = random.below(12);
      const size_t to = from + 1 + random.below(12 - from);
      if (random.below(100) == 0) {
        index.remove_worker(worker);
        held.erase(worker);
      } else if (random.below(2) == 0) {
        const auto parent = from == 0 ? std::nullopt : std::optional(prompt.sequences[from - 1]);
        ASSERT_EQ(index.apply(worker, prompt.store(kTiers[tier], from, to, naming), parent),
                  Applied::kOk);
        for (size_t i = from; i < to; ++i) {
          held[worker][tier].insert(i);
        }
      } else {
        const bool known = held[worker][tier].erase(from) > 0;
        ASSERT_EQ(index.apply(worker, prompt.remove(kTiers[tier], from, naming), std::nullopt),
                  known ? Applied::kOk : Applied::kUnknownBlock);
      }
      std::map<WorkerKey, uint32_t> device;
      std::vector<Overlap> overlaps;
      for (const auto& [key, tiers] : held) {
        if (random.below(2) == 0) {
          device[key] = 1 + static_cast<uint32_t>(random.below(12));
          overlaps.push_back({.worker = key, .blocks = device[key]});
        }
      }
      ASSERT_EQ(extended(index, prompt, overlaps), expected(held, device))
          << "seed " << seed << " step " << step;
      pairs = 0;
      for (const auto& [key, tiers] : held) {
        pairs += tiers[0].size() + tiers[1].size() + tiers[2].size();
      }
      ASSERT_EQ(index.holder_blocks(), pairs);
    }
  }
}

}  // namespace
}  // namespace stator::router
