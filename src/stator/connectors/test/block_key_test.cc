// SPDX-License-Identifier: Apache-2.0
#include "stator/connectors/block_key.h"

#include <gtest/gtest.h>

#include "stator/storage/test/blocks_fixture.h"

namespace stator::connectors {
namespace {

using storage::TestSequence;

TEST(BlockKey, NamesAreThoseOfOurOwnEngines) {
  const storage::Digest space = storage::test_space();
  for (const std::string owner : {"", "tenant"}) {
    const TestSequence sequence(300, 5, space, owner);

    EXPECT_EQ(name_tokens(space, nullptr, owner, sequence.tokens, TestSequence::kBlockTokens),
              sequence.names);
  }
}

TEST(BlockKey, ASequenceIsNamedInPiecesOrAtOnce) {
  const storage::Digest space = storage::test_space();
  const TestSequence sequence(6, 5, space);
  const std::span<const TokenId> tokens = sequence.tokens;

  const auto head = name_tokens(space, nullptr, "", tokens.first(3 * 16 + 15), 16);
  ASSERT_EQ(head.size(), 3U);
  const auto tail = name_tokens(space, &head.back(), "", tokens.subspan(3 * 16), 16);

  EXPECT_EQ(tail, std::vector(sequence.names.begin() + 3, sequence.names.end()));
}

TEST(BlockKey, BytesReadBackAndNamesOfTextAreTheirOwn) {
  const storage::Digest space = storage::test_space();
  const storage::BlockName named = name_text(space, "page-1");

  EXPECT_EQ(from_bytes(to_bytes(named)), named);
  EXPECT_NE(named, name_text(space, "page-2"));
  EXPECT_NE(named.check, name_text(storage::test_space("other"), "page-1").check);
}

}  // namespace
}  // namespace stator::connectors
