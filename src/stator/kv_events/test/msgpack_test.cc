// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "stator/kv_events/msgpack_reader.h"
#include "stator/kv_events/msgpack_writer.h"

namespace stator::kv_events {
namespace {

using Kind = MsgpackReader::Kind;

TEST(Msgpack, IntegersOfEveryWidthComeBackInTheirShortestForm) {
  struct Case {
    uint64_t value;
    size_t bytes;
  };
  const Case cases[] = {{0, 1},
                        {127, 1},
                        {128, 2},
                        {255, 2},
                        {256, 3},
                        {65'535, 3},
                        {65'536, 5},
                        {0xffff'ffff, 5},
                        {0x1'0000'0000, 9},
                        {std::numeric_limits<uint64_t>::max(), 9}};
  for (const Case& c : cases) {
    const std::string bytes = MsgpackWriter().integer(c.value).take();
    MsgpackReader in(bytes);

    EXPECT_EQ(in.read_unsigned(), c.value);
    EXPECT_EQ(bytes.size(), c.bytes) << c.value;
    EXPECT_TRUE(in.ok() && in.at_end());
  }
}

TEST(Msgpack, IntegersBelowZeroComeBackInTheirShortestForm) {
  struct Case {
    int64_t value;
    size_t bytes;
  };
  const Case cases[] = {{-1, 1},
                        {-32, 1},
                        {-33, 2},
                        {-128, 2},
                        {-129, 3},
                        {-32'768, 3},
                        {-32'769, 5},
                        {-2'147'483'648, 5},
                        {-2'147'483'649, 9},
                        {std::numeric_limits<int64_t>::min(), 9}};
  for (const Case& c : cases) {
    const std::string bytes = MsgpackWriter().negative(c.value).take();
    MsgpackReader in(bytes);

    EXPECT_EQ(in.peek(), Kind::kNegative);
    EXPECT_EQ(static_cast<int64_t>(in.read_integer_bits()), c.value);
    EXPECT_EQ(bytes.size(), c.bytes) << c.value;
    EXPECT_TRUE(in.ok() && in.at_end());
  }
}

TEST(Msgpack, ASignedFormOfAPositiveNumberIsUnsigned) {
  const std::string bytes("\xd3\0\0\0\0\0\0\0\x07", 9);
  MsgpackReader in(bytes);

  EXPECT_EQ(in.peek(), Kind::kUnsigned);
  EXPECT_EQ(in.read_unsigned(), 7U);
}

TEST(Msgpack, TextsBytesAndContainersOfEveryLengthComeBack) {
  for (const size_t length : {0, 15, 16, 31, 32, 255, 256, 65'535, 65'536}) {
    const std::string content(length, 'x');
    MsgpackWriter out;
    out.text(content).bytes(content).array(static_cast<uint32_t>(length));
    for (size_t i = 0; i < length; ++i) {
      out.nil();
    }
    const std::string bytes = out.take();
    MsgpackReader in(bytes);

    EXPECT_EQ(in.read_text(), content);
    EXPECT_EQ(in.read_bytes(), content);
    EXPECT_EQ(in.read_array(), length);
    for (size_t i = 0; i < length; ++i) {
      EXPECT_TRUE(in.take_nil());
    }
    EXPECT_TRUE(in.ok() && in.at_end()) << length;
  }
}

TEST(Msgpack, NumbersAreFloatsOrIntegers) {
  const std::string bytes = MsgpackWriter().number(1.5).integer(3).negative(-4).take() +
                            std::string("\xca\x40\x20\0\0", 5);
  MsgpackReader in(bytes);

  EXPECT_EQ(in.read_number(), 1.5);
  EXPECT_EQ(in.read_number(), 3);
  EXPECT_EQ(in.read_number(), -4);
  EXPECT_EQ(in.read_number(), 2.5);
  EXPECT_TRUE(in.at_end());
}

TEST(Msgpack, SkipPassesOverAnything) {
  MsgpackWriter out;
  out.map(2).text("a").array(3).nil().boolean(true).number(2).text("b").map(1).integer(1).bytes(
      "x");
  const std::string bytes = out.take() + std::string("\xd5\x01zz\xc7\x03\x01zzz", 10) + "\x05";
  MsgpackReader in(bytes);

  in.skip();
  in.skip();
  in.skip();

  EXPECT_EQ(in.read_unsigned(), 5U);
  EXPECT_TRUE(in.ok() && in.at_end());
}

TEST(Msgpack, AMillionNestedArraysAreSkippedWithoutRecursion) {
  const std::string bytes = std::string(1'000'000, '\x91') + "\xc0";
  MsgpackReader in(bytes);

  in.skip();

  EXPECT_TRUE(in.ok() && in.at_end());
}

TEST(Msgpack, BadBytesAreRefusedAndTheFirstProblemSticks) {
  struct Case {
    std::string bytes;
    std::string problem;
  };
  const Case cases[] = {{"", "expected a value"},
                        {"\xc1", "expected a value"},
                        {std::string("\xcd\x01", 2), "cut off"},
                        {"\xa5zzz", "cut off"},
                        {"\xd9", "cut off"},
                        {"\xc6\xff\xff\xff\xff", "cut off"},
                        {"\xdd\xff\xff\xff\xff\x01", "more elements"},
                        {"\xdf\x7f\xff\xff\xff\x01\x02", "more elements"},
                        {"\x92\x01", "more elements"}};
  for (const Case& c : cases) {
    MsgpackReader in(c.bytes);
    in.skip();
    in.fail("a later problem");

    const Status status = in.status();
    ASSERT_FALSE(status.has_value());
    EXPECT_EQ(status.error().code(), Code::kCorrupt);
    EXPECT_NE(status.error().message().find(c.problem), std::string::npos)
        << status.error().message();
    EXPECT_EQ(in.peek(), Kind::kEnd);
    EXPECT_EQ(in.read_array(), 0U);
  }
}

TEST(Msgpack, AWrongTypeIsRefusedByEveryRead) {
  const std::string text = MsgpackWriter().text("x").take();
  const std::string number = MsgpackWriter().integer(300).take();
  const auto fails = [](const std::string& bytes, auto read) {
    MsgpackReader in(bytes);
    read(in);
    return !in.ok();
  };

  EXPECT_TRUE(fails(text, [](auto& in) { in.read_unsigned(); }));
  EXPECT_TRUE(fails(text, [](auto& in) { in.read_integer_bits(); }));
  EXPECT_TRUE(fails(text, [](auto& in) { in.read_number(); }));
  EXPECT_TRUE(fails(text, [](auto& in) { in.read_bytes(); }));
  EXPECT_TRUE(fails(text, [](auto& in) { in.read_bool(); }));
  EXPECT_TRUE(fails(text, [](auto& in) { in.read_array(); }));
  EXPECT_TRUE(fails(text, [](auto& in) { in.read_map(); }));
  EXPECT_TRUE(fails(number, [](auto& in) { in.read_text(); }));
  EXPECT_TRUE(fails(number, [](auto& in) { in.read_unsigned_max(299); }));
  EXPECT_FALSE(fails(number, [](auto& in) { in.read_unsigned_max(300); }));
}

}  // namespace
}  // namespace stator::kv_events
