// SPDX-License-Identifier: Apache-2.0
#include "stator/text/base64.h"

#include <gtest/gtest.h>

#include <string>

namespace stator::text {
namespace {

TEST(Base64, SpellsAsTheRfcDoes) {
  // RFC 4648 §10.
  const std::pair<std::string, std::string> vectors[] = {{"", ""},
                                                         {"f", "Zg=="},
                                                         {"fo", "Zm8="},
                                                         {"foo", "Zm9v"},
                                                         {"foob", "Zm9vYg=="},
                                                         {"fooba", "Zm9vYmE="},
                                                         {"foobar", "Zm9vYmFy"}};
  for (const auto& [bytes, spelling] : vectors) {
    std::string out = "x";
    append_base64(out, bytes);
    EXPECT_EQ(out, "x" + spelling);
    EXPECT_EQ(decode_base64(spelling), bytes);
  }
}

TEST(Base64, DecodesEveryByteThatItWrote) {
  std::string bytes;
  for (int i = 0; i < 256; ++i) {
    bytes.push_back(static_cast<char>(i));
    std::string out;
    append_base64(out, bytes);
    EXPECT_EQ(decode_base64(out), bytes);
  }
}

TEST(Base64, RefusesWhatIsNone) {
  for (const char* text : {"Z", "Zm9v!", "Zm 9v", "Zm9v\n", "Zm-_", "====", "=Zg="}) {
    EXPECT_EQ(decode_base64(text), std::nullopt) << text;
  }
}

TEST(Base64Url, GoesThereAndBack) {
  for (const std::string text : {"", "f", "fo", "foo", "foob", "\xff\xfe\x00z"}) {
    EXPECT_EQ(decode_base64url(encode_base64url(text)), text);
  }
  EXPECT_EQ(encode_base64url("\xff\xef"), "_-8");
  EXPECT_EQ(encode_base64url("\xff\xef", Padding::kEquals), "_-8=");
  for (const std::string_view wrong : {"a", "ab==", "a+b/", "_-9", "a b"}) {
    EXPECT_FALSE(decode_base64url(wrong)) << wrong;
  }
}

}  // namespace
}  // namespace stator::text
