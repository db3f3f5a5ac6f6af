// SPDX-License-Identifier: Apache-2.0
#include "stator/core/strong_id.h"

#include <gtest/gtest.h>

#include <type_traits>
#include <unordered_set>

#include "stator/core/flat_map.h"
#include "stator/core/ids.h"

namespace stator {
namespace {

using Apple = StrongId<struct AppleTag, uint64_t>;
using Pear = StrongId<struct PearTag, uint64_t>;

template <typename A, typename B>
concept Comparable = requires(A a, B b) { a == b; };

static_assert(!std::is_convertible_v<uint64_t, Apple>, "making an id is explicit");
static_assert(!std::is_convertible_v<Apple, uint64_t>, "reading an id is explicit");
static_assert(!Comparable<Apple, Pear>, "ids of two kinds do not compare");
static_assert(std::is_trivially_copyable_v<Apple> && sizeof(Apple) == sizeof(uint64_t));

TEST(StrongId, ComparesByValue) {
  EXPECT_EQ(Apple(3), Apple(3));
  EXPECT_LT(Apple(3), Apple(4));
  EXPECT_EQ(Apple(3).value(), 3U);
  EXPECT_EQ(to_string(Apple(3)), "3");
}

TEST(StrongId, WorksAsAKey) {
  std::unordered_set<Apple> plain = {Apple(1), Apple(1), Apple(2)};
  EXPECT_EQ(plain.size(), 2U);
  FlatMap<WorkerKey, int> flat;
  flat[{WorkerId(1), 0}] = 10;
  flat[{WorkerId(1), 1}] = 11;
  EXPECT_EQ(flat.at(WorkerKey{WorkerId(1), 1}), 11);
}

}  // namespace
}  // namespace stator
