// SPDX-License-Identifier: Apache-2.0
#include "stator/router/index/position_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <span>
#include <vector>

#include "stator/core/random.h"
#include "stator/router/index/head_table.h"

namespace stator::router {
namespace {

constexpr uint32_t kRows = 1 << 16;

/// Keys whose rows hold them, as the index keeps them.
class Rows {
 public:
  explicit Rows(uint64_t (*key_of)(uint32_t row)) : arena_(*BlockArena::create(kRows)) {
    for (uint32_t row = 0; row < kRows; ++row) {
      arena_.set_sequence(row, key_of(row));
    }
  }
  const BlockArena& arena() const { return arena_; }
  uint64_t key(uint32_t row) const { return arena_.sequence(row); }

 private:
  BlockArena arena_;
};

TEST(PositionTable, FindsWhatIsInItAndNothingElseWhileItGrowsAndShrinks) {
  // Hashes, and numbers counted from one as some engines name their blocks.
  for (const auto key_of : {+[](uint32_t row) { return mix64(row + 1); },
                            +[](uint32_t row) { return uint64_t{row} + 1; }}) {
    const Rows rows(key_of);
    PositionTable table(rows.arena(), kRows);
    std::map<uint32_t, bool> held;
    Random random(7);
    for (int i = 0; i < 300'000; ++i) {
      // Full for a while, then nearly empty, and again.
      const bool fills = i / 50'000 % 2 == 0;
      const auto row = static_cast<uint32_t>(random.below(kRows));
      const uint64_t key = rows.key(row);
      if (random.below(10) < (fills ? 9U : 1U)) {
        const auto before = table.find_or_insert(key, table.hash_of(key), row);
        ASSERT_EQ(before.has_value(), held[row]);
        held[row] = true;
      } else {
        table.erase(key, row);
        held[row] = false;
      }
      const auto other = static_cast<uint32_t>(random.below(kRows));
      const auto found = table.find(rows.key(other));
      ASSERT_EQ(found, held[other] ? std::optional(other) : std::nullopt) << i;
    }
    for (uint32_t row = 0; row < kRows; ++row) {
      table.erase(rows.key(row), row);
    }
    EXPECT_EQ(table.size(), 0U);
    EXPECT_LT(table.bytes(), 16U << 10);
  }
}

TEST(PositionTable, RunsAreWhatTheirKeysAreOneByOne) {
  const Rows rows([](uint32_t row) { return mix64(row + 1); });
  PositionTable table(rows.arena(), kRows);
  std::vector<uint64_t> keys;
  for (uint32_t row = 0; row < kRows; ++row) {
    keys.push_back(rows.key(row));
  }
  Random random(11);
  std::vector<bool> held(kRows);
  for (int i = 0; i < 5'000; ++i) {
    const auto count = static_cast<uint32_t>(random.below(64));
    const auto from = static_cast<uint32_t>(random.below(kRows - 64));
    if (random.below(2) == 0) {
      uint32_t free = 0;
      while (free < count && !held[from + free]) {
        held[from + free++] = true;
      }
      ASSERT_EQ(table.insert_run(std::span(keys).subspan(from, count), from), free) << i;
    } else {
      table.erase_run(from, count);
      std::fill_n(held.begin() + from, count, false);
    }
  }
  for (uint32_t row = 0; row < kRows; ++row) {
    ASSERT_EQ(table.find(keys[row]), held[row] ? std::optional(row) : std::nullopt);
  }
  EXPECT_EQ(table.size(), static_cast<size_t>(std::ranges::count(held, true)));
}

/// Of `keys`, how many share the fullest of 256 places.
template <typename Place>
size_t fullest(const std::vector<uint64_t>& keys, Place&& place_of) {
  std::vector<size_t> places(256);
  for (const uint64_t key : keys) {
    ++places[place_of(key)];
  }
  return *std::ranges::max_element(places);
}

TEST(PositionTable, WhatCrowdsOneTableIsSpreadInAnother) {
  const Rows rows([](uint32_t row) { return mix64(row + 1); });
  const PositionTable known(rows.arena(), kRows);
  const PositionTable other(rows.arena(), kRows);
  std::vector<uint64_t> crowd;  // of one segment and one sixteenth of its groups
  for (uint64_t i = 0; crowd.size() < 4096; ++i) {
    const uint64_t hash = known.hash_of(mix64(i));
    if (hash >> 60 == 7 && (hash >> 16 & 15) == 3) {
      crowd.push_back(mix64(i));
    }
  }
  const auto place_in = [](const PositionTable& table) {
    return [&table](uint64_t key) {
      const uint64_t hash = table.hash_of(key);
      return hash >> 60 << 4 | (hash >> 16 & 15);
    };
  };

  EXPECT_EQ(fullest(crowd, place_in(known)), crowd.size());
  EXPECT_LT(fullest(crowd, place_in(other)), 64U);  // 16 are expected
}

TEST(HeadTable, WhatCrowdsOneTableIsSpreadInAnother) {
  const HeadTable known;
  const HeadTable other;
  const auto place_in = [](const HeadTable& table) {
    return [&table](uint64_t key) { return table.tag_of(key) & 255; };
  };
  std::vector<uint64_t> crowd;
  for (uint64_t i = 0; crowd.size() < 4096; ++i) {
    if (place_in(known)(mix64(i)) == 5) {
      crowd.push_back(mix64(i));
    }
  }

  EXPECT_EQ(fullest(crowd, place_in(known)), crowd.size());
  EXPECT_LT(fullest(crowd, place_in(other)), 64U);  // 16 are expected
}

TEST(PositionTable, TakesAboutTenBytesForAKey) {
  const Rows rows([](uint32_t row) { return mix64(row + 1); });
  PositionTable table(rows.arena(), kRows);
  for (uint32_t row = 0; row < kRows; ++row) {
    table.find_or_insert(rows.key(row), table.hash_of(rows.key(row)), row);
  }
  EXPECT_EQ(table.size(), kRows);
  EXPECT_LT(table.bytes(), kRows * 11U);
}

TEST(PositionTable, ErasesOnlyThePositionThatWasMeant) {
  const Rows rows([](uint32_t) { return uint64_t{42}; });
  PositionTable table(rows.arena(), kRows);
  table.find_or_insert(42, table.hash_of(42), 5);

  table.erase(42, 6);

  EXPECT_EQ(table.find(42), 5U);
  EXPECT_EQ(table.find_or_insert(42, table.hash_of(42), 7), 5U);
}

}  // namespace
}  // namespace stator::router
