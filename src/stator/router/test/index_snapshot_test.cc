// SPDX-License-Identifier: Apache-2.0
#include "stator/router/index/index_snapshot.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "stator/core/random.h"
#include "stator/router/index/chain_index.h"
#include "stator/router/index/pretend_engine.h"

namespace stator::router {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kBytes = 64 << 20;

std::string save(const ChainIndex& index) {
  ByteWriter out;
  index.save(out);
  return out.take();
}

Result<std::unique_ptr<ChainIndex>> restore(std::string_view bytes, uint64_t bytes_max = kBytes) {
  ByteReader in(bytes);
  return ChainIndex::restore({.bytes_max = bytes_max}, in);
}

std::vector<Overlap> look_up(const ChainIndex& index, std::span<const uint64_t> locals) {
  auto overlaps = index.find_longest_match(sequences_of(locals));
  std::ranges::sort(overlaps, {}, &Overlap::worker);
  return overlaps;
}

/// An index after some thousand events of engines that name blocks in every way.
struct Life {
  explicit Life(uint64_t seed, uint64_t bytes_max = kBytes)
      : random(seed), index(*ChainIndex::create({.bytes_max = bytes_max})) {
    for (uint64_t id = 1; id <= 6; ++id) {
      engines.emplace_back(WorkerKey{WorkerId(id), static_cast<uint32_t>(id % 2)},
                           static_cast<Naming>(random.below(kNamingCount)));
    }
  }
  void run(int steps, ChainIndex* twin = nullptr) {
    for (int i = 0; i < steps; ++i) {
      PretendEngine& engine = engines[random.below(engines.size())];
      const auto event = random.below(3) > 0 ? engine.store(random_prompt(random))
                                             : engine.evict(1 + random.below(20), random);
      if (event) {
        const Applied mine = index->apply(engine.key(), *event);
        if (twin != nullptr) {
          ASSERT_EQ(twin->apply(engine.key(), *event), mine);
        }
      }
    }
  }

  Random random;
  std::unique_ptr<ChainIndex> index;
  std::vector<PretendEngine> engines;
};

TEST(ChainSnapshot, ARestoredIndexSaysAndDoesTheSame) {
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    Life life(seed);
    life.run(3000);
    life.index->remove_worker(life.engines.back().key());
    life.engines.pop_back();

    auto twin = restore(save(*life.index));

    ASSERT_TRUE(twin) << twin.error().message();
    EXPECT_EQ((*twin)->holder_blocks(), life.index->holder_blocks());
    EXPECT_EQ((*twin)->workers(), life.index->workers());
    EXPECT_EQ(save(**twin).size(), save(*life.index).size());
    for (int i = 0; i < 20; ++i) {
      life.run(100, twin->get());
      const auto prompt = random_prompt(life.random);
      ASSERT_EQ(look_up(**twin, prompt), look_up(*life.index, prompt)) << "seed " << seed;
      ASSERT_EQ((*twin)->holder_blocks(), life.index->holder_blocks());
    }
  }
}

TEST(ChainSnapshot, IntoASmallerBudgetGoesWhatFits) {
  Life life(3);
  life.run(10'000);
  constexpr uint64_t kSmall = 128 << 10;
  ASSERT_GT(life.index->memory_bytes(), 2 * kSmall);

  const auto part = restore(save(*life.index), kSmall);

  ASSERT_TRUE(part) << part.error().message();
  EXPECT_LE((*part)->memory_bytes(), kSmall);
  EXPECT_GT((*part)->holder_blocks(), 1000U);
  for (int i = 0; i < 200; ++i) {
    const auto prompt = random_prompt(life.random);
    const auto all = look_up(*life.index, prompt);
    for (const Overlap& overlap : look_up(**part, prompt)) {
      const auto full = std::ranges::find(all, overlap.worker, &Overlap::worker);
      ASSERT_NE(full, all.end());
      EXPECT_LE(overlap.blocks, full->blocks);
    }
  }
}

TEST(ChainSnapshot, AnyDamageIsNoticedOrHarmless) {
  Life life(5);
  life.run(300);
  const std::string whole = save(*life.index);
  Random random(1);
  for (int i = 0; i < 3000; ++i) {
    std::string bytes = whole;
    if (random.below(2) == 0) {
      bytes.resize(random.below(bytes.size()));
      EXPECT_FALSE(restore(bytes));
      continue;
    }
    bytes[random.below(bytes.size())] ^= static_cast<char>(1 << random.below(8));
    if (const auto index = restore(bytes)) {
      (void)look_up(**index, random_prompt(random));
    }
  }
}

TEST(IndexSnapshotFile, ComesBackAsItWas) {
  const std::vector<IndexSnapshot> models = {{"a", 16, "one"}, {"b/c", 64, std::string(3, '\0')}};

  const auto back = decode_snapshots(encode_snapshots(models));

  ASSERT_TRUE(back) << back.error().message();
  ASSERT_EQ(back->size(), 2U);
  EXPECT_EQ((*back)[0].content, "one");
  EXPECT_EQ((*back)[1].model, "b/c");
  EXPECT_EQ((*back)[1].block_size, 64U);
  EXPECT_EQ((*back)[1].content, models[1].content);
}

TEST(IndexSnapshotFile, NamesWhatIsWrong) {
  const std::string good = encode_snapshots({{"model", 16, "content"}});
  const auto error = [](std::string_view file) { return decode_snapshots(file).error(); };
  std::string other_version = good;
  other_version[8] = 9;
  std::string flipped = good;
  flipped[good.size() / 2] ^= 1;

  EXPECT_EQ(error("").code(), Code::kInvalidArgument);
  EXPECT_EQ(error("{\"safetensors\":1}").code(), Code::kInvalidArgument);
  EXPECT_EQ(error(other_version).code(), Code::kUnsupported);
  EXPECT_THAT(error(other_version).message(), HasSubstr("version 9"));
  EXPECT_EQ(error(flipped).code(), Code::kCorrupt);
  EXPECT_THAT(error(flipped).message(), HasSubstr("checksum"));
  EXPECT_THAT(error(good + "x").message(), HasSubstr("follows"));
  for (size_t length = 8; length < good.size(); ++length) {
    EXPECT_EQ(error(good.substr(0, length)).code(), Code::kCorrupt) << length;
    EXPECT_THAT(error(good.substr(0, length)).message(), HasSubstr("ends early"));
  }
}

}  // namespace
}  // namespace stator::router
