// SPDX-License-Identifier: Apache-2.0
#include "stator/io/journal.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "stator/core/random.h"

namespace stator::io {
namespace {

class JournalFile : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(testing::TempDir()) /
              ("journal" + std::to_string(Random::from_entropy().next()));
    path_ = (folder_ / "a.journal").string();
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  Result<Journal> open() {
    records_.clear();
    return Journal::open(path_, [&](std::string_view record) { records_.emplace_back(record); });
  }

  std::filesystem::path folder_;
  std::string path_;
  std::vector<std::string> records_;
};

TEST_F(JournalFile, GivesBackWhatWasAppended) {
  {
    auto journal = open();
    ASSERT_TRUE(journal) << journal.error().message();
    ASSERT_TRUE(journal->append("one"));
    ASSERT_TRUE(journal->append(""));
    ASSERT_TRUE(journal->append(std::string(100'000, 'x')));
    ASSERT_TRUE(journal->sync());
  }

  auto again = open();

  ASSERT_TRUE(again);
  EXPECT_EQ(records_, (std::vector<std::string>{"one", "", std::string(100'000, 'x')}));
  EXPECT_EQ(again->dropped_bytes(), 0U);
}

TEST_F(JournalFile, DropsARecordThatWasCutOffAtAnyByte) {
  uint64_t first = 0;
  uint64_t all = 0;
  {
    auto journal = open();
    ASSERT_TRUE(journal && journal->append("first"));
    first = journal->bytes();
    ASSERT_TRUE(journal->append("second"));
    all = journal->bytes();
  }
  std::ifstream in(path_, std::ios::binary);
  const std::string whole((std::istreambuf_iterator<char>(in)), {});
  for (uint64_t length = first; length < all; ++length) {
    std::ofstream(path_, std::ios::binary) << whole.substr(0, length);

    auto journal = open();

    ASSERT_TRUE(journal) << length;
    EXPECT_EQ(records_, std::vector<std::string>{"first"});
    EXPECT_EQ(journal->dropped_bytes(), length - first);
    ASSERT_TRUE(journal->append("third"));
    journal = Error(Code::kIo, "closed");
    ASSERT_TRUE(open());
    EXPECT_EQ(records_, (std::vector<std::string>{"first", "third"}));
  }
}

TEST_F(JournalFile, StopsAtARecordThatWasChanged) {
  {
    auto journal = open();
    ASSERT_TRUE(journal && journal->append("first") && journal->append("second"));
  }
  std::fstream file(path_, std::ios::binary | std::ios::in | std::ios::out);
  file.seekp(-1, std::ios::end);
  file.put('!');
  file.close();

  ASSERT_TRUE(open());

  EXPECT_EQ(records_, std::vector<std::string>{"first"});
}

TEST_F(JournalFile, IsWrittenAnew) {
  {
    auto journal = open();
    ASSERT_TRUE(journal && journal->append("old") && journal->append("older"));
    ASSERT_TRUE(journal->rewrite(std::vector<std::string>{"kept"}));
    ASSERT_TRUE(journal->append("new"));
  }

  ASSERT_TRUE(open());

  EXPECT_EQ(records_, (std::vector<std::string>{"kept", "new"}));
}

TEST_F(JournalFile, BelongsToOneAtATime) {
  auto journal = open();
  ASSERT_TRUE(journal);

  auto second = open();

  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code(), Code::kAlreadyExists);
}

TEST_F(JournalFile, RefusesAFileOfSomethingElse) {
  std::filesystem::create_directories(folder_);
  std::ofstream(path_) << "model: demo\n";

  auto journal = open();

  ASSERT_FALSE(journal);
  EXPECT_EQ(journal.error().code(), Code::kCorrupt);
}

}  // namespace
}  // namespace stator::io
