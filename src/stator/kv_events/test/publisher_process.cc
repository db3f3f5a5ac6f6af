// SPDX-License-Identifier: Apache-2.0
#include "stator/kv_events/test/publisher_process.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <iostream>
#include <sstream>
#include <vector>

#include <zmq.hpp>

extern char** environ;

namespace stator::kv_events::test {
namespace {

std::string endpoint_of(uint16_t port) {
  return "tcp://127.0.0.1:" + (port == 0 ? "*" : std::to_string(port));
}

uint16_t bound_port(const zmq::socket_t& socket) {
  const std::string endpoint = socket.get(zmq::sockopt::last_endpoint);
  return static_cast<uint16_t>(std::stoi(endpoint.substr(endpoint.rfind(':') + 1)));
}

std::string number(uint64_t value) {
  std::string bytes(8, '\0');
  for (size_t i = 8; i-- > 0; value >>= 8) {
    bytes[i] = static_cast<char>(value & 0xff);
  }
  return bytes;
}

/// The child's side.
class Publisher {
 public:
  explicit Publisher(PublisherProcess::Ports ports)
      : live_(context_, zmq::socket_type::pub), replay_(context_, zmq::socket_type::router) {
    live_.set(zmq::sockopt::linger, 0);
    replay_.set(zmq::sockopt::linger, 0);
    replay_.set(zmq::sockopt::sndhwm, 0);
    live_.bind(endpoint_of(ports.live));
    replay_.bind(endpoint_of(ports.replay));
  }

  void run() {
    std::cout << bound_port(live_) << ' ' << bound_port(replay_) << std::endl;
    std::string input;
    while (true) {
      std::vector<zmq::pollitem_t> items{{nullptr, STDIN_FILENO, ZMQ_POLLIN, 0},
                                         {replay_.handle(), 0, ZMQ_POLLIN, 0}};
      zmq::poll(items, std::chrono::milliseconds(-1));
      if ((items[1].revents & ZMQ_POLLIN) != 0) {
        answer();
      }
      if (items[0].revents != 0) {
        char buffer[4096];
        const ssize_t count = ::read(STDIN_FILENO, buffer, sizeof(buffer));
        if (count <= 0) {
          return;  // the test is gone
        }
        input.append(buffer, static_cast<size_t>(count));
        for (size_t end = input.find('\n'); end != std::string::npos; end = input.find('\n')) {
          obey(input.substr(0, end));
          input.erase(0, end + 1);
        }
      }
    }
  }

 private:
  void obey(const std::string& line) {
    std::istringstream words(line);
    std::string verb;
    words >> verb;
    std::string payload;
    for (std::string digits; words >> digits;) {
      payload.push_back(static_cast<char>(std::stoi(digits, nullptr, 16)));
    }
    if (verb == "forget") {
      first_ = first_ + remembered_.size() + 1;
      remembered_.clear();
    } else if (verb == "garbage") {
      live_.send(zmq::str_buffer("kv: one frame"), zmq::send_flags::none);
      live_.send(zmq::str_buffer("kv-events"), zmq::send_flags::sndmore);
      live_.send(zmq::str_buffer("no number"), zmq::send_flags::sndmore);
      live_.send(zmq::str_buffer("payload"), zmq::send_flags::none);
    } else {
      const uint64_t sequence = first_ + remembered_.size();
      remembered_.push_back(payload);
      if (verb == "publish") {
        live_.send(zmq::str_buffer("kv-events"), zmq::send_flags::sndmore);
        live_.send(zmq::buffer(number(sequence)), zmq::send_flags::sndmore);
        live_.send(zmq::buffer(payload), zmq::send_flags::none);
      }
    }
    std::cout << "done" << std::endl;
  }

  void answer() {
    zmq::message_t who;
    zmq::message_t empty;
    zmq::message_t from;
    if (!replay_.recv(who) || !replay_.recv(empty) || !replay_.recv(from)) {
      return;
    }
    uint64_t start = 0;
    for (const char byte : from.to_string_view()) {
      start = start << 8 | static_cast<uint8_t>(byte);
    }
    const auto reply = [&](const std::string& topic, uint64_t sequence,
                           const std::string& payload) {
      replay_.send(zmq::buffer(who.to_string_view()), zmq::send_flags::sndmore);
      replay_.send(zmq::message_t(), zmq::send_flags::sndmore);
      replay_.send(zmq::buffer(topic), zmq::send_flags::sndmore);
      replay_.send(zmq::buffer(number(sequence)), zmq::send_flags::sndmore);
      replay_.send(zmq::buffer(payload), zmq::send_flags::none);
    };
    for (size_t i = 0; i < remembered_.size(); ++i) {
      if (first_ + i >= start) {
        reply("kv-events", first_ + i, remembered_[i]);
      }
    }
    reply("", ~uint64_t{0}, "");
  }

  zmq::context_t context_;
  zmq::socket_t live_;
  zmq::socket_t replay_;
  uint64_t first_ = 0;  // number of the first remembered message
  std::vector<std::string> remembered_;
};

constexpr const char* kPortsVariable = "STATOR_TEST_PUBLISHER_PORTS";

/// What the child process runs, before the test framework begins. Without its variable: nothing.
bool publish_if_asked() {
  const char* ports = ::getenv(kPortsVariable);
  if (ports == nullptr) {
    return false;
  }
  std::istringstream words(ports);
  PublisherProcess::Ports wanted;
  words >> wanted.live >> wanted.replay;
  Publisher(wanted).run();
  ::_exit(0);
}

[[maybe_unused]] const bool kIsPublisher = publish_if_asked();

}  // namespace

PublisherProcess::PublisherProcess(Ports ports) {
  int to[2];
  int from[2];
  EXPECT_EQ(::pipe2(to, O_CLOEXEC), 0);
  EXPECT_EQ(::pipe2(from, O_CLOEXEC), 0);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, to[0], STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, from[1], STDOUT_FILENO);
  std::string variable = std::string(kPortsVariable) + "=" + std::to_string(ports.live) + " " +
                         std::to_string(ports.replay);
  std::vector<char*> environment{variable.data()};
  for (char** entry = environ; *entry != nullptr; ++entry) {
    environment.push_back(*entry);
  }
  environment.push_back(nullptr);
  std::string name = "publisher";
  char* argv[] = {name.data(), nullptr};
  EXPECT_EQ(::posix_spawn(&pid_, "/proc/self/exe", &actions, nullptr, argv, environment.data()), 0);
  posix_spawn_file_actions_destroy(&actions);
  ::close(to[0]);
  ::close(from[1]);
  to_ = to[1];
  from_ = from[0];
  std::istringstream words(read_line());
  words >> ports_.live >> ports_.replay;
  EXPECT_NE(ports_.live, 0) << "the publisher did not start";
}

PublisherProcess::~PublisherProcess() {
  kill();
  ::close(to_);
  ::close(from_);
}

void PublisherProcess::kill() {
  if (pid_ > 0) {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }
}

void PublisherProcess::freeze() {
  ::kill(pid_, SIGSTOP);
}

void PublisherProcess::thaw() {
  ::kill(pid_, SIGCONT);
}

std::string PublisherProcess::endpoint() const {
  return endpoint_of(ports_.live);
}

std::string PublisherProcess::replay_endpoint() const {
  return endpoint_of(ports_.replay);
}

void PublisherProcess::command(std::string_view verb, std::string_view payload) {
  std::ostringstream line;
  line << verb << std::hex;
  for (const char byte : payload) {
    line << ' ' << static_cast<int>(static_cast<uint8_t>(byte));
  }
  const std::string text = line.str() + "\n";
  EXPECT_EQ(::write(to_, text.data(), text.size()), static_cast<ssize_t>(text.size()));
  EXPECT_EQ(read_line(), "done");
}

std::string PublisherProcess::read_line() {
  std::string line;
  for (char byte = 0; ::read(from_, &byte, 1) == 1 && byte != '\n';) {
    line.push_back(byte);
  }
  return line;
}

}  // namespace stator::kv_events::test
