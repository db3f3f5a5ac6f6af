// SPDX-License-Identifier: Apache-2.0
#include "stator/router/index/chain_index.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <thread>

#include "stator/core/random.h"
#include "stator/router/index/pretend_engine.h"

namespace stator::router {
namespace {

using blocks::ExternalHash;
using blocks::LocalHash;
using blocks::SequenceHash;

WorkerKey worker(uint64_t id) {
  return {WorkerId(id), static_cast<uint32_t>(id % 2)};
}

std::unique_ptr<ChainIndex> make_index(uint64_t bytes_max = 64 << 20) {
  auto index = ChainIndex::create({.bytes_max = bytes_max});
  EXPECT_TRUE(index) << index.error().message();
  return std::move(*index);
}

std::vector<Overlap> sorted(std::vector<Overlap> overlaps) {
  std::ranges::sort(overlaps, {}, &Overlap::worker);
  return overlaps;
}

class ChainIndexAgainstOracle : public testing::TestWithParam<Naming> {};

TEST_P(ChainIndexAgainstOracle, GivesTheSameOverlapsAfterEveryEvent) {
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    Random random(seed);
    const auto index = make_index();
    ExactIndex oracle;
    std::vector<PretendEngine> engines;
    for (uint64_t id = 1; id <= 5; ++id) {
      // One engine of each kind among those under test, so that names meet.
      engines.emplace_back(worker(id), id == 5 ? Naming::kCounter : GetParam());
    }
    const auto apply = [&](WorkerKey key, const kv::KvEvent& event) {
      EXPECT_EQ(index->apply(key, event), oracle.apply(key, event)) << "seed " << seed;
    };
    for (int step = 0; step < 1500; ++step) {
      PretendEngine& engine = engines[random.below(engines.size())];
      const auto prompt = random_prompt(random);
      const uint64_t what = random.below(100);
      if (what < 60) {
        if (const auto event = engine.store(prompt)) {
          apply(engine.key(), *event);
        }
      } else if (what < 98) {
        if (const auto event = engine.evict(1 + random.below(30), random)) {
          apply(engine.key(), *event);
        }
      } else if (what < 99) {
        apply(engine.key(), {.event_id = 1, .data = kv::AllCleared{}});
        engine.clear();
      } else {
        index->remove_worker(engine.key());
        oracle.remove_worker(engine.key());
        engine.clear();
      }
      ASSERT_EQ(index->holder_blocks(), oracle.holder_blocks()) << "seed " << seed << ' ' << step;
      const auto query = sequences_of(random_prompt(random));
      ASSERT_EQ(sorted(index->find_longest_match(query)), sorted(oracle.find_longest_match(query)))
          << "seed " << seed << ' ' << step;
    }
  }
}

TEST_P(ChainIndexAgainstOracle, LostDuplicatedAndReorderedEventsNeverOverCount) {
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    Random random(seed);
    const auto index = make_index();
    ExactIndex oracle;  // sees the same damaged link
    std::vector<PretendEngine> engines;
    for (uint64_t id = 1; id <= 4; ++id) {
      engines.emplace_back(worker(id), GetParam());
    }
    std::vector<std::pair<WorkerKey, kv::KvEvent>> link;
    for (int step = 0; step < 1500; ++step) {
      PretendEngine& engine = engines[random.below(engines.size())];
      const auto event = random.below(3) != 0 ? engine.store(random_prompt(random))
                                              : engine.evict(1 + random.below(20), random);
      if (!event || random.below(10) == 0) {
        continue;  // lost
      }
      link.emplace_back(engine.key(), *event);
      if (random.below(10) == 0) {
        link.emplace_back(engine.key(), *event);
      }
      while (link.size() > random.below(4)) {
        const size_t at = random.below(link.size());
        index->apply(link[at].first, link[at].second);
        oracle.apply(link[at].first, link[at].second);
        link.erase(link.begin() + static_cast<ptrdiff_t>(at));
      }
      const auto query = sequences_of(random_prompt(random));
      std::map<WorkerKey, uint32_t> reported;
      for (const Overlap& overlap : oracle.find_longest_match(query)) {
        reported[overlap.worker] = overlap.blocks;
      }
      for (const Overlap& overlap : index->find_longest_match(query)) {
        ASSERT_LE(overlap.blocks, reported[overlap.worker]) << "seed " << seed << ' ' << step;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Naming, ChainIndexAgainstOracle,
                         testing::Values(Naming::kSequenceHash, Naming::kSharedOpaque,
                                         Naming::kPrivateOpaque, Naming::kCounter));

TEST(ChainIndex, ForgetsLeastRecentlyUsedChainsAtItsBudget) {
  constexpr uint64_t kBudget = 2 << 20;
  const auto index = make_index(kBudget);
  Random random(1);
  const std::vector<uint64_t> hot = {1, 2, 3, 4, 5, 6, 7, 8};
  PretendEngine engine(worker(1), Naming::kSequenceHash);
  index->apply(engine.key(), *engine.store(hot));
  for (int i = 0; i < 60'000; ++i) {
    const std::vector<uint64_t> cold = {random.next(), random.next(), random.next()};
    PretendEngine once(worker(2 + random.below(9)), Naming::kSharedOpaque);
    index->apply(once.key(), *once.store(cold));
    ASSERT_LE(index->memory_bytes(), kBudget) << i;
    if (i % 16 == 0) {
      index->find_longest_match(sequences_of(hot));
    }
  }
  EXPECT_GT(index->stats().evicted_blocks, 50'000U);
  EXPECT_GT(index->holder_blocks(), 10'000U);
  EXPECT_EQ(index->find_longest_match(sequences_of(hot)).size(), 1U);
}

TEST(ChainIndex, GivesMemoryBackWhenEverythingIsRemoved) {
  const auto index = make_index();
  Random random(3);
  std::vector<PretendEngine> engines;
  for (uint64_t id = 1; id <= 8; ++id) {
    engines.emplace_back(worker(id), Naming::kSharedOpaque);
  }
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 4000; ++i) {
      PretendEngine& engine = engines[random.below(engines.size())];
      if (const auto event = engine.store(random_prompt(random))) {
        index->apply(engine.key(), *event);
      }
    }
    EXPECT_GT(index->holder_blocks(), 10'000U);
    for (PretendEngine& engine : engines) {
      while (const auto event = engine.evict(100, random)) {
        index->apply(engine.key(), *event);
      }
    }
    EXPECT_EQ(index->holder_blocks(), 0U);
    EXPECT_EQ(index->stats().chains, 0U);
    EXPECT_EQ(index->stats().private_names, 0U);
  }
}

TEST(ChainIndex, TenThousandWorkersMayJoinAndLeave) {
  const auto index = make_index();
  Random random(5);
  const std::vector<uint64_t> shared = {1, 2, 3, 4};
  for (uint64_t id = 1; id <= 10'000; ++id) {
    PretendEngine engine(worker(id), Naming::kSequenceHash);
    index->apply(engine.key(), *engine.store(shared));
    index->apply(engine.key(), *engine.store(std::vector<uint64_t>{random.next()}));
    if (id > 50) {
      index->remove_worker(worker(id - 50));
    }
  }
  EXPECT_EQ(index->find_longest_match(sequences_of(shared)).size(), 50U);
  EXPECT_EQ(index->holder_blocks(), 50U * 5);
  EXPECT_LE(index->memory_bytes(), 4U << 20);
}

TEST(ChainIndex, OneNameForTwoBlocksOfOneRunCutsTheRun) {
  const auto index = make_index();
  kv::BlocksStored run;
  run.blocks = {{ExternalHash(7), LocalHash(1)},
                {ExternalHash(8), LocalHash(2)},
                {ExternalHash(7), LocalHash(3)}};
  EXPECT_EQ(index->apply(worker(1), {.event_id = 1, .data = run}), Applied::kOverBudget);
  EXPECT_EQ(index->holder_blocks(), 2U);
  EXPECT_EQ(
      index->apply(worker(1),
                   {.event_id = 2, .data = kv::BlocksRemoved{{ExternalHash(8), ExternalHash(7)}}}),
      Applied::kOk);
  EXPECT_EQ(index->holder_blocks(), 0U);
}

TEST(ChainIndex, ARemovedNameIsForgottenEvenIfItsBlockWasGoneAlready) {
  const auto index = make_index();
  const auto store = [&](WorkerKey key, std::optional<uint64_t> parent,
                         std::vector<kv::StoredBlock> blocks) {
    kv::BlocksStored run{.parent = std::nullopt, .blocks = std::move(blocks)};
    if (parent) {
      run.parent = ExternalHash(*parent);
    }
    return index->apply(key, {.event_id = 1, .data = std::move(run)});
  };
  const auto remove = [&](uint64_t name) {
    return index->apply(worker(5),
                        {.event_id = 1, .data = kv::BlocksRemoved{{ExternalHash(name)}}});
  };
  store(worker(5), std::nullopt, {{ExternalHash(11), LocalHash(1)}});
  store(worker(5), std::nullopt, {{ExternalHash(12), LocalHash(1)}});  // a lost removal between
  store(worker(1), std::nullopt, {{ExternalHash(91), LocalHash(1)}});
  EXPECT_EQ(remove(11), Applied::kOk);
  EXPECT_EQ(remove(12), Applied::kUnknownBlock);
  EXPECT_EQ(index->stats().private_names, 1U);  // that of the other worker
  store(worker(5), std::nullopt, {{ExternalHash(13), LocalHash(1)}});

  EXPECT_EQ(store(worker(5), 12, {{ExternalHash(14), LocalHash(2)}}), Applied::kUnknownParent);
}

// A lookup may begin as the thread's last one did; these are what makes it begin anew.

TEST(ChainIndex, WhoLeftIsNotInTheNextAnswerOfAThreadThatBeganWithHim) {
  for (const uint64_t workers : {3U, 1500U}) {  // few enough to be kept by the thread, and too many
    const auto index = make_index();
    const std::vector<uint64_t> system = {1, 2, 3};
    const std::vector<uint64_t> longer = {1, 2, 3, 4, 5};
    for (uint64_t id = 1; id <= workers; ++id) {
      PretendEngine engine(worker(id), Naming::kSequenceHash);
      index->apply(engine.key(), *engine.store(id == 2 ? longer : system));
    }
    const auto blocks_of_two = [&](std::span<const uint64_t> prompt) {
      uint32_t blocks = 0;
      for (const Overlap& overlap : index->find_longest_match(sequences_of(prompt))) {
        blocks += overlap.worker == worker(2) ? overlap.blocks : 0;
      }
      return blocks;
    };
    for (int twice = 0; twice < 2; ++twice) {
      EXPECT_EQ(index->find_longest_match(sequences_of(longer)).size(), workers);
      EXPECT_EQ(blocks_of_two(longer), 5U);
      EXPECT_EQ(blocks_of_two(system), 3U);
    }
    index->remove_worker(worker(2));
    EXPECT_EQ(index->find_longest_match(sequences_of(longer)).size(), workers - 1);
    EXPECT_EQ(blocks_of_two(longer), 0U);
    PretendEngine again(worker(2), Naming::kSequenceHash);
    index->apply(again.key(), *again.store(std::vector<uint64_t>{1}));
    EXPECT_EQ(index->find_longest_match(sequences_of(longer)).size(), workers);
    EXPECT_EQ(blocks_of_two(longer), 1U);
    index->apply(again.key(), {.event_id = 2, .data = kv::AllCleared{}});
    EXPECT_EQ(blocks_of_two(longer), 0U);
  }
}

TEST(ChainIndex, AThreadMayAskSeveralIndexesInTurn) {
  const std::vector<uint64_t> prompt = {1, 2, 3, 4};
  const std::vector<uint64_t> fork = {1, 2, 7};
  std::vector<std::unique_ptr<ChainIndex>> indexes;
  for (uint64_t id = 1; id <= 3; ++id) {
    indexes.push_back(make_index());
    PretendEngine engine(worker(id), Naming::kSequenceHash);
    PretendEngine other(worker(id + 10), Naming::kSequenceHash);
    indexes.back()->apply(engine.key(), *engine.store(prompt));
    indexes.back()->apply(other.key(), *other.store(fork));
  }
  for (int round = 0; round < 3; ++round) {
    for (uint64_t id = 1; id <= indexes.size(); ++id) {
      EXPECT_EQ(sorted(indexes[id - 1]->find_longest_match(sequences_of(prompt))),
                (std::vector<Overlap>{{worker(id), 4}, {worker(id + 10), 2}}));
    }
    for (uint64_t id = 1; id <= indexes.size(); ++id) {
      EXPECT_EQ(sorted(indexes[id - 1]->find_longest_match(sequences_of(fork))),
                (std::vector<Overlap>{{worker(id), 2}, {worker(id + 10), 3}}));
    }
  }
}

TEST(ChainIndex, ReadersNeverSeeMoreThanTheWriterEverGave) {
  // Worker w holds prompt p only while phase(p) names it; blocks of a prompt always grow and shrink
  // as a whole, so a reader may see any number of blocks up to the prompt's length, of a worker
  // that is one of the prompt's two alternating holders, never of a bystander.
  const auto index = make_index(4 << 20);
  constexpr uint64_t kPrompts = 64;
  std::vector<std::vector<uint64_t>> prompts;
  std::vector<std::vector<SequenceHash>> queries;
  for (uint64_t p = 0; p < kPrompts; ++p) {
    std::vector<uint64_t> locals = {p % 4 + 1};
    for (uint64_t i = 1; i < 12; ++i) {
      locals.push_back(mix64(p * 100 + i));
    }
    queries.push_back(sequences_of(locals));
    prompts.push_back(std::move(locals));
  }
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> wrong{0};
  std::vector<std::jthread> readers;  // join when the test leaves, however it does
  for (uint64_t r = 0; r < 3; ++r) {
    readers.emplace_back([&, r] {
      Random random(r + 10);
      std::vector<Overlap> found;
      while (!stop.load(std::memory_order_relaxed)) {
        const uint64_t p = random.below(kPrompts);
        index->find_longest_match(queries[p], found);
        for (const Overlap& overlap : found) {
          const uint64_t id = overlap.worker.worker.value();
          // Beyond the first, shared block only the prompt's own workers may appear.
          const bool own = id == p + 1 || id == p + 1001;
          wrong += overlap.blocks > 12 || (overlap.blocks > 1 && !own) ? 1 : 0;
        }
      }
    });
  }
  Random random(1);
  std::map<uint64_t, PretendEngine> engines;
  for (int i = 0; i < 30'000; ++i) {
    const uint64_t p = random.below(kPrompts);
    const uint64_t id = p + 1 + (random.below(2) == 0 ? 0 : 1000);
    PretendEngine& engine =
        engines.try_emplace(id, worker(id), Naming::kSharedOpaque).first->second;
    if (const auto event = engine.store(prompts[p]); event && random.below(2) == 0) {
      index->apply(engine.key(), *event);
    } else if (event) {
      engine.clear();
      index->remove_worker(engine.key());
    } else if (const auto gone = engine.evict(1 + random.below(12), random)) {
      index->apply(engine.key(), *gone);
    }
  }
  stop = true;
  readers.clear();
  EXPECT_EQ(wrong.load(), 0U);
}

}  // namespace
}  // namespace stator::router
