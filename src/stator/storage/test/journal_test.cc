// SPDX-License-Identifier: Apache-2.0
#include "stator/storage/journal.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "stator/storage/test/blocks_fixture.h"

namespace stator::storage {
namespace {

std::vector<std::byte> bytes_of(const std::vector<JournalRecord>& records) {
  std::vector<std::byte> out;
  for (const JournalRecord& record : records) {
    const auto bytes = encode(record);
    out.insert(out.end(), bytes.begin(), bytes.end());
  }
  return out;
}

JournalRecord put(const TestSequence& sequence, size_t block, uint32_t slot) {
  return {.slot = slot,
          .generation = slot + 1,
          .name = sequence.names[block],
          .parent = sequence.parent(block)};
}

JournalRecord del(const JournalRecord& record) {
  return {.op = JournalRecord::Op::kDelete, .slot = record.slot, .name = record.name};
}

TEST(Journal, RecordsReadBackAndDamagedOnesDoNot) {
  const TestSequence sequence(2, 0, test_space());
  auto bytes = encode(put(sequence, 1, 9));

  EXPECT_EQ(decode_record(bytes), put(sequence, 1, 9));
  for (size_t at = 0; at < bytes.size(); ++at) {
    bytes[at] ^= std::byte{4};
    EXPECT_FALSE(decode_record(bytes)) << at;
    bytes[at] ^= std::byte{4};
  }
}

TEST(Journal, ReplaysToWhatIsThereAndStopsAtATornRecord) {
  const TestSequence sequence(4, 0, test_space());
  const auto first = put(sequence, 0, 0);
  const auto second = put(sequence, 1, 1);
  const auto again = put(sequence, 2, 0);
  const auto checkpoint = bytes_of({first, second});
  auto log = bytes_of({del(first), again, put(sequence, 3, 2)});

  EXPECT_EQ(replay(checkpoint, log, 4).live,
            (std::vector<JournalRecord>{second, again, put(sequence, 3, 2)}));
  // Every prefix of the log is what was there at some time.
  for (size_t cut = 0; cut < log.size(); ++cut) {
    const Replayed replayed = replay(checkpoint, std::span(log).first(cut), 4);
    EXPECT_EQ(replayed.good_bytes, cut / 64 * 64);
    EXPECT_GE(replayed.live.size(), 1U);
  }
  log[70] ^= std::byte{1};
  EXPECT_EQ(replay(checkpoint, log, 4).live, std::vector<JournalRecord>{second});
  EXPECT_EQ(replay(checkpoint, {}, 1).live, std::vector<JournalRecord>{first});
}

TEST(Journal, GoesOnBehindATornEndAndAfterACheckpoint) {
  const std::string folder = testing::TempDir() + "/stator_journal";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  const TestSequence sequence(3, 0, test_space());
  {
    auto journal = Journal::open(folder, 8);
    ASSERT_TRUE(journal);
    ASSERT_TRUE(journal->append(put(sequence, 0, 0)));
    ASSERT_TRUE(journal->append(put(sequence, 1, 1)));
  }
  std::filesystem::resize_file(folder + "/g3.log", 100);  // the second record is torn
  {
    auto journal = Journal::open(folder, 8);
    ASSERT_TRUE(journal);
    EXPECT_EQ(journal->take_live(), std::vector<JournalRecord>{put(sequence, 0, 0)});
    ASSERT_TRUE(journal->append(put(sequence, 2, 2)));
    ASSERT_TRUE(
        journal->checkpoint(std::vector<JournalRecord>{put(sequence, 2, 2), put(sequence, 0, 0)}));
    EXPECT_EQ(journal->bytes(), 0U);
  }
  auto journal = Journal::open(folder, 8);
  ASSERT_TRUE(journal);
  EXPECT_EQ(journal->take_live(),
            (std::vector<JournalRecord>{put(sequence, 2, 2), put(sequence, 0, 0)}));
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace stator::storage
