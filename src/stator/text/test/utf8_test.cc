// SPDX-License-Identifier: Apache-2.0
#include "stator/text/utf8.h"

#include <gtest/gtest.h>

#include "stator/core/random.h"

namespace stator::text {
namespace {

std::string replaced(std::string_view bytes) {
  std::string out;
  append_lossy(out, bytes);
  return out;
}

TEST(Utf8, EncodesEveryCodePointAsItIsDecoded) {
  for (char32_t code_point = 0; code_point <= 0x10FFFF; ++code_point) {
    if (code_point >= 0xD800 && code_point < 0xE000) {
      continue;
    }
    std::string out;
    append_utf8(out, code_point);
    ASSERT_TRUE(is_valid_utf8(out)) << static_cast<uint32_t>(code_point);
    ASSERT_EQ(decode_at(out, 0).value, code_point);
    ASSERT_EQ(decode_at(out, 0).bytes, out.size());
    ASSERT_EQ(previous_boundary(out, out.size()), 0U);
    ASSERT_TRUE(classify_utf8(out).is_character());
  }
}

TEST(Utf8, EncodesSurrogatesAndTooLargeValuesAsReplacement) {
  for (const char32_t code_point : {0xD800U, 0xDFFFU, 0x110000U, 0xFFFFFFFFU}) {
    std::string out;
    append_utf8(out, code_point);
    EXPECT_EQ(out, kReplacementCharacter);
  }
}

TEST(Utf8, JoinsSurrogates) {
  EXPECT_EQ(join_surrogates(0xD83C, 0xDF89), U'🎉');
  EXPECT_TRUE(is_high_surrogate(0xDBFF));
  EXPECT_FALSE(is_high_surrogate(0xDC00));
  EXPECT_TRUE(is_low_surrogate(0xDFFF));
  EXPECT_FALSE(is_low_surrogate(0xE000));
}

TEST(Utf8, TellsCutOffFromBroken) {
  using Kind = Utf8Prefix::Kind;
  EXPECT_EQ(classify_utf8("\xF0\x9F\x8E").kind, Kind::kIncomplete);
  EXPECT_EQ(classify_utf8("\xF0\x9F\x8E").bytes, 3U);
  EXPECT_EQ(classify_utf8("\xE6\xBCx").kind, Kind::kInvalid);
  EXPECT_EQ(classify_utf8("\xE6\xBCx").bytes, 2U);
  EXPECT_EQ(classify_utf8("\xC0\xAF").kind, Kind::kInvalid);
  EXPECT_EQ(classify_utf8("\xED\xA0\x80").bytes, 1U);
}

TEST(Utf8, AgreesWithTheVectorisedValidatorOnRandomBytes) {
  Random random(13);
  for (int round = 0; round < 20000; ++round) {
    std::string bytes(1 + random.below(6), '\0');
    for (char& byte : bytes) {
      // Mostly bytes from the interesting upper half.
      byte = static_cast<char>(random.below(4) == 0 ? random.below(256) : 0x80 + random.below(128));
    }

    EXPECT_EQ(replaced(bytes) == bytes, is_valid_utf8(bytes));
    EXPECT_TRUE(is_valid_utf8(replaced(bytes)));
  }
}

}  // namespace
}  // namespace stator::text
