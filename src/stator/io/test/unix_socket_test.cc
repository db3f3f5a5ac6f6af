// SPDX-License-Identifier: Apache-2.0
#include "stator/io/unix_socket.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <string>

namespace stator::io {
namespace {

class UnixSocket : public ::testing::Test {
 protected:
  UnixSocket() {
    std::string pattern = ::testing::TempDir() + "unix_socket_XXXXXX";
    folder_ = ::mkdtemp(pattern.data());
    path_ = folder_ + "/s";
  }
  ~UnixSocket() override { std::filesystem::remove_all(folder_); }

  std::string folder_;
  std::string path_;
};

TEST_F(UnixSocket, BytesAndDescriptorsArriveTogether) {
  const auto listener = listen_unix(path_, SOCK_SEQPACKET, 4);
  ASSERT_TRUE(listener) << listener.error().message();
  const auto here = connect_unix(path_, SOCK_SEQPACKET);
  ASSERT_TRUE(here);
  const FileDescriptor there(::accept(listener->get(), nullptr, nullptr));

  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  const FileDescriptor reading(ends[0]);
  {
    const FileDescriptor writing(ends[1]);
    const std::array<int, 1> passed = {writing.get()};
    EXPECT_EQ(send_passing(here->get(), std::string_view("word"), passed), 4);
  }
  std::array<char, 16> bytes{};
  std::vector<FileDescriptor> got;
  ASSERT_EQ(receive_passed(there.get(), bytes, got), 4);
  EXPECT_EQ(std::string_view(bytes.data(), 4), "word");
  ASSERT_EQ(got.size(), 1U);
  EXPECT_NE(::fcntl(got[0].get(), F_GETFD) & FD_CLOEXEC, 0);
  EXPECT_EQ(::write(got[0].get(), "x", 1), 1);  // the pipe that was closed here
  EXPECT_EQ(::read(reading.get(), bytes.data(), 1), 1);
}

TEST_F(UnixSocket, AListenerIsItsOwnersAndTakesTheFileOfOneThatIsGone) {
  ASSERT_TRUE(listen_unix(path_, SOCK_STREAM, 4));  // closed at once; its file stays
  EXPECT_EQ(connect_unix(path_, SOCK_STREAM).error().code(), Code::kUnavailable);
  const auto listener = listen_unix(path_, SOCK_STREAM, 4);
  ASSERT_TRUE(listener);
  struct stat seen{};
  ASSERT_EQ(::stat(path_.c_str(), &seen), 0);
  EXPECT_EQ(seen.st_mode & 0777, 0600U);
  EXPECT_TRUE(connect_unix(path_, SOCK_STREAM));
}

TEST_F(UnixSocket, PathsThatNoSocketCanHaveAreRefused) {
  EXPECT_EQ(listen_unix("", SOCK_STREAM, 4).error().code(), Code::kInvalidArgument);
  EXPECT_EQ(connect_unix(std::string(200, 'a'), SOCK_STREAM).error().code(),
            Code::kInvalidArgument);
}

TEST_F(UnixSocket, WhoIsGoneCannotBeSentTo) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()), 0);
  const FileDescriptor here(ends[0]);
  ::close(ends[1]);
  EXPECT_EQ(send_passing(here.get(), std::string_view("word"), {}), -1);
  std::array<char, 4> bytes{};
  std::vector<FileDescriptor> got;
  EXPECT_EQ(receive_passed(here.get(), bytes, got), 0);
}

}  // namespace
}  // namespace stator::io
