// SPDX-License-Identifier: Apache-2.0
#include "stator/batches/multipart.h"

#include <gtest/gtest.h>

namespace stator::batches {
namespace {

constexpr std::string_view kType = "multipart/form-data; boundary=\"x y\"";
constexpr std::string_view kBody =
    "--x y\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\nbatch\r\n"
    "--x y\r\ncontent-disposition: form-data; name=file; filename=\"a\\\"b;c.jsonl\"\r\n"
    "Content-Type: text/plain\r\n\r\n{}\r\n--x\r\n\r\n--x y--\r\n";

TEST(Multipart, ReadsPartsWithTheirNames) {
  const auto parts = parse_form(kType, kBody);

  ASSERT_TRUE(parts) << parts.error().message();
  ASSERT_EQ(parts->size(), 2U);
  EXPECT_EQ((*parts)[0].name, "purpose");
  EXPECT_EQ((*parts)[0].content, "batch");
  EXPECT_EQ((*parts)[1].name, "file");
  EXPECT_EQ((*parts)[1].filename, "a\"b;c.jsonl");
  EXPECT_EQ((*parts)[1].content, "{}\r\n--x\r\n");
}

TEST(Multipart, RefusesEveryPrefix) {
  const size_t end = kBody.rfind("--");
  for (size_t length = 0; length < end; ++length) {
    EXPECT_FALSE(parse_form(kType, kBody.substr(0, length))) << length;
  }
}

TEST(Multipart, RefusesWhatIsNoForm) {
  EXPECT_EQ(parse_form("application/json", "{}").error().code(), Code::kUnsupportedMedia);
  EXPECT_EQ(parse_form("multipart/form-data", "").error().code(), Code::kUnsupportedMedia);
  EXPECT_FALSE(parse_form("multipart/form-data; boundary=a", "--a\r\nX: y\r\n\r\n1\r\n--a--"));
  std::string many = "--a";
  for (size_t i = 0; i <= kFormPartsMax; ++i) {
    many += "\r\nContent-Disposition: form-data; name=\"n\"\r\n\r\n1\r\n--a";
  }
  EXPECT_TRUE(parse_form("multipart/form-data; boundary=a", many + "--")
                  .error()
                  .message()
                  .contains("more than 32 parts"));
}

}  // namespace
}  // namespace stator::batches
