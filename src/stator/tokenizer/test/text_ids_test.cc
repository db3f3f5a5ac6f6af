// SPDX-License-Identifier: Apache-2.0
#include "stator/tokenizer/text_ids.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "stator/core/random.h"
#include "stator/tokenizer/detail/merge_reader.h"

namespace stator::tokenizer {
namespace {

TEST(TextIds, FindsWhatAMapFinds) {
  Random random(11);
  std::map<std::string, TokenId> expected;
  TextIds ids(5000, 5000 * 12);
  for (TokenId id = 0; id < 5000; ++id) {
    std::string text;
    for (uint64_t left = random.below(12); left > 0; --left) {
      text += static_cast<char>('a' + random.below(3));
    }
    expected[text] = id;
    ids.insert_or_assign(text, id);
  }
  const TextIds moved = std::move(ids);

  ASSERT_EQ(moved.size(), expected.size());
  for (size_t i = 0; i < moved.size(); ++i) {
    EXPECT_EQ(expected.at(std::string(moved.text(i))), moved.id(i));
  }
  for (const auto& [text, id] : expected) {
    EXPECT_EQ(moved.find(text), id);
    EXPECT_EQ(moved.find(text + "d"), TextIds::kNone);
  }
  EXPECT_EQ(TextIds().find("a"), TextIds::kNone);
}

TEST(MergeReader, ReadsTheByteAlphabetAndTellsWhatIsNotOfIt) {
  TextIds ids(5, 20);
  ids.insert_or_assign(" ", 0);
  ids.insert_or_assign("a", 1);
  ids.insert_or_assign(" a", 2);
  MergeReader reader(ids, MergeReader::Spelling::kBytes, 0);

  const MergeReader::Spelled merges[] = {{"Ġ", "a"}, {"a", "Ġ"}, {"a", "水"}, {"水", "a"}};
  reader.read(merges);

  EXPECT_TRUE(reader.ids(0).complete());
  EXPECT_EQ(reader.ids(0).merged, 2U);
  EXPECT_EQ(reader.ids(1).left, 1U);
  EXPECT_EQ(reader.ids(1).merged, TextIds::kNone);
  EXPECT_FALSE(reader.ids(2).complete());
  EXPECT_FALSE(reader.ids(3).complete());
}

TEST(MergeReader, LeavesOutThePrefixOfPartsThatContinueAWord) {
  TextIds ids(3, 20);
  ids.insert_or_assign("a", 1);
  ids.insert_or_assign("##b", 2);
  ids.insert_or_assign("ab", 3);
  MergeReader reader(ids, MergeReader::Spelling::kAsInFile, 2);

  const MergeReader::Spelled merges[] = {{"a", "##b"}};
  reader.read(merges);

  EXPECT_EQ(reader.ids(0).left, 1U);
  EXPECT_EQ(reader.ids(0).right, 2U);
  EXPECT_EQ(reader.ids(0).merged, 3U);
}

}  // namespace
}  // namespace stator::tokenizer
