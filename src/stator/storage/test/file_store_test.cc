// SPDX-License-Identifier: Apache-2.0
#include "stator/storage/file_store.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <thread>

#include "stator/storage/test/blocks_fixture.h"

namespace stator::storage {
namespace {

constexpr size_t kRecord = 64 << 10;

/// What the block's record holds, whoever writes it.
std::vector<std::byte> record_of(const BlockName& name) {
  std::vector<std::byte> out(kRecord);
  for (size_t i = 0; i < out.size(); ++i) {
    out[i] = static_cast<std::byte>(name.lineage.current().value() >> (i % 8 * 8));
  }
  return out;
}

/// Hosts that share a folder write and read the same blocks at the same time.
TEST(FileStore, WritersOfOneBlockLeaveItWholeForWhoeverReads) {
  const std::string folder = testing::TempDir() + "/stator_file_store_writers";
  std::filesystem::remove_all(folder);
  const TestSequence sequence(8, 0, test_space());
  std::atomic<int> wrong{0};
  std::atomic<int> read{0};
  {
    std::vector<std::jthread> hosts;
    for (int host = 0; host < 4; ++host) {
      hosts.emplace_back([&] {
        FileStore store(folder, test_space());
        for (int round = 0; round < 10; ++round) {
          for (const BlockName& name : sequence.names) {
            const Status put = store.put(name, record_of(name));
            wrong += put || put.error().code() == Code::kAlreadyExists ? 0 : 1;
            std::vector<std::byte> got(kRecord);
            wrong += store.get(name, got) && got == record_of(name) ? 0 : 1;
            ++read;
          }
          wrong += *store.count(sequence.names) == 8 ? 0 : 1;
        }
      });
    }
  }
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(read, 4 * 10 * 8);
  size_t files = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    files += entry.is_regular_file() ? 1 : 0;
  }
  EXPECT_EQ(files, 8U) << "no temporary file is left";
  std::filesystem::remove_all(folder);
}

/// A file that was cut is replaced, not believed.
TEST(FileStore, ACutFileIsWrittenAnew) {
  const std::string folder = testing::TempDir() + "/stator_file_store_cut";
  std::filesystem::remove_all(folder);
  const TestSequence sequence(1, 0, test_space());
  const BlockName& name = sequence.names[0];
  FileStore store(folder, test_space());
  ASSERT_TRUE(store.put(name, record_of(name)));
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file()) {
      std::filesystem::resize_file(entry.path(), kRecord / 2);
    }
  }
  std::vector<std::byte> got(kRecord);
  EXPECT_EQ(store.get(name, got).error().code(), Code::kCorrupt);
  ASSERT_TRUE(store.put(name, record_of(name)));
  ASSERT_TRUE(store.get(name, got));
  EXPECT_EQ(got, record_of(name));
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace stator::storage
