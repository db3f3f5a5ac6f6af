// SPDX-License-Identifier: Apache-2.0
#include "stator/telemetry/line_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <filesystem>

#include "stator/io/read_file.h"

namespace stator::telemetry {
namespace {

using ::testing::HasSubstr;

class LineFileTest : public ::testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directories(folder_); }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string path() const { return folder_ / "lines"; }
  static std::string unpacked(const std::string& path) {
    std::string out(4096, '\0');
    const gzFile file = gzopen(path.c_str(), "rb");
    out.resize(static_cast<size_t>(
        std::max(gzread(file, out.data(), static_cast<unsigned>(out.size())), 0)));
    gzclose(file);
    return out;
  }
  static std::string text_of(const std::string& path) { return io::read_file(path).value(); }

  const std::filesystem::path folder_ =
      std::filesystem::path(::testing::TempDir()) / ("lines-" + std::to_string(::getpid()));
  SystemClock clock_;
  Metrics metrics_;
};

TEST_F(LineFileTest, WritesWhatCameBeforeItGoes) {
  {
    auto file = LineFile::open({.path = path(), .name = "t"}, clock_, metrics_);
    ASSERT_TRUE(file) << file.error().message();
    (*file)->append("one\n");
    (*file)->append("two\n");
  }
  {
    auto file = LineFile::open({.path = path(), .name = "t"}, clock_, metrics_);
    (*file)->append("three\n");
  }
  EXPECT_EQ(text_of(path()), "one\ntwo\nthree\n");
  EXPECT_THAT(metrics_.render(), HasSubstr("stator_request_log_lines_total{file=\"t\"} 3"));
}

TEST_F(LineFileTest, TurnsOverBetweenLinesAndKeepsSoMany) {
  {
    auto file = LineFile::open({.path = path(), .bytes_max = 12, .files_max = 2, .name = "t"},
                               clock_, metrics_);
    for (int i = 0; i < 8; ++i) {
      (*file)->append("line" + std::to_string(i) + "\n");  // two fit
    }
    (*file)->append("a line that is longer than a file may be\n");
  }
  EXPECT_EQ(text_of(path()), "a line that is longer than a file may be\n");
  EXPECT_EQ(text_of(path() + ".1"), "line6\nline7\n");
  EXPECT_EQ(text_of(path() + ".2"), "line4\nline5\n");
  EXPECT_FALSE(std::filesystem::exists(path() + ".3"));
}

TEST_F(LineFileTest, CountsWhatADiskDoesNotTakeAndGoesOn) {
  {
    auto file = LineFile::open({.path = "/dev/full", .name = "t"}, clock_, metrics_);
    ASSERT_TRUE(file) << file.error().message();
    (*file)->append("one\n");
    (*file)->append("two\n");
  }
  EXPECT_THAT(metrics_.render(),
              HasSubstr("stator_request_log_lines_dropped_total{file=\"t\",reason=\"disk\"} 2"));
}

TEST_F(LineFileTest, DropsWhatItsBufferDoesNotHold) {
  {
    auto file =
        LineFile::open({.path = path(), .buffer_bytes_max = 8, .name = "t"}, clock_, metrics_);
    (*file)->append("this line is longer than the buffer\n");
    (*file)->append("short\n");
  }
  EXPECT_EQ(text_of(path()), "short\n");
  EXPECT_THAT(metrics_.render(), HasSubstr("reason=\"buffer_full\"} 1"));
}

TEST_F(LineFileTest, CompressedOnesAreSegmentsOfMembers) {
  std::filesystem::create_directories(folder_);
  for (int run = 0; run < 2; ++run) {
    auto file = LineFile::open(
        {.path = path(), .bytes_max = 12, .files_max = 2, .compressed = true, .name = "t"}, clock_,
        metrics_);
    ASSERT_TRUE(file) << file.error().message();
    for (int i = 0; i < 6; ++i) {
      (*file)->append("line" + std::to_string(i) + "\n");  // two fit
    }
  }
  EXPECT_FALSE(std::filesystem::exists(path() + ".000002.jsonl.gz"));  // three and four are kept
  EXPECT_FALSE(std::filesystem::exists(path()));
  const std::string last = text_of(path() + ".000005.jsonl.gz");
  ASSERT_TRUE(last.starts_with("\x1f\x8b"));
  EXPECT_EQ(unpacked(path() + ".000005.jsonl.gz"), "line4\nline5\n");
  EXPECT_EQ(unpacked(path() + ".000003.jsonl.gz"), "line0\nline1\n");
}

TEST_F(LineFileTest, WhatIsNoRegularFileIsNeverTurnedOver) {
  const std::filesystem::path link = folder_ / "null";
  std::filesystem::create_symlink("/dev/null", link);
  {
    auto file = LineFile::open({.path = link, .bytes_max = 4, .name = "t"}, clock_, metrics_);
    (*file)->append("one line\n");
    (*file)->append("another\n");
  }
  EXPECT_TRUE(std::filesystem::is_symlink(link));
  EXPECT_FALSE(std::filesystem::exists(link.string() + ".1"));
}

TEST_F(LineFileTest, SaysWhenItCannotBeOpened) {
  const auto file = LineFile::open({.path = folder_ / "none" / "x", .name = "t"}, clock_, metrics_);

  ASSERT_FALSE(file);
  EXPECT_THAT(file.error().message(), HasSubstr("none/x"));
}

}  // namespace
}  // namespace stator::telemetry
