// SPDX-License-Identifier: Apache-2.0
#include "stator/io/read_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "stator/io/file_descriptor.h"

namespace stator::io {
namespace {

namespace fs = std::filesystem;

class ReadFileTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ =
        fs::path(testing::TempDir()) /
        ("read_file_" + std::string(testing::UnitTest::GetInstance()->current_test_info()->name()));
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }
  fs::path write(const std::string& content) const {
    std::ofstream(folder_ / "file", std::ios::binary) << content;
    return folder_ / "file";
  }
  fs::path folder_;
};

TEST_F(ReadFileTest, GivesAllBytes) {
  const std::string content("a\0b\r\n\xff", 6);

  EXPECT_EQ(*read_file(write(content)), content);
  EXPECT_EQ(*read_file(write("")), "");
}

TEST_F(ReadFileTest, ReadsWhatDoesNotKnowItsSize) {
  EXPECT_THAT(*read_file("/proc/self/status"), testing::HasSubstr("VmRSS"));
}

TEST_F(ReadFileTest, ReadsMoreThanOneBufferFromAPipe) {
  const std::string content(300'000, 'x');
  int ends[2] = {};
  ASSERT_EQ(::pipe(ends), 0);
  const FileDescriptor reader(ends[0]);
  FileDescriptor writer(ends[1]);
  ASSERT_GE(::fcntl(writer.get(), F_SETPIPE_SZ, 1 << 20), 1 << 20);
  ASSERT_EQ(::write(writer.get(), content.data(), content.size()), 300'000);
  writer.reset();

  EXPECT_EQ(*read_file("/proc/self/fd/" + std::to_string(reader.get())), content);
}

TEST_F(ReadFileTest, HoldsTheBound) {
  const fs::path path = write("12345");

  EXPECT_EQ(*read_file(path, 5), "12345");
  const auto larger = read_file(path, 4);
  EXPECT_EQ(larger.error().code(), Code::kTooLarge);
  EXPECT_EQ(larger.error().message(), path.string() + " has more than the 4 bytes that are read");
  EXPECT_EQ(*read_start(path, 4), "1234");
  EXPECT_EQ(*read_start(path, 9), "12345");
}

TEST_F(ReadFileTest, NamesWhatItCannotRead) {
  const auto missing = read_file(folder_ / "none");
  EXPECT_EQ(missing.error().code(), Code::kNotFound);
  EXPECT_EQ(missing.error().message(),
            "cannot open " + (folder_ / "none").string() + ": No such file or directory");
  EXPECT_EQ(read_file(folder_).error().code(), Code::kIo);
}

TEST_F(ReadFileTest, AbsenceIsNoErrorWhereItIsAllowed) {
  EXPECT_EQ(*read_file_if_present(folder_ / "none"), std::nullopt);
  EXPECT_EQ(*read_file_if_present(write("here")), "here");
  EXPECT_EQ(read_file_if_present(folder_).error().code(), Code::kIo);
}

}  // namespace
}  // namespace stator::io
