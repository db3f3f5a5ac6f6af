// SPDX-License-Identifier: Apache-2.0
#include "stator/perf/parquet_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

#include "stator/core/random.h"

namespace stator::perf {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const std::string kTestdata = STATOR_SOURCE_DIR "/src/stator/perf/testdata/";

std::string bytes_of_file(const std::string& name) {
  std::ifstream file(kTestdata + name, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST(ParquetFile, ReadsNumbersTextsAndWhatIsAbsent) {
  const ParquetFile file = *ParquetFile::read(kTestdata + "types.parquet");
  EXPECT_EQ(file.rows(), 3U);
  const auto whole = *file.numbers("whole");
  EXPECT_EQ(whole[0], 1);
  EXPECT_TRUE(std::isnan(whole[1]));
  EXPECT_EQ(whole[2], -3);
  EXPECT_EQ((*file.numbers("half"))[1], 1.5);
  EXPECT_THAT(*file.texts("text"), ElementsAre("a", "", "ccc"));
  EXPECT_FALSE(file.has("yes"));
}

TEST(ParquetFile, ReadsManyPagesAndRowGroups) {
  const ParquetFile file = *ParquetFile::read(kTestdata + "pages.parquet");
  const auto numbers = *file.numbers("n");
  ASSERT_EQ(numbers.size(), 5000U);
  for (size_t i = 0; i < numbers.size(); ++i) {
    ASSERT_EQ(numbers[i], static_cast<double>(i));
  }
}

TEST(ParquetFile, AMissingColumnIsNamedWithThoseThatAreThere) {
  const ParquetFile file = *ParquetFile::read(kTestdata + "types.parquet");
  EXPECT_THAT(file.numbers("latency").error().message(),
              HasSubstr("no column 'latency' of numbers; its columns: whole, half, text"));
  EXPECT_THAT(file.numbers("text").error().message(), HasSubstr("'text' of numbers"));
}

TEST(ParquetFile, SaysWhatItDoesNotUnderstand) {
  std::string gzip = bytes_of_file("snappy.parquet");
  gzip.replace(gzip.find("whole\x15\x02"), 7, "whole\x15\x04");  // what compresses its pages
  EXPECT_THAT(ParquetFile::parse(gzip, "x").error().message(),
              HasSubstr("compression 2 is not understood"));
  EXPECT_EQ(ParquetFile::read(kTestdata + "nested.parquet").error().code(), Code::kUnsupported);
  EXPECT_THAT(ParquetFile::parse("PAR1 no PAR1", "x").error().message(), HasSubstr("'x'"));
  EXPECT_EQ(ParquetFile::read("/no/such/file").error().code(), Code::kNotFound);
}

TEST(ParquetFile, UnpacksSnappy) {
  const ParquetFile file = *ParquetFile::read(kTestdata + "snappy.parquet");
  EXPECT_EQ((*file.numbers("whole"))[2], -3);
  EXPECT_THAT(*file.texts("text"), ElementsAre("a", "", "ccc"));
}

class DamagedParquet : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Codecs, DamagedParquet,
                         testing::Values("types.parquet", "snappy.parquet"));

TEST_P(DamagedParquet, IsSurvived) {
  const std::string whole = bytes_of_file(GetParam());
  const char* given = std::getenv("STATOR_TEST_SEED");
  const uint64_t seed = given != nullptr ? std::stoull(given) : 7;
  SCOPED_TRACE("STATOR_TEST_SEED=" + std::to_string(seed));
  Random random(seed);
  for (int i = 0; i < 5000; ++i) {
    std::string broken = whole;
    for (uint64_t flips = 1 + random.below(4); flips > 0; --flips) {
      broken[random.below(broken.size())] = static_cast<char>(random.below(256));
    }
    const auto file = ParquetFile::parse(broken, "broken");
    EXPECT_TRUE(file.has_value() || !file.error().message().empty());
  }
  for (size_t length = 0; length < whole.size(); length += 7) {
    EXPECT_FALSE(ParquetFile::parse(whole.substr(0, length), "cut").has_value());
  }
}

}  // namespace
}  // namespace stator::perf
