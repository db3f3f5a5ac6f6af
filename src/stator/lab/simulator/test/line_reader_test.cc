// SPDX-License-Identifier: Apache-2.0
#include "stator/lab/simulator/line_reader.h"

#include <gtest/gtest.h>

#include <sstream>

namespace stator::simulator {
namespace {

/// Gives at most a few bytes at a time, of a text that is as long as asked for.
class EndlessBuffer final : public std::streambuf {
 public:
  EndlessBuffer(std::string piece, uint64_t pieces) : piece_(std::move(piece)), left_(pieces) {}

 protected:
  int_type underflow() override {
    if (left_ == 0) {
      return traits_type::eof();
    }
    --left_;
    setg(piece_.data(), piece_.data(), piece_.data() + piece_.size());
    return traits_type::to_int_type(piece_[0]);
  }

 private:
  std::string piece_;
  uint64_t left_;
};

TEST(LineReader, SkipsBlankLinesAndCountsThem) {
  std::istringstream input("\xEF\xBB\xBFone\r\n \n\ntwo\nthree");
  LineReader lines(input, "f");
  std::string_view line;

  ASSERT_TRUE(*lines.next(line));
  EXPECT_EQ(line, "one");
  ASSERT_TRUE(*lines.peek(line));
  EXPECT_EQ(line, "two");
  ASSERT_TRUE(*lines.next(line));
  EXPECT_EQ(line, "two");
  EXPECT_EQ(lines.number(), 4);
  EXPECT_EQ(lines.buffered(), "three");
  ASSERT_TRUE(*lines.next(line));
  EXPECT_EQ(line, "three");
  EXPECT_FALSE(*lines.next(line));
  EXPECT_FALSE(*lines.next(line));
  EXPECT_EQ(lines.fail("field", "what").message(), "f:5: field: what");
}

TEST(LineReader, LinesThatSpanManyReadsAreWhole) {
  EndlessBuffer buffer(std::string(700'000, 'a') + "\n" + std::string(9, 'b') + "\n", 4);
  std::istream input(&buffer);
  LineReader lines(input, "f");
  std::string_view line;
  size_t bytes = 0;
  while (*lines.next(line)) {
    bytes += line.size();
  }

  EXPECT_EQ(bytes, 4 * 700'009);
  EXPECT_EQ(lines.number(), 8);
}

TEST(LineReader, RefusesALineWithoutEnd) {
  EndlessBuffer buffer(std::string(1 << 20, 'a'), 1'000'000);
  std::istream input(&buffer);
  LineReader lines(input, "f");
  std::string_view line;

  const auto found = lines.next(line);

  ASSERT_FALSE(found.has_value());
  EXPECT_EQ(found.error().message(), "f:1: line: longer than 67108864 bytes");
}

}  // namespace
}  // namespace stator::simulator
