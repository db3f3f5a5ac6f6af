// SPDX-License-Identifier: Apache-2.0
#include "stator/media/media_cache.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

namespace stator::media {
namespace {

using namespace std::chrono_literals;

BlobPtr blob(size_t bytes) {
  auto made = std::make_shared<inference::MediaBlob>();
  made->bytes = std::string(bytes, 'x');
  return made;
}

TEST(MediaCache, TheLeastRecentlyUsedGoesFirst) {
  MediaCache cache(100, 1min);
  const TimePoint now{};
  EXPECT_EQ(cache.add("a", blob(40), now), 0U);
  EXPECT_EQ(cache.add("b", blob(40), now), 0U);
  EXPECT_NE(cache.find("a", now), nullptr);
  EXPECT_EQ(cache.add("c", blob(40), now), 1U);
  EXPECT_EQ(cache.find("b", now), nullptr);
  EXPECT_NE(cache.find("a", now), nullptr);
  EXPECT_EQ(cache.bytes(), 80U);
}

TEST(MediaCache, NothingIsFoundBeyondItsTime) {
  MediaCache cache(100, 1min);
  const TimePoint now{};
  cache.add("a", blob(10), now);
  EXPECT_NE(cache.find("a", now + 59s), nullptr);
  EXPECT_EQ(cache.find("a", now + 60s), nullptr);
  EXPECT_EQ(cache.bytes(), 0U);
}

TEST(MediaCache, ReplacesAndKeepsItsBound) {
  MediaCache cache(100, 1min);
  const TimePoint now{};
  cache.add("a", blob(60), now);
  cache.add("a", blob(70), now);
  EXPECT_EQ(cache.bytes(), 70U);
  cache.add("b", blob(101), now);  // never fits
  EXPECT_EQ(cache.find("b", now), nullptr);
  EXPECT_EQ(cache.size(), 1U);
  cache.clear();
  EXPECT_EQ(cache.bytes(), 0U);
  EXPECT_EQ(cache.find("a", now), nullptr);
}

}  // namespace
}  // namespace stator::media
