// SPDX-License-Identifier: Apache-2.0
#include "stator/core/lazy_library.h"

#include <gtest/gtest.h>

#include <array>

namespace stator {
namespace {

TEST(LazyLibraryTest, FillsItsTable) {
  constexpr std::array<const char*, 2> names = {"ldexp", "floor"};
  std::array<std::atomic<void*>, 2> functions = {};
  load_library({"libm.so.6", "libc6", names.data(), functions.data(), names.size()});

  const auto ldexp = reinterpret_cast<double (*)(double, int)>(functions[0].load());
  EXPECT_EQ(ldexp(3, 4), 48);
  const auto floor = reinterpret_cast<double (*)(double)>(functions[1].load());
  EXPECT_EQ(floor(2.5), 2);
}

TEST(LazyLibraryDeathTest, SaysWhichPackageIsMissing) {
  constexpr std::array<const char*, 1> names = {"no_such_function"};
  std::array<std::atomic<void*>, 1> functions = {};
  EXPECT_DEATH(load_library({"libabsent.so.9", "libabsent9", names.data(), functions.data(), 1}),
               "libabsent.so.9 is needed now.*install the package libabsent9");
  EXPECT_DEATH(load_library({"libm.so.6", "libc6", names.data(), functions.data(), 1}),
               "libm.so.6 is needed now.*no_such_function.*install the package libc6");
}

}  // namespace
}  // namespace stator
