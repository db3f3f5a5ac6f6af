// SPDX-License-Identifier: Apache-2.0
#include "stator/parsers/detail/few_bytes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace stator::parsers {
namespace {

TEST(FewBytes, FindsTheFirstWhateverStandsWhere) {
  for (const std::string wanted : {"<", "<[", "<[\n", "<[\n\xF0"}) {
    const FewBytes set(wanted);
    for (size_t size = 0; size < 50; ++size) {
      std::string text(size, 'x');
      EXPECT_EQ(set.find_in(text), size);
      for (size_t at = 0; at < size; ++at) {
        text.assign(size, 'x');
        text[at] = wanted.back();
        text[size - 1] = wanted.front();
        for (size_t from = 0; from <= size; ++from) {
          EXPECT_EQ(set.find_in(text, from), std::min(text.find_first_of(wanted, from), size))
              << wanted << " at " << at << " of " << size << " from " << from;
        }
      }
    }
  }
}

TEST(FewBytes, TellsWhenTheyAreTooManyOrNone) {
  EXPECT_FALSE(FewBytes().complete());
  EXPECT_TRUE(FewBytes("abcd").complete());
  EXPECT_FALSE(FewBytes("abcde").complete());
}

}  // namespace
}  // namespace stator::parsers
