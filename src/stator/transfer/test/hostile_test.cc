// SPDX-License-Identifier: Apache-2.0
// Peers that lie, forge and stop half-way; memory that goes while they write.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <set>
#include <thread>

#include "stator/core/assert.h"
#include "stator/transfer/agent.h"
#include "stator/transfer/socket_io.h"
#include "stator/transfer/wire.h"

namespace stator::transfer {
namespace {

constexpr Duration kPatience = std::chrono::seconds(60);

Desc range_of(std::span<std::byte> memory) {
  return {.addr = reinterpret_cast<uint64_t>(memory.data()), .len = memory.size()};
}

/// An agent with some memory, and the port of its TCP backend.
struct Target {
  explicit Target(std::string_view backend = "tcp") {
    STATOR_ASSERT(agent.create_backend(backend, {}) == Outcome::kSuccess, "a test's backend");
    memory = agent.allocate(size_t{4} << 20);
    range = range_of(memory);
    STATOR_ASSERT(agent.register_mem(MemType::kDram, {&range, 1}) == Outcome::kSuccess, "memory");
    metadata = std::move(*decode_metadata(agent.local_md()));
  }
  uint16_t port() const {
    const std::string& where = metadata.backends.at(0).connection;
    return static_cast<uint16_t>(std::stoi(where.substr(where.rfind(':') + 1)));
  }
  uint64_t refused(std::string_view reason) {
    return metrics.counter("stator_transfer_refused_total", "", {{"reason", std::string(reason)}})
        .value();
  }

  SystemClock clock;
  Metrics metrics;
  Agent agent{"target", {}, clock, metrics};
  std::span<std::byte> memory;
  Desc range;
  Metadata metadata;
};

io::FileDescriptor greet(const Target& target) {
  io::FileDescriptor fd = connect_tcp("127.0.0.1", target.port(), kPatience);
  const std::string_view name = "stranger";
  const Frame hello{.type = Frame::Type::kHello, .len = 8, .epoch = target.metadata.epoch};
  Frame answer;
  EXPECT_TRUE(send_all(fd.get(), encode(hello), std::as_bytes(std::span(name))));
  EXPECT_TRUE(receive_frame(fd.get(), answer));
  EXPECT_EQ(answer.type, Frame::Type::kAck);
  return fd;
}

bool closed(int fd) {
  std::array<std::byte, 256> rest;
  while (true) {
    const ssize_t got = ::recv(fd, rest.data(), rest.size(), 0);
    if (got <= 0) {
      return true;
    }
  }
}

TEST(HostilePeer, WhatIsRefusedIsCountedAndTheConnectionEnds) {
  Target target;
  RemoteKey forged = target.metadata.regions.at(0).key;
  forged[15] ^= std::byte{1};
  const io::FileDescriptor thief = greet(target);
  ASSERT_TRUE(send_all(
      thief.get(),
      encode(Frame{
          .type = Frame::Type::kReadRequest, .key = forged, .addr = target.range.addr, .len = 64}),
      {}));
  EXPECT_TRUE(closed(thief.get()));
  EXPECT_EQ(target.refused("NOT_ALLOWED"), 1U);

  const io::FileDescriptor noise = greet(target);
  const std::array<std::byte, Frame::kBytes> rubbish{};
  ASSERT_TRUE(send_all(noise.get(), rubbish, {}));
  EXPECT_TRUE(closed(noise.get()));
  EXPECT_EQ(target.refused("MISMATCH"), 1U);

  std::string name;
  EXPECT_EQ(target.agent.load_remote_md("SXM1 rubbish", name), Outcome::kMismatch);
  EXPECT_EQ(target.refused("MISMATCH"), 2U);
}

TEST(HostilePeer, AWriterThatStopsHalfWayDoesNotHoldTheMemory) {
  Target target;
  const io::FileDescriptor writer = greet(target);
  const std::vector<std::byte> half(1 << 10, std::byte{7});
  ASSERT_TRUE(send_all(writer.get(),
                       encode(Frame{.type = Frame::Type::kWrite,
                                    .segments = 1,
                                    .key = target.metadata.regions.at(0).key,
                                    .addr = target.range.addr,
                                    .len = 1 << 20}),
                       half));
  while (target.memory[half.size() - 1] != std::byte{7}) {  // it is in the middle of it
    std::this_thread::yield();
  }
  // Returns although the writer says nothing more, and nothing is written from now on.
  ASSERT_EQ(target.agent.deregister_mem(MemType::kDram, {&target.range, 1}), Outcome::kSuccess);
  std::ranges::fill(target.memory, std::byte{0});
  const std::vector<std::byte> rest((1 << 20) - half.size(), std::byte{9});
  static_cast<void>(send_all(writer.get(), rest, {}));
  EXPECT_TRUE(closed(writer.get()));
  EXPECT_TRUE(std::ranges::all_of(target.memory, [](std::byte b) { return b == std::byte{0}; }));
}

/// Metadata that says the peer is in this process, with memory that no agent here has registered.
TEST(HostilePeer, CannotMakeAnAgentWriteIntoItsOwnMemory) {
  for (const std::string_view backend : {"shm", "cma"}) {
    Target target(backend);
    SystemClock clock;
    Metrics metrics;
    Agent agent("victim", {}, clock, metrics);
    ASSERT_EQ(agent.create_backend(backend, {}), Outcome::kSuccess);
    const std::span<std::byte> mine = agent.allocate(4096);
    const Desc my_range = range_of(mine);
    agent.register_mem(MemType::kDram, {&my_range, 1});

    std::vector<std::byte> secret(4096, std::byte{1});
    const Desc secret_range = range_of(secret);
    Metadata lie = target.metadata;
    lie.regions.at(0).desc = secret_range;
    const auto write_to = [&](const Metadata& metadata) {
      std::string peer;
      EXPECT_EQ(agent.load_remote_md(encode(metadata), peer), Outcome::kSuccess);
      const Desc theirs{.addr = metadata.regions.at(0).desc.addr, .len = 4096};
      ListId local = 0;
      ListId remote = 0;
      TransferId id = 0;
      EXPECT_EQ(agent.prep_list(kSelf, MemType::kDram, {&my_range, 1}, local), Outcome::kSuccess);
      EXPECT_EQ(agent.prep_list(peer, MemType::kDram, {&theirs, 1}, remote), Outcome::kSuccess);
      EXPECT_EQ(agent.make_xfer({.op = Op::kWrite,
                                 .local = local,
                                 .local_indices = {},
                                 .remote = remote,
                                 .remote_indices = {},
                                 .notification = {},
                                 .all = true},
                                id),
                Outcome::kSuccess);
      agent.post(id);
      return agent.wait(id, kPatience);
    };
    EXPECT_EQ(write_to(lie), Outcome::kNotAllowed);
    lie.backends.at(0).connection += "-other";  // a socket that nobody here has
    EXPECT_EQ(write_to(lie), Outcome::kNotAllowed);
    EXPECT_TRUE(std::ranges::all_of(secret, [](std::byte b) { return b == std::byte{1}; }));
    EXPECT_EQ(write_to(target.metadata), Outcome::kSuccess);
  }
}

/// Keys of registrations must not follow from those a peer was told.
TEST(HostilePeer, KeysShareNothing) {
  Target target;
  std::vector<Desc> ranges;
  for (uint64_t i = 0; i < 64; ++i) {
    ranges.push_back({.addr = target.range.addr + i * 4096, .len = 4096});
  }
  ASSERT_EQ(target.agent.register_mem(MemType::kDram, ranges), Outcome::kSuccess);
  const auto metadata = decode_metadata(target.agent.local_md());
  ASSERT_TRUE(metadata);
  std::set<uint64_t> words;
  for (const Region& region : metadata->regions) {
    for (size_t at : {0, 8}) {
      uint64_t word = 0;
      std::memcpy(&word, region.key.data() + at, sizeof word);
      words.insert(word);
    }
  }
  EXPECT_EQ(words.size(), metadata->regions.size() * 2);
  EXPECT_FALSE(words.contains(metadata->epoch));
}

}  // namespace
}  // namespace stator::transfer
