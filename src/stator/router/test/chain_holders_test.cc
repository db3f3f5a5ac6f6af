// SPDX-License-Identifier: Apache-2.0
#include "stator/router/index/chain_holders.h"

#include <gtest/gtest.h>

#include <bitset>
#include <map>

#include "stator/core/random.h"

namespace stator::router {
namespace {

using Rows = std::bitset<ChainHolders::kRowsMax>;

Rows rows(uint32_t from, uint32_t to) {
  Rows out;
  for (uint32_t row = from; row < to; ++row) {
    out.set(row);
  }
  return out;
}

/// The list as rows per slot; entries must be sorted, and no two of a slot may touch.
std::map<Slot, Rows> content(const ChainHolders& holders) {
  std::map<Slot, Rows> out;
  const ChainHolders::View view = holders.view();
  for (uint32_t i = 0; i < view.size(); ++i) {
    const ChainHolders::Hold hold = view[i];
    out[hold.slot] |= rows(hold.from, hold.to);
    if (i > 0 && view[i - 1].slot == hold.slot) {
      EXPECT_LT(view[i - 1].to, hold.from);
    } else if (i > 0) {
      EXPECT_LT(view[i - 1].slot, hold.slot);
    }
  }
  return out;
}

TEST(ChainHolders, AgreesWithABitPerRowAndSlot) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Random random(seed);
    ChainHolders holders;
    std::map<Slot, Rows> model;
    const uint64_t slots = 1 + random.below(40);
    for (int step = 0; step < 2000; ++step) {
      const Slot slot = static_cast<Slot>(random.below(4) == 0 ? 65'535 : random.below(slots));
      const auto from = static_cast<uint32_t>(random.below(2) == 0 ? 0 : random.below(256));
      const auto to = static_cast<uint32_t>(from + 1 + random.below(256 - from));
      const bool adds = random.below(step < 1000 ? 3 : 2) > 0;
      const auto splice =
          adds ? holders.plan_add({slot, from, to}) : holders.plan_drop({slot, from, to});
      const ChainHolders::Block old = holders.apply(splice);
      const Rows before = model[slot];
      model[slot] = adds ? before | rows(from, to) : before & ~rows(from, to);

      ASSERT_EQ(splice.rows, (before ^ model[slot]).count()) << "seed " << seed << ' ' << step;
      std::erase_if(model, [](const auto& entry) { return entry.second.none(); });
      ASSERT_EQ(content(holders), model) << "seed " << seed << ' ' << step;
      const bool held = model.contains(slot) && model.at(slot).test(from);
      ASSERT_EQ(holders.holds(slot, from), held);
    }
    uint32_t end = 0;
    for (const auto& [slot, held] : model) {
      for (uint32_t row = 0; row < held.size(); ++row) {
        end = held.test(row) ? std::max(end, row + 1) : end;
      }
    }
    EXPECT_EQ(holders.end(), end);
    const ChainHolders::Block rest = holders.assign({});
    EXPECT_EQ(holders.bytes(), 0U);
  }
}

TEST(ChainHolders, AFurtherHolderTakesFourBytesAndALittle) {
  ChainHolders holders;
  constexpr uint32_t kHolders = 1000;
  for (uint32_t slot = 0; slot < kHolders; ++slot) {
    const ChainHolders::Block old = holders.apply(holders.plan_add({slot, 0, 192}));
  }

  EXPECT_LE(holders.bytes(), kHolders * 9 / 2 + 32);
  const ChainHolders::Block last = holders.assign({});  // whoever holds the list frees it
}

}  // namespace
}  // namespace stator::router
