// SPDX-License-Identifier: Apache-2.0
#include "stator/kv/lineage_hash.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <numeric>
#include <vector>

namespace stator::kv {
namespace {

std::string hex(const LineageHash& hash) {
  return fmt::format("{:016x}{:016x}", hash.high(), hash.low());
}

/// Of tokens 0, 1, 2, … in blocks of 16.
std::vector<LineageHash> lineage(size_t blocks, uint64_t seed) {
  std::vector<LineageHash> out;
  std::vector<TokenId> tokens(16);
  for (size_t block = 0; block < blocks; ++block) {
    std::iota(tokens.begin(), tokens.end(), static_cast<TokenId>(block * 16));
    const blocks::LocalHash local = blocks::hash_block(tokens, seed);
    out.push_back(block == 0 ? LineageHash::root(local) : *out.back().extend(local));
  }
  return out;
}

TEST(LineageHash, EqualsTheReferenceVectors) {
  const std::vector<LineageHash> made = lineage(65'537, blocks::hash_seed("", ""));

  EXPECT_EQ(hex(made[0]), "00351ea3d0720ccca280000000000000");
  EXPECT_EQ(hex(made[1]), "006fc577fec5911fce3a8f41c833328a");
  EXPECT_EQ(hex(made[255]), "3ffd1ad5dd81f51daa8329b8e5971c27");
  EXPECT_EQ(hex(made[256]), "404016bf91f199db77c6177607d476aa");
  EXPECT_EQ(hex(made[65'535]), "7fffc85c1f9b955ca0ca96c7f2581795");
  EXPECT_EQ(hex(made[65'536]), "80400007aabcab9149bd026e5572832a");
  EXPECT_EQ(made[255].current().value(), 0xf46b577607d476aaULL);
  EXPECT_EQ(made[65'536].position(), 65'536U);
}

TEST(LineageHash, KeepsAdaptersApart) {
  const std::vector<LineageHash> made = lineage(2, blocks::hash_seed("adapter-a", ""));

  EXPECT_EQ(hex(made[0]), "003c7883185563c5aec0000000000000");
  EXPECT_EQ(hex(made[1]), "004fe74a3914c831ac620c61558f16bb");
}

TEST(LineageHash, TextAndBytesReadBack) {
  for (const LineageHash& hash : lineage(300, 1337)) {
    EXPECT_EQ(LineageHash::parse(hash.text()), hash) << hash.text();
    EXPECT_EQ(LineageHash::from_big_endian(hash.big_endian()), hash);
  }
  for (const char* text : {"", "0", "0:", ":1", "1:111", "0:0OIl", "99999999:2:2", "0:2:2", "x:2",
                           "0:zzzzzzzzzzzzzzzz", "1:2:3 "}) {
    EXPECT_FALSE(LineageHash::parse(text)) << text;
  }
}

TEST(LineageHash, PositionsEndAtTheirLimit) {
  const auto last = LineageHash::make(LineageHash::kPositionsMax - 1, blocks::SequenceHash(5),
                                      blocks::SequenceHash(7));
  ASSERT_TRUE(last);
  EXPECT_EQ(last->position(), LineageHash::kPositionsMax - 1);
  EXPECT_FALSE(last->extend(blocks::LocalHash(1)));
}

}  // namespace
}  // namespace stator::kv
