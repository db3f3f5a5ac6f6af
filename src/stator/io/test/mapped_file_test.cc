// SPDX-License-Identifier: Apache-2.0
#include "stator/io/mapped_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <type_traits>

namespace stator::io {
namespace {

static_assert(std::is_nothrow_move_constructible_v<MappedFile>);
static_assert(std::is_nothrow_move_assignable_v<MappedFile>);
static_assert(!std::is_copy_constructible_v<MappedFile>);

class MappedFileTest : public testing::Test {
 protected:
  std::string write(const std::string& name, std::string_view content) {
    const std::string path = testing::TempDir() + "mapped_file_" + name;
    std::ofstream(path, std::ios::binary) << content;
    paths_.push_back(path);
    return path;
  }
  void TearDown() override {
    for (const auto& path : paths_) {
      std::filesystem::remove(path);
    }
  }
  std::vector<std::string> paths_;
};

std::string text(const MappedFile& file) {
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

TEST_F(MappedFileTest, GivesTheBytesOfTheFile) {
  const std::string path = write("plain", "hello");

  auto file = MappedFile::open(path);

  ASSERT_TRUE(file.has_value());
  EXPECT_EQ(text(*file), "hello");
  EXPECT_EQ(file->path(), path);
}

TEST_F(MappedFileTest, AForgottenPartComesAgain) {
  const std::string content(100'000, 'x');
  auto file = MappedFile::open(write("forgotten", content));
  ASSERT_TRUE(file.has_value());

  MappedFile::prepare(file->bytes().subspan(10, 90'000));
  MappedFile::forget(file->bytes().subspan(10, 90'000));
  MappedFile::forget(file->bytes().first(5));
  MappedFile::forget({});

  EXPECT_EQ(text(*file), content);
}

TEST_F(MappedFileTest, AnEmptyFileIsEmpty) {
  auto file = MappedFile::open(write("empty", ""));

  ASSERT_TRUE(file.has_value());
  EXPECT_TRUE(file->bytes().empty());
}

TEST_F(MappedFileTest, MovingKeepsTheMapping) {
  auto file = MappedFile::open(write("move", "abc"));
  ASSERT_TRUE(file.has_value());

  MappedFile assigned;
  assigned = std::move(*file);

  EXPECT_EQ(text(assigned), "abc");
  EXPECT_TRUE(file->bytes().empty());
}

TEST_F(MappedFileTest, NamesAMissingFile) {
  auto file = MappedFile::open("/nonexistent/model.safetensors");

  ASSERT_FALSE(file.has_value());
  EXPECT_EQ(file.error().code(), Code::kNotFound);
  EXPECT_THAT(file.error().message(), testing::HasSubstr("/nonexistent/model.safetensors"));
}

TEST_F(MappedFileTest, RefusesFoldersAndFifos) {
  const std::string fifo = testing::TempDir() + "mapped_file_fifo";
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  paths_.push_back(fifo);

  for (const std::string& path : {testing::TempDir(), fifo}) {
    auto file = MappedFile::open(path);
    ASSERT_FALSE(file.has_value());
    EXPECT_EQ(file.error().code(), Code::kInvalidArgument);
  }
}

}  // namespace
}  // namespace stator::io
