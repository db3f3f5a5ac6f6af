// SPDX-License-Identifier: Apache-2.0
// Peers that die, stall or come back; transfers that are cancelled or late; what is visible when.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <thread>

#include "stator/core/assert.h"
#include "stator/transfer/agent.h"
#include "stator/transfer/socket_io.h"
#include "stator/transfer/wire.h"

namespace stator::transfer {
namespace {

constexpr Duration kPatience = std::chrono::seconds(60);
constexpr size_t kBytes = size_t{4} << 20;

Desc range_of(std::span<std::byte> memory) {
  return {.addr = reinterpret_cast<uint64_t>(memory.data()), .len = memory.size()};
}

/// An agent of this process with memory.
struct Node {
  Node(std::string name, std::string_view backend) : agent(std::move(name), {}, clock, metrics) {
    STATOR_ASSERT(agent.create_backend(backend, {}) == Outcome::kSuccess, "a test's backend");
    memory = agent.allocate(kBytes);
    range = range_of(memory);
    STATOR_ASSERT(agent.register_mem(MemType::kDram, {&range, 1}) == Outcome::kSuccess, "memory");
  }
  /// All of `to`, from or into this one's first bytes.
  TransferId make(Op op, std::string_view peer, const Desc& to, std::string notification = {},
                  Duration deadline = {}) {
    const Desc mine{.addr = range.addr, .len = to.len};
    ListId local = 0;
    ListId remote = 0;
    TransferId id = 0;
    EXPECT_EQ(agent.prep_list(kSelf, MemType::kDram, {&mine, 1}, local), Outcome::kSuccess);
    EXPECT_EQ(agent.prep_list(peer, MemType::kDram, {&to, 1}, remote), Outcome::kSuccess);
    EXPECT_EQ(agent.make_xfer({.op = op,
                               .local = local,
                               .local_indices = {},
                               .remote = remote,
                               .remote_indices = {},
                               .notification = std::move(notification),
                               .all = true,
                               .deadline = deadline},
                              id),
              Outcome::kSuccess);
    return id;
  }
  SystemClock clock;
  Metrics metrics;
  Agent agent;
  std::span<std::byte> memory;
  Desc range;
};

/// A process with an agent "victim", killed with this object or before.
class Victim {
 public:
  explicit Victim(std::string_view backend) {
    std::array<int, 2> told{};
    EXPECT_EQ(::pipe(told.data()), 0);
    pid_ = ::fork();
    if (pid_ == 0) {
      ::close(told[0]);
      Node node("victim", backend);
      const std::string said = node.agent.local_md();
      if (::write(told[1], said.data(), said.size()) != static_cast<ssize_t>(said.size())) {
        ::_exit(1);
      }
      ::close(told[1]);
      while (true) {
        ::pause();
      }
    }
    ::close(told[1]);
    std::array<char, 4096> some{};
    for (ssize_t got = 0; (got = ::read(told[0], some.data(), some.size())) > 0;) {
      blob.append(some.data(), static_cast<size_t>(got));
    }
    ::close(told[0]);
    range = decode_metadata(blob)->regions.at(0).desc;
  }
  Victim(const Victim&) = delete;
  Victim& operator=(const Victim&) = delete;
  ~Victim() { kill(); }
  void kill() {
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
      pid_ = -1;
    }
  }
  std::string blob;
  Desc range;

 private:
  pid_t pid_ = -1;
};

class Lifetimes : public testing::TestWithParam<std::string_view> {};

TEST_P(Lifetimes, APeerThatIsKilledIsDisconnectedAndItsNextLifeIsAnother) {
  auto victim = std::make_unique<Victim>(GetParam());
  auto next = std::make_unique<Victim>(GetParam());  // forked before threads start here
  Node node("survivor", GetParam());
  std::string peer;
  ASSERT_EQ(node.agent.load_remote_md(victim->blob, peer), Outcome::kSuccess);
  const TransferId id = node.make(Op::kWrite, peer, victim->range);
  node.agent.post(id);
  ASSERT_EQ(node.agent.wait(id, kPatience), Outcome::kSuccess) << node.agent.cause(id);

  victim->kill();
  node.agent.post(id);
  EXPECT_EQ(node.agent.wait(id, kPatience), Outcome::kRemoteDisconnect);
  EXPECT_EQ(node.agent.failed_range(id), 0U);
  EXPECT_FALSE(node.agent.cause(id).empty());

  // The same name again: until its metadata is loaded, it is the dead one that is meant.
  ASSERT_EQ(node.agent.load_remote_md(next->blob, peer), Outcome::kSuccess);
  const TransferId again = node.make(Op::kRead, peer, next->range);
  node.agent.post(again);
  EXPECT_EQ(node.agent.wait(again, kPatience), Outcome::kSuccess);
  EXPECT_EQ(node.agent.failed_range(again), std::nullopt);
}

/// Each word tells what the memory must hold when it is read.
TEST_P(Lifetimes, NotificationsComeAfterEveryByteOfTheirTransfer) {
  Node from("from", GetParam());
  Node to("to", GetParam());
  std::string peer;
  ASSERT_EQ(from.agent.load_remote_md(to.agent.local_md(), peer), Outcome::kSuccess);
  for (int round = 1; round <= 6; ++round) {
    std::ranges::fill(from.memory, static_cast<std::byte>(round));
    const TransferId id = from.make(Op::kWrite, peer, to.range, std::to_string(round));
    from.agent.post(id);
    std::map<std::string, std::vector<std::string>> told;
    while (told.empty()) {
      told = to.agent.notifications();
    }
    ASSERT_EQ(told["from"], std::vector<std::string>{std::to_string(round)});
    ASSERT_TRUE(std::ranges::all_of(
        to.memory, [&](std::byte b) { return b == static_cast<std::byte>(round); }));
    ASSERT_EQ(from.agent.wait(id, kPatience), Outcome::kSuccess);
    from.agent.release(id);
  }
}

TEST_P(Lifetimes, ATransferIsPostedAgainOnlyWhenItIsOver) {
  Node from("from", GetParam());
  Node to("to", GetParam());
  std::string peer;
  ASSERT_EQ(from.agent.load_remote_md(to.agent.local_md(), peer), Outcome::kSuccess);
  const TransferId id = from.make(Op::kWrite, peer, to.range);
  EXPECT_EQ(from.agent.status(id), Outcome::kNotPosted);
  for (int round = 0; round < 20; ++round) {
    const auto good = [](Outcome o) { return o == Outcome::kInProgress || o == Outcome::kSuccess; };
    ASSERT_TRUE(good(from.agent.post(id)));
    const Outcome again = from.agent.post(id);  // it may be over already
    ASSERT_TRUE(good(again) || again == Outcome::kRepostActive);
    ASSERT_EQ(from.agent.wait(id, kPatience), Outcome::kSuccess);
  }
  EXPECT_EQ(from.agent.release(id), Outcome::kSuccess);
  EXPECT_EQ(from.agent.post(id), Outcome::kNotFound);
  EXPECT_EQ(from.agent.release(id), Outcome::kNotFound);
}

INSTANTIATE_TEST_SUITE_P(Backends, Lifetimes, testing::Values("shm", "cma", "tcp"),
                         [](const auto& info) { return std::string(info.param); });

/// A TCP target that takes everything and never says that it has it.
class Silent {
 public:
  Silent() {
    listener_ = listen_tcp("127.0.0.1", port_);
    thread_ = std::thread([this] {
      while (true) {
        io::FileDescriptor fd(::accept(listener_.get(), nullptr, nullptr));
        if (!fd.open()) {
          return;
        }
        Frame hello;
        std::array<std::byte, 64> name{};
        if (receive_frame(fd.get(), hello) &&
            receive_all(fd.get(), std::span(name).first(hello.len))) {
          send_all(fd.get(), encode(Frame{.type = Frame::Type::kAck}), {});
        }
        while (::recv(fd.get(), name.data(), name.size(), 0) > 0) {
        }
      }
    });
  }
  Silent(const Silent&) = delete;
  Silent& operator=(const Silent&) = delete;
  ~Silent() {
    ::shutdown(listener_.get(), SHUT_RDWR);
    thread_.join();
  }
  std::string metadata() const {
    Metadata said{.agent = "silent",
                  .epoch = 1,
                  .backends = {{.type = "tcp", .connection = "127.0.0.1:" + std::to_string(port_)}},
                  .regions = {{.desc = range}}};
    return encode(said);
  }
  Desc range{.addr = 4096, .len = 4096};

 private:
  uint16_t port_ = 0;
  io::FileDescriptor listener_;
  std::thread thread_;
};

TEST(SilentPeer, ATransferEndsByItsDeadline) {
  Silent silent;
  Node node("node", "tcp");
  std::string peer;
  ASSERT_EQ(node.agent.load_remote_md(silent.metadata(), peer), Outcome::kSuccess);
  for (const Op op : {Op::kWrite, Op::kRead}) {
    const TransferId id = node.make(op, peer, silent.range, {}, std::chrono::milliseconds(50));
    node.agent.post(id);
    EXPECT_EQ(node.agent.wait(id, kPatience), Outcome::kCanceled);
    EXPECT_EQ(node.agent.cause(id), "its deadline passed");
  }
}

TEST(SilentPeer, WhatIsReleasedUnderWayEndsAndIsGone) {
  Silent silent;
  Node node("node", "tcp");
  std::string peer;
  ASSERT_EQ(node.agent.load_remote_md(silent.metadata(), peer), Outcome::kSuccess);
  const TransferId id = node.make(Op::kWrite, peer, silent.range);
  ASSERT_EQ(node.agent.post(id), Outcome::kInProgress);
  EXPECT_EQ(node.agent.post(id), Outcome::kRepostActive);
  EXPECT_EQ(node.agent.release(id), Outcome::kInProgress) << "its memory is still in use";
  EXPECT_NE(node.agent.wait(id, kPatience), Outcome::kSuccess);
  EXPECT_EQ(node.agent.release(id), Outcome::kSuccess);
  EXPECT_EQ(node.agent.status(id), Outcome::kNotFound);
}

TEST(SilentPeer, OneThatSaysNothingIsLost) {
  Silent silent;
  Node node("node", "tcp");
  std::string peer;
  ASSERT_EQ(node.agent.load_remote_md(silent.metadata(), peer), Outcome::kSuccess);
  const TransferId id = node.make(Op::kWrite, peer, silent.range);
  node.agent.post(id);
  EXPECT_EQ(node.agent.wait(id, kPatience), Outcome::kRemoteDisconnect);
}

}  // namespace
}  // namespace stator::transfer
