// SPDX-License-Identifier: Apache-2.0
#include "stator/memory/arena.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <limits>
#include <type_traits>

namespace stator::memory {
namespace {

static_assert(std::is_nothrow_move_constructible_v<Arena>);
static_assert(std::is_nothrow_move_assignable_v<Arena>);
static_assert(!std::is_copy_constructible_v<Arena>);

size_t page_bytes() {
  return static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

TEST(Arena, RoundsUpToPagesAndStartsZeroed) {
  auto arena = Arena::create({.bytes = 1});

  ASSERT_TRUE(arena.has_value());
  EXPECT_EQ(arena->bytes().size(), page_bytes());
  EXPECT_TRUE(std::ranges::all_of(arena->bytes(), [](std::byte b) { return b == std::byte{0}; }));
  EXPECT_EQ(reinterpret_cast<uintptr_t>(arena->bytes().data()) % page_bytes(), 0U);
  EXPECT_EQ(arena->descriptor(), -1);
}

TEST(Arena, RefusesImpossibleSizes) {
  for (const size_t bytes : {size_t{0}, std::numeric_limits<size_t>::max()}) {
    auto arena = Arena::create({.bytes = bytes});
    ASSERT_FALSE(arena.has_value());
    EXPECT_EQ(arena.error().code(), Code::kInvalidArgument);
  }
}

TEST(Arena, SaysWhatToDoWhenTheKernelRefuses) {
  // More than any 64-bit user address space.
  auto arena = Arena::create({.bytes = size_t{1} << 60});

  ASSERT_FALSE(arena.has_value());
  EXPECT_EQ(arena.error().code(), Code::kIo);
  EXPECT_THAT(arena.error().message(), testing::HasSubstr("ask for less"));
}

#ifndef STATOR_ASAN  // the sanitizer's own shadow bounds what can be mapped
TEST(Arena, CostsNothingUntilTouched) {
  auto arena = Arena::create({.bytes = size_t{64} << 30});

  ASSERT_TRUE(arena.has_value()) << arena.error().to_string();
  arena->bytes().back() = std::byte{1};
  EXPECT_EQ(arena->bytes().back(), std::byte{1});
}
#endif

TEST(Arena, MovingKeepsTheAddress) {
  auto arena = Arena::create({.bytes = 100, .huge_pages = HugePages::kAdvise});
  ASSERT_TRUE(arena.has_value());
  const std::byte* address = arena->bytes().data();

  Arena moved = std::move(*arena);
  Arena assigned;
  assigned = std::move(moved);

  EXPECT_EQ(assigned.bytes().data(), address);
  EXPECT_TRUE(moved.bytes().empty());  // NOLINT(bugprone-use-after-move): that is the test
}

TEST(Arena, MemfdIsVisibleThroughAnotherMapping) {
  auto arena = Arena::create({.bytes = 4096, .sharing = Sharing::kMemfd, .name = "test"});
  ASSERT_TRUE(arena.has_value());
  ASSERT_GE(arena->descriptor(), 0);
  arena->bytes()[5] = std::byte{42};

  void* other = mmap(nullptr, arena->bytes().size(), PROT_READ, MAP_SHARED, arena->descriptor(), 0);

  ASSERT_NE(other, MAP_FAILED);
  EXPECT_EQ(static_cast<std::byte*>(other)[5], std::byte{42});
  munmap(other, arena->bytes().size());
}

}  // namespace
}  // namespace stator::memory
