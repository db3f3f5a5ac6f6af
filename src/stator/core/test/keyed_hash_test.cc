// SPDX-License-Identifier: Apache-2.0
#include "stator/core/keyed_hash.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace stator {
namespace {

// Python hashes bytes with SipHash-1-3; PYTHONHASHSEED=0 is a key of zeros:
// PYTHONHASHSEED=0 python3.11 -c 'print(hex(hash(b"stator") % 2**64))'
TEST(KeyedHash, IsSipHash13) {
  const HashKey zero{0, 0};

  EXPECT_EQ(keyed_hash(zero, "a"), 0x407448d2b89b1813ULL);
  EXPECT_EQ(keyed_hash(zero, "stator"), 0x0bb35772f08a1255ULL);
  EXPECT_EQ(keyed_hash(zero, "12345678"), 0x3489982430560a87ULL);
  EXPECT_EQ(keyed_hash(zero, "sixteen bytes ok"), 0x990122690d52edb7ULL);
  EXPECT_EQ(keyed_hash(zero, "a text of more than two words"), 0xc5004e0cfb6cea9aULL);
}

TEST(KeyedHash, EveryKeyGivesOtherHashes) {
  std::set<uint64_t> hashes;
  for (uint64_t bit = 0; bit < 64; ++bit) {
    hashes.insert(keyed_hash(HashKey{uint64_t{1} << bit, 0}, "session"));
    hashes.insert(keyed_hash(HashKey{0, uint64_t{1} << bit}, "session"));
  }

  EXPECT_EQ(hashes.size(), 128U);
}

TEST(KeyedHash, TheProcessKeepsItsKey) {
  EXPECT_EQ(keyed_hash(std::string("x-session-id")), keyed_hash("x-session-id"));
  EXPECT_NE(keyed_hash("x-session-id"), keyed_hash(HashKey{0, 0}, "x-session-id"));
  EXPECT_NE(keyed_hash(""), keyed_hash(std::string_view("\0", 1)));
}

}  // namespace
}  // namespace stator
