// SPDX-License-Identifier: Apache-2.0
#include "stator/lab/fake_engine/published_blocks.h"

#include <gtest/gtest.h>

#include <numeric>

namespace stator::fake_engine {
namespace {

constexpr uint32_t kBlockSize = 4;

std::vector<TokenId> tokens(TokenId first, size_t count) {
  std::vector<TokenId> out(count);
  std::iota(out.begin(), out.end(), first);
  return out;
}

std::vector<kv::KvEvent> stored(const std::vector<TokenId>& prompt, const BlockOwner& owner) {
  blocks::BlockHasher hasher(kBlockSize, blocks::hash_seed(owner.lora_name, owner.cache_salt));
  hasher.append(prompt);
  kv::BlocksStored data;
  for (size_t i = 0; i < hasher.sequences().size(); ++i) {
    data.blocks.push_back({.external = blocks::ExternalHash(hasher.sequences()[i].value()),
                           .local = hasher.locals()[i]});
  }
  return {{.event_id = 1, .data = data}};
}

TEST(PublishedBlocks, StoresCarryTheirTokens) {
  PublishedBlocks book(kBlockSize, 100);
  const BlockOwner owner{.lora_name = "ad1", .lora_id = 1, .cache_salt = "salt", .session_id = "s"};
  SequenceTrace trace(kBlockSize, owner);
  const auto prompt = tokens(10, 9);
  book.append(trace, prompt);

  const auto events = book.translate(stored(prompt, owner));

  ASSERT_EQ(events.size(), 1U);
  const auto& store = std::get<WireStored>(events[0]);
  EXPECT_EQ(store.tokens, tokens(10, 8));
  EXPECT_EQ(store.hashes.size(), 2U);
  EXPECT_EQ(store.parent, std::nullopt);
  EXPECT_EQ(store.lora_name, "ad1");
  EXPECT_EQ(store.session_id, "s");
  EXPECT_EQ(store.extra_keys, (std::vector<std::vector<std::string>>{{"ad1", "salt"}, {"ad1"}}));
}

TEST(PublishedBlocks, BlocksFilledDuringDecodeNameTheirParent) {
  PublishedBlocks book(kBlockSize, 100);
  SequenceTrace trace(kBlockSize, {});
  const auto all = tokens(1, 8);
  book.append(trace, std::span(all).first(6));
  book.append(trace, std::span(all).subspan(6));
  auto events = stored(all, {});
  auto& data = std::get<kv::BlocksStored>(events[0].data);
  const uint64_t first = data.blocks[0].external.value();
  data.blocks.erase(data.blocks.begin());

  const auto wire = book.translate(events);

  const auto& store = std::get<WireStored>(wire.at(0));
  EXPECT_EQ(store.parent, first);
  EXPECT_EQ(store.tokens, tokens(5, 4));
}

TEST(PublishedBlocks, TwoOwnersAreTwoEvents) {
  PublishedBlocks book(kBlockSize, 100);
  SequenceTrace one(kBlockSize, {.session_id = "one"});
  SequenceTrace two(kBlockSize, {.session_id = "two"});
  book.append(one, tokens(1, 4));
  book.append(two, tokens(50, 4));
  auto events = stored(tokens(1, 4), {});
  events.push_back(stored(tokens(50, 4), {}).front());

  EXPECT_EQ(book.translate(events).size(), 2U);
}

TEST(PublishedBlocks, IsBoundedAndCountsWhatItForgot) {
  PublishedBlocks book(kBlockSize, 2);
  SequenceTrace trace(kBlockSize, {});
  book.append(trace, tokens(1, 40));
  EXPECT_EQ(book.size(), 2U);

  const auto events = book.translate(stored(tokens(1, 40), {}));

  EXPECT_EQ(book.unknown_blocks(), 8U);
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(std::get<WireStored>(events[0]).hashes.size(), 2U);
}

}  // namespace
}  // namespace stator::fake_engine
