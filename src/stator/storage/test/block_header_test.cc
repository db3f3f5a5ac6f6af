// SPDX-License-Identifier: Apache-2.0
#include "stator/storage/block_header.h"

#include <gtest/gtest.h>

#include <set>

#include "stator/storage/test/blocks_fixture.h"

namespace stator::storage {
namespace {

class BlockHeaderTest : public testing::Test {
 protected:
  BlockHeaderTest() : header(describe_payload(payload, sequence.tokens_of(1))) {
    header.space = space;
    header.name = sequence.names[1];
    header.parent = sequence.names[0].lineage;
    header.generation = 7;
    encode(header, bytes);
  }
  Code outcome(const Expected& expected) const {
    const auto checked = check_header(bytes, expected);
    return checked ? Code::kInternal : checked.error().code();
  }

  const Digest space = test_space();
  const TestSequence sequence{2, 100, space};
  const std::vector<std::byte> payload = sequence.payload(1, 3 << 20);
  BlockHeader header;
  std::vector<std::byte> bytes = std::vector<std::byte>(BlockHeader::kBytes);
};

TEST_F(BlockHeaderTest, ReadsBackWhatWasWritten) {
  const auto read = decode_header(bytes);

  ASSERT_TRUE(read);
  EXPECT_EQ(read->name, sequence.names[1]);
  EXPECT_EQ(read->parent, sequence.names[0].lineage);
  EXPECT_EQ(read->space, space);
  EXPECT_EQ(read->generation, 7U);
  EXPECT_EQ(read->group_crcs.size(), 3U);
  EXPECT_TRUE(std::ranges::equal(read->tokens, sequence.tokens_of(1)));
  EXPECT_TRUE(check_payload(*read, payload));
}

TEST_F(BlockHeaderTest, AnyFlippedBitIsFound) {
  for (size_t at = 0; at < bytes.size(); at += 37) {
    bytes[at] ^= std::byte{0x10};
    const auto read = decode_header(bytes);
    ASSERT_FALSE(read) << at;
    EXPECT_EQ(read.error().code(), Code::kCorrupt);
    bytes[at] ^= std::byte{0x10};
  }
  std::vector<std::byte> damaged = payload;
  damaged[2'500'000] ^= std::byte{1};
  EXPECT_EQ(check_payload(header, damaged).error().code(), Code::kCorrupt);
  EXPECT_FALSE(check_payload(header, std::span(payload).first(payload.size() - 1)));
}

TEST_F(BlockHeaderTest, IsNotTakenForAnotherBlock) {
  const uint64_t size = payload.size();
  EXPECT_EQ(outcome({space, sequence.names[1], size, sequence.tokens_of(1)}), Code::kInternal);
  EXPECT_EQ(outcome({space, sequence.names[0], size}), Code::kNotFound);
  EXPECT_EQ(outcome({test_space("other"), sequence.names[1], size}), Code::kNotFound);
  EXPECT_EQ(outcome({space, sequence.names[1], size - 1}), Code::kNotFound);
  EXPECT_EQ(outcome({space, sequence.names[1], size, sequence.tokens_of(0)}), Code::kNotFound);
}

TEST(BlockName, DependsOnEverythingThatMatters) {
  const NamespaceFacts plain{.model = "m", .dtype = "f32", .layout = "l", .block_tokens = 16};
  std::set<std::string> seen = {to_hex(namespace_of(plain))};
  for (auto change : std::vector<void (*)(NamespaceFacts&)>{
           [](auto& f) { f.model = "n"; }, [](auto& f) { f.revision = "2"; },
           [](auto& f) { f.tokenizer = "t"; }, [](auto& f) { f.dtype = "f16"; },
           [](auto& f) { f.layout = "k"; }, [](auto& f) { f.salt = "s"; },
           [](auto& f) { f.block_tokens = 32; }, [](auto& f) { f.layers = 1; },
           [](auto& f) { f.kv_heads = 1; }, [](auto& f) { f.head_dim = 1; },
           [](auto& f) { f.block_bytes = 1; }}) {
    NamespaceFacts changed = plain;
    change(changed);
    EXPECT_TRUE(seen.insert(to_hex(namespace_of(changed))).second);
  }
  const TestSequence one(3, 0, test_space());
  const TestSequence salted(3, 0, test_space(), "1:atenant");
  const TestSequence elsewhere(3, 0, test_space("other"));
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_NE(one.names[i].check, salted.names[i].check);
    EXPECT_NE(one.names[i].check, elsewhere.names[i].check);
    EXPECT_EQ(one.names[i].lineage.position(), i);
  }
  EXPECT_EQ(TestSequence(3, 0, test_space()).names, one.names);
}

}  // namespace
}  // namespace stator::storage
