// SPDX-License-Identifier: Apache-2.0
#include "stator/io/child_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <spawn.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>

namespace stator::io {
namespace {

class FileActions {
 public:
  FileActions() { posix_spawn_file_actions_init(&actions_); }
  FileActions(const FileActions&) = delete;
  FileActions& operator=(const FileActions&) = delete;
  ~FileActions() { posix_spawn_file_actions_destroy(&actions_); }
  posix_spawn_file_actions_t* get() { return &actions_; }

 private:
  posix_spawn_file_actions_t actions_;
};

/// Our threads block signals and ignore SIGPIPE; a child must not inherit that.
class Attributes {
 public:
  Attributes() {
    posix_spawnattr_init(&attributes_);
    sigset_t none;
    sigset_t defaults;
    sigemptyset(&none);
    sigemptyset(&defaults);
    sigaddset(&defaults, SIGPIPE);
    posix_spawnattr_setsigmask(&attributes_, &none);
    posix_spawnattr_setsigdefault(&attributes_, &defaults);
    posix_spawnattr_setpgroup(&attributes_, 0);
    posix_spawnattr_setflags(
        &attributes_, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
  }
  Attributes(const Attributes&) = delete;
  Attributes& operator=(const Attributes&) = delete;
  ~Attributes() { posix_spawnattr_destroy(&attributes_); }
  const posix_spawnattr_t* get() const { return &attributes_; }

 private:
  posix_spawnattr_t attributes_;
};

/// This process's environment under what is set: pointers into both.
std::vector<char*> environment_with(std::vector<std::string>& own) {
  std::vector<char*> all;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const std::string_view name = text.substr(0, text.find('=') + 1);
    const bool is_own = std::ranges::any_of(
        own, [&](const std::string& mine) { return !name.empty() && mine.starts_with(name); });
    if (!is_own) {
      all.push_back(*entry);
    }
  }
  for (std::string& entry : own) {
    all.push_back(entry.data());
  }
  all.push_back(nullptr);
  return all;
}

}  // namespace

Result<pid_t> start_child(const std::vector<std::string>& command, int output) {
  return start_child(command, ChildSetup{.output = output});
}

Result<pid_t> start_child(const std::vector<std::string>& command, const ChildSetup& setup) {
  FileActions files;
  posix_spawn_file_actions_addopen(files.get(), STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  if (setup.output < 0) {
    posix_spawn_file_actions_addopen(files.get(), STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  } else {
    posix_spawn_file_actions_adddup2(files.get(), setup.output, STDOUT_FILENO);
  }
  if (setup.error >= 0) {
    posix_spawn_file_actions_adddup2(files.get(), setup.error, STDERR_FILENO);
  } else if (setup.output >= 0) {
    posix_spawn_file_actions_adddup2(files.get(), setup.output, STDERR_FILENO);
  }
  std::vector<std::string> own = setup.environment;
  std::vector<char*> environment = environment_with(own);
  std::vector<std::string> words = command;
  std::vector<char*> arguments;
  arguments.reserve(words.size() + 1);
  for (std::string& word : words) {
    arguments.push_back(word.data());
  }
  arguments.push_back(nullptr);
  const Attributes attributes;
  pid_t pid = 0;
  const int failed = posix_spawnp(&pid, arguments[0], files.get(), attributes.get(),
                                  arguments.data(), environment.data());
  if (failed != 0) {
    return Error(failed == ENOENT ? Code::kNotFound : Code::kIo,
                 fmt::format("cannot start '{}': {}", command.front(), std::strerror(failed)));
  }
  return pid;
}

}  // namespace stator::io
