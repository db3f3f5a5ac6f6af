// SPDX-License-Identifier: Apache-2.0
#include "stator/io/replace_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <iterator>
#include <type_traits>

#include "stator/io/read_file.h"

namespace stator::io {
namespace {

namespace fs = std::filesystem;

static_assert(std::is_nothrow_move_constructible_v<FileReplacement>);
static_assert(!std::is_copy_constructible_v<FileReplacement>);

class ReplaceFileTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(testing::TempDir()) /
              ("replace_file_" +
               std::string(testing::UnitTest::GetInstance()->current_test_info()->name()));
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }
  std::string path() const { return (folder_ / "file").string(); }
  auto files() const {
    return std::distance(fs::directory_iterator(folder_), fs::directory_iterator());
  }
  fs::path folder_;
};

TEST_F(ReplaceFileTest, PutsTheNewContentInPlace) {
  ASSERT_TRUE(replace_file(path(), "old"));

  ASSERT_TRUE(replace_file(path(), "new", 0640));

  struct stat status{};
  ASSERT_EQ(::stat(path().c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0640);
  EXPECT_EQ(*read_file(path()), "new");
  EXPECT_EQ(files(), 1);
}

TEST_F(ReplaceFileTest, ReadersSeeTheOldContentUntilTheCommit) {
  ASSERT_TRUE(replace_file(path(), "old"));

  auto file = FileReplacement::create(path(), 0600);
  ASSERT_TRUE(file);
  ASSERT_TRUE(file->write("new, "));
  ASSERT_TRUE(file->write("in parts"));
  EXPECT_EQ(*read_file(path()), "old");
  ASSERT_TRUE(file->commit());

  EXPECT_EQ(*read_file(path()), "new, in parts");
}

TEST_F(ReplaceFileTest, LeavesNothingBehindWithoutACommit) {
  {
    auto file = FileReplacement::create(path(), 0600);
    ASSERT_TRUE(file);
    ASSERT_TRUE(file->write("half"));
  }

  EXPECT_EQ(files(), 0);
}

TEST_F(ReplaceFileTest, ReplacesALinkInsteadOfFollowingIt) {
  ASSERT_TRUE(replace_file((folder_ / "victim").string(), "precious"));
  fs::create_symlink(folder_ / "victim", path());

  ASSERT_TRUE(replace_file(path(), "mine"));

  EXPECT_EQ(*read_file(folder_ / "victim"), "precious");
  EXPECT_FALSE(fs::is_symlink(path()));
}

TEST_F(ReplaceFileTest, SaysWhyItCannotWrite) {
  const Status failed = replace_file((folder_ / "none" / "file").string(), "x");

  EXPECT_EQ(failed.error().code(), Code::kNotFound);
  EXPECT_THAT(failed.error().message(), testing::StartsWith("cannot create"));
}

}  // namespace
}  // namespace stator::io
