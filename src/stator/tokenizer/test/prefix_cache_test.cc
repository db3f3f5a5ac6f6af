// SPDX-License-Identifier: Apache-2.0
#include "stator/tokenizer/prefix_cache.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "stator/core/hash.h"
#include "stator/core/random.h"

namespace stator::tokenizer {
namespace {

constexpr uint64_t kScope = 7;

class PrefixCacheTest : public ::testing::Test {
 protected:
  /// Looks `texts` (one per segment) up and keeps all of them; returns how many were known.
  static size_t use(PrefixCache& cache, const std::vector<std::string>& texts,
                    uint64_t scope = kScope) {
    std::string text;
    std::vector<size_t> ends;
    for (const std::string& part : texts) {
      text += part;
      ends.push_back(text.size());
    }
    PrefixCache::Found found = cache.find(scope, text, ends);
    const size_t known = found.path.size();
    for (size_t i = 0; i < known; ++i) {
      EXPECT_EQ(found.path[i]->ids, ids_of(texts[i]));
    }
    for (size_t i = known; i < texts.size(); ++i) {
      const auto segment = std::make_shared<PrefixSegment>();
      segment->key = found.keys[i];
      segment->serial = cache.next_serial();
      segment->parent = i == 0 ? scope : found.path.back()->serial;
      segment->text = texts[i];
      segment->ids = ids_of(texts[i]);
      found.path.push_back(segment);
    }
    cache.keep(found.path);
    return known;
  }
  static std::vector<TokenId> ids_of(const std::string& text) {
    return {static_cast<TokenId>(xxh3_64(text)), static_cast<TokenId>(text.size())};
  }
  PrefixCache::Counters counters() {
    return {.hits = metrics_.counter("hits", ""),
            .misses = metrics_.counter("misses", ""),
            .evictions = metrics_.counter("evictions", ""),
            .bytes = metrics_.gauge("bytes", "")};
  }
  Metrics metrics_;
};

TEST_F(PrefixCacheTest, FindsTheLongestKnownPrefix) {
  PrefixCache cache(1 << 20, counters());
  EXPECT_EQ(use(cache, {"a", "b", "c"}), 0U);
  EXPECT_EQ(use(cache, {"a", "b", "c"}), 3U);
  EXPECT_EQ(use(cache, {"a", "b", "x"}), 2U);
  EXPECT_EQ(use(cache, {"a", "b", "x", "y"}), 3U);
  EXPECT_EQ(use(cache, {"b", "c"}), 0U);
  EXPECT_EQ(counters().hits.value(), 3U);
  EXPECT_EQ(counters().misses.value(), 2U);
}

TEST_F(PrefixCacheTest, ScopesShareNothing) {
  PrefixCache cache(1 << 20, counters());
  use(cache, {"a", "b"}, 1);
  EXPECT_EQ(use(cache, {"a", "b"}, 2), 0U);
  EXPECT_EQ(use(cache, {"a", "b"}, 1), 2U);
}

TEST_F(PrefixCacheTest, CommonSegmentsAreKeptOnce) {
  PrefixCache cache(1 << 20, counters());
  use(cache, {std::string(10000, 'a'), "b"});
  const size_t bytes = cache.bytes();
  use(cache, {std::string(10000, 'a'), "c"});
  EXPECT_LT(cache.bytes() - bytes, 1000U);
  EXPECT_EQ(counters().bytes.value(), static_cast<double>(cache.bytes()));
}

TEST_F(PrefixCacheTest, TextsWithEqualHashesAreToldApart) {
  PrefixCache cache(1 << 20, counters());
  const auto forged = std::make_shared<PrefixSegment>();
  forged->key = xxh3_64(std::string_view("text"), kScope);
  forged->serial = cache.next_serial();
  forged->parent = kScope;
  forged->text = "other";
  const PrefixCache::Segment path[] = {forged};
  cache.keep(path);
  EXPECT_EQ(use(cache, {"text"}), 0U);  // and takes the forged one's place
  EXPECT_EQ(use(cache, {"text"}), 1U);
}

TEST_F(PrefixCacheTest, ASegmentIsFoundOnlyBehindItsOwnParent) {
  PrefixCache cache(1 << 20, counters());
  const uint64_t first = xxh3_64(std::string_view("a"), kScope);
  const auto forged = std::make_shared<PrefixSegment>();
  forged->key = xxh3_64(std::string_view("b"), first);
  forged->serial = cache.next_serial();
  forged->parent = 12345;  // some other text whose hash is `first`
  forged->text = "b";
  const PrefixCache::Segment path[] = {forged};
  cache.keep(path);
  EXPECT_EQ(use(cache, {"a", "b"}), 0U);
  EXPECT_EQ(use(cache, {"a", "b"}), 2U);
}

TEST_F(PrefixCacheTest, KeepsItsByteBoundByDroppingTheLeastRecentlyUsed) {
  PrefixCache cache(100'000, counters());
  use(cache, {std::string(30'000, 'a'), std::string(30'000, 'A')});
  use(cache, {std::string(30'000, 'b')});
  EXPECT_EQ(use(cache, {std::string(30'000, 'a')}), 1U);  // now the start of the path is young
  use(cache, {std::string(30'000, 'c')});
  EXPECT_LE(cache.bytes(), 100'000U);
  EXPECT_EQ(counters().evictions.value(), 1U);
  EXPECT_EQ(use(cache, {std::string(30'000, 'a')}), 1U);
  EXPECT_EQ(use(cache, {std::string(30'000, 'b')}), 1U);
}

TEST_F(PrefixCacheTest, APathIsEvictedFromItsEnd) {
  PrefixCache cache(100'000, counters());
  std::vector<std::string> path;
  for (int i = 0; i < 9; ++i) {
    path.push_back(std::string(10'000, static_cast<char>('a' + i)));
  }
  use(cache, path);
  use(cache, {std::string(25'000, 'x')});
  EXPECT_EQ(use(cache, path), 7U);
}

TEST_F(PrefixCacheTest, ASegmentLargerThanTheCacheIsNotKept) {
  PrefixCache cache(1000, counters());
  use(cache, {std::string(5000, 'a')});
  EXPECT_EQ(cache.bytes(), 0U);
  EXPECT_EQ(use(cache, {std::string(5000, 'a')}), 0U);
}

TEST_F(PrefixCacheTest, APathWhoseStartWasEvictedMeanwhileIsWholeAgain) {
  PrefixCache cache(50'000, counters());
  const std::vector<size_t> ends = {10'000, 20'000};
  const std::string text = std::string(10'000, 'a') + std::string(10'000, 'b');
  use(cache, {text.substr(0, 10'000), text.substr(10'000)});
  const PrefixCache::Found found = cache.find(kScope, text, ends);
  use(cache, {std::string(45'000, 'x')});
  cache.keep(found.path);
  EXPECT_EQ(cache.find(kScope, text, ends).path.size(), 2U);
}

TEST_F(PrefixCacheTest, ThreadsShareItSafely) {
  PrefixCache cache(20'000, counters());
  {
    std::vector<std::jthread> threads;
    for (uint64_t t = 0; t < 4; ++t) {
      threads.emplace_back([&cache, t] {
        Random random(t);
        for (int round = 0; round < 500; ++round) {
          std::vector<std::string> texts;
          for (uint64_t i = 0, n = 1 + random.below(8); i < n; ++i) {
            texts.push_back(std::string(500, static_cast<char>('a' + random.below(3))));
          }
          use(cache, texts);
        }
      });
    }
  }
  EXPECT_LE(cache.bytes(), 20'000U);
}

}  // namespace
}  // namespace stator::tokenizer
