// SPDX-License-Identifier: Apache-2.0
#include "stator/core/crc32c.h"

#include <gtest/gtest.h>

#include <string_view>
#include <vector>

namespace stator {
namespace {

uint32_t of(std::string_view text) {
  return crc32c(std::as_bytes(std::span(text)));
}

TEST(Crc32c, EqualsTheVectorsOfRfc3720) {
  EXPECT_EQ(of("123456789"), 0xE3069283U);
  EXPECT_EQ(crc32c(std::vector<std::byte>(32)), 0x8A9136AAU);
  EXPECT_EQ(crc32c(std::vector<std::byte>(32, std::byte{0xFF})), 0x62A8AB43U);
  EXPECT_EQ(of(""), 0U);
}

TEST(Crc32c, GoesOnWhereItEndedAtAnyCut) {
  std::vector<std::byte> bytes(40'003);
  for (size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<std::byte>(i * 131 + i / 251);
  }
  const uint32_t whole = crc32c(bytes);
  for (const size_t cut : {1UL, 7UL, 4'096UL, 12'288UL, 12'289UL, 30'000UL, 40'002UL}) {
    const auto all = std::span<const std::byte>(bytes);
    EXPECT_EQ(crc32c(all.subspan(cut), crc32c(all.first(cut))), whole) << cut;
  }
  std::vector<std::byte> flipped = bytes;
  flipped[20'000] ^= std::byte{1};
  EXPECT_NE(crc32c(flipped), whole);
}

}  // namespace
}  // namespace stator
