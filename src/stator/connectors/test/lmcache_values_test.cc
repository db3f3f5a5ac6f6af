// SPDX-License-Identifier: Apache-2.0
#include "stator/connectors/lmcache_values.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <random>

#include "stator/core/raw_bytes.h"

namespace stator::connectors {
namespace {

std::vector<std::byte> value_of(size_t bytes, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<std::byte> out(bytes);
  for (std::byte& one : out) {
    one = static_cast<std::byte>(random());
  }
  return out;
}

LmMeta meta_of(const std::vector<std::byte>& value) {
  return {.length = static_cast<int32_t>(value.size()),
          .format = 1,
          .type = 3,
          .shape = {2, 4, 17, static_cast<int32_t>(value.size())}};
}

TEST(LmcacheValues, ValuesOfAnySizeComeBackAsTheyWereAlsoAfterARestart) {
  const auto folder = std::filesystem::temp_directory_path() /
                      ("stator-lm-" + std::to_string(std::random_device{}()));
  SystemClock clock;
  const storage::CacheServiceOptions options{
      .host_bytes = 4 << 20, .folder = folder, .folder_bytes = 64 << 20};
  const std::vector<size_t> sizes = {1, 4096, 4097, 100'000, 1 << 20};
  for (const bool again : {false, true}) {
    Metrics metrics;
    storage::CacheService cache(options, clock, metrics);
    cache.recover();
    LmcacheValues values(cache);
    for (const size_t bytes : sizes) {
      const std::string key = "model@1@0@" + std::to_string(bytes) + "@bfloat16";
      const auto value = value_of(bytes, static_cast<uint32_t>(bytes));
      EXPECT_EQ(values.has(key), again);
      if (!again) {
        ASSERT_TRUE(values.put(key, meta_of(value), value));
        EXPECT_EQ(values.put(key, meta_of(value), value).error().code(), Code::kAlreadyExists);
      }
      const auto got = values.get(key);
      ASSERT_TRUE(got) << got.error().to_string();
      EXPECT_EQ(got->meta, meta_of(value));
      EXPECT_EQ(std::vector(got->bytes().begin(), got->bytes().end()), value);
    }
    EXPECT_EQ(values.get("another").error().code(), Code::kNotFound);
  }
  std::filesystem::remove_all(folder);
}

TEST(LmcacheWire, HeadsThatNoClientSendsAreRefused) {
  std::array<std::byte, LmRequest::kBytes> head{};
  put_raw(head, 0, int32_t{2});
  put_raw(head, 4, int32_t{0});
  std::ranges::fill(std::span(head).subspan(36), std::byte{' '});
  EXPECT_FALSE(decode_lm_request(head, 100)) << "no key";
  head[36] = std::byte{'k'};
  const auto good = decode_lm_request(head, 100);
  ASSERT_TRUE(good);
  EXPECT_EQ(good->key, "k");
  EXPECT_EQ(good->command, LmCommand::kGet);
  EXPECT_FALSE(decode_lm_request(std::span(head).first(100), 100));
  for (const int32_t command : {0, 6, -1}) {
    put_raw(head, 0, command);
    EXPECT_FALSE(decode_lm_request(head, 100));
  }
  put_raw(head, 0, int32_t{1});
  for (const int32_t length : {-1, 101}) {
    put_raw(head, 4, length);
    EXPECT_FALSE(decode_lm_request(head, 100));
  }
}

}  // namespace
}  // namespace stator::connectors
