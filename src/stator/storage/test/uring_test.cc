// SPDX-License-Identifier: Apache-2.0
#include "stator/storage/uring.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <vector>

namespace stator::storage {
namespace {

/// A kernel or its policy may have none: then the disk tier reads by threads, and
/// DiskTierTest.ReadsManyAtOnce runs that way.
class UringTest : public testing::Test {
 protected:
  UringTest() : file_(::open(testing::TempDir().c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600)) {}

  UringOp op(bool write, uint64_t offset, std::string& first, std::string& second) {
    return {.fd = file_.get(),
            .write = write,
            .offset = offset,
            .parts = {iovec{first.data(), first.size()}, iovec{second.data(), second.size()}}};
  }

  io::FileDescriptor file_;
};

TEST_F(UringTest, MovesMoreThanItHasRoomForAndSaysWhatFailed) {
  const auto ring = Uring::open(4);
  std::vector<std::string> heads;
  std::vector<std::string> bodies;
  for (char i = 0; i < 19; ++i) {
    heads.emplace_back(64, static_cast<char>('a' + i));
    bodies.emplace_back(1000, static_cast<char>('A' + i));
  }
  std::vector<UringOp> writes;
  for (size_t i = 0; i < heads.size(); ++i) {
    writes.push_back(op(true, i * 1064, heads[i], bodies[i]));
  }
  if (ring == nullptr) {
    EXPECT_NE(errno, 0);
    return;
  }

  ASSERT_TRUE(ring->run(writes));

  std::vector<std::string> read_heads(20, std::string(64, 0));
  std::vector<std::string> read_bodies(20, std::string(1000, 0));
  std::vector<UringOp> reads;
  for (size_t i = 0; i < read_heads.size(); ++i) {
    reads.push_back(op(false, i * 1064, read_heads[i], read_bodies[i]));
  }
  ASSERT_TRUE(ring->run(reads));
  for (size_t i = 0; i < heads.size(); ++i) {
    EXPECT_EQ(writes[i].result, 1064);
    EXPECT_EQ(reads[i].result, 1064);
    EXPECT_EQ(read_heads[i], heads[i]);
    EXPECT_EQ(read_bodies[i], bodies[i]);
  }
  EXPECT_EQ(reads.back().result, -EIO) << "behind the file's end";

  std::vector<UringOp> wrong = {op(false, 0, read_heads[0], read_bodies[0])};
  wrong[0].fd = -1;
  EXPECT_TRUE(ring->run(wrong));
  EXPECT_EQ(wrong[0].result, -EBADF);
}

}  // namespace
}  // namespace stator::storage
