// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "stator/kv_events/test/free_port.h"

extern char** environ;

namespace stator::kv_events::test {

/// A real nats-server on a free port of the loopback, in a folder of its own.
class NatsServer {
 public:
  /// With `JetStream::kOn` it keeps streams in its folder, over restarts, too.
  enum class JetStream : uint8_t { kOff, kOn };
  explicit NatsServer(JetStream jet_stream = JetStream::kOff) : jet_stream_(jet_stream) {
    std::string folder = (std::filesystem::temp_directory_path() / "stator-nats-XXXXXX").string();
    folder_ = ::mkdtemp(folder.data());
    port_ = std::to_string(free_port());
    start();
  }
  NatsServer(const NatsServer&) = delete;
  NatsServer& operator=(const NatsServer&) = delete;
  ~NatsServer() {
    kill();
    std::filesystem::remove_all(folder_);
  }

  static std::string binary() {
    for (const char* path :
         {"/usr/sbin/nats-server", "/usr/bin/nats-server", "/usr/local/bin/nats-server"}) {
      if (::access(path, X_OK) == 0) {
        return path;
      }
    }
    return {};
  }

  std::string url() const { return "nats://127.0.0.1:" + port_; }
  /// kill -9.
  void kill() {
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
      pid_ = -1;
    }
  }
  /// Again, on the same port.
  void restart() {
    kill();
    start();
  }

 private:
  void start() {
    const std::string folder = folder_.string();
    std::vector<std::string> args{binary(),           "-a",   "127.0.0.1", "-p",           port_,
                                  "--ports_file_dir", folder, "-l",        folder + "/log"};
    if (jet_stream_ == JetStream::kOn) {
      args.insert(args.end(), {"-js", "-sd", folder + "/store"});
    }
    std::vector<char*> argv;
    for (std::string& arg : args) {
      argv.push_back(arg.data());
    }
    argv.push_back(nullptr);
    ASSERT_EQ(::posix_spawn(&pid_, args[0].c_str(), nullptr, nullptr, argv.data(), environ), 0);
    const auto ports_file = folder_ / ("nats-server_" + std::to_string(pid_) + ".ports");
    for (int i = 0; i < 6000; ++i) {
      std::ifstream file(ports_file);
      const std::string text{std::istreambuf_iterator<char>(file), {}};
      if (text.find(url()) != std::string::npos) {
        return;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    FAIL() << "nats-server did not start";
  }

  const JetStream jet_stream_;
  std::filesystem::path folder_;
  std::string port_;
  pid_t pid_ = -1;
};

}  // namespace stator::kv_events::test
