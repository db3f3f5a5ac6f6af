// SPDX-License-Identifier: Apache-2.0
#include "stator/io/child_process.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <string>

namespace stator::io {
namespace {

int wait_for(pid_t pid) {
  int status = 0;
  EXPECT_EQ(waitpid(pid, &status, 0), pid);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(ChildProcess, WritesBothItsOutputsWhereItIsTold) {
  std::array<int, 2> ends{};
  ASSERT_EQ(pipe2(ends.data(), O_CLOEXEC), 0);

  const auto pid = start_child({"sh", "-c", "echo out; echo err >&2; cat; exit 3"}, ends[1]);

  close(ends[1]);
  ASSERT_TRUE(pid);
  EXPECT_EQ(wait_for(*pid), 3);
  std::array<char, 64> said{};
  const ssize_t bytes = read(ends[0], said.data(), said.size());
  close(ends[0]);
  EXPECT_EQ(std::string(said.data(), static_cast<size_t>(bytes)), "out\nerr\n");
}

TEST(ChildProcess, LeadsAGroupOfItsOwn) {
  const auto pid = start_child({"sh", "-c", "test $(ps -o pgid= -p $$) = $$"});

  ASSERT_TRUE(pid);
  EXPECT_EQ(getpgid(*pid), *pid);
  EXPECT_EQ(wait_for(*pid), 0);
}

TEST(ChildProcess, SaysWhichProgramIsMissing) {
  const auto pid = start_child({"no-such-program-here"});

  ASSERT_FALSE(pid);
  EXPECT_EQ(pid.error().code(), Code::kNotFound);
  EXPECT_EQ(pid.error().message(),
            "cannot start 'no-such-program-here': No such file or directory");
}

}  // namespace
}  // namespace stator::io
