// SPDX-License-Identifier: Apache-2.0
#include "stator/transfer/agent.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <numeric>

#include "stator/transfer/socket_io.h"
#include "stator/transfer/wire.h"

namespace stator::transfer {
namespace {

constexpr Duration kPatience = std::chrono::seconds(60);
constexpr size_t kBytes = size_t{5} << 20;

Desc range_of(std::span<std::byte> memory) {
  return {.addr = reinterpret_cast<uint64_t>(memory.data()), .len = memory.size()};
}

/// Two agents of one process that know each other.
class AgentTest : public testing::TestWithParam<std::string_view> {
 protected:
  void SetUp() override {
    for (Agent* agent : {&a, &b}) {
      ASSERT_EQ(agent->create_backend(GetParam(), {}), Outcome::kSuccess);
    }
    mine = a.allocate(kBytes);
    theirs = b.allocate(kBytes);
    for (size_t i = 0; i < kBytes; ++i) {
      mine[i] = static_cast<std::byte>(i * 7 + i / 255);
    }
    const Desc my_range = range_of(mine);
    const Desc their_range = range_of(theirs);
    ASSERT_EQ(a.register_mem(MemType::kDram, {&my_range, 1}), Outcome::kSuccess);
    ASSERT_EQ(b.register_mem(MemType::kDram, {&their_range, 1}), Outcome::kSuccess);
    ASSERT_EQ(a.load_remote_md(b.local_md(), peer), Outcome::kSuccess);
    ASSERT_EQ(peer, "b");
  }

  Outcome move(Op op, std::span<const Desc> local, std::span<const Desc> remote,
               const std::string& notification = {}) {
    ListId l = 0;
    ListId r = 0;
    TransferId id = 0;
    std::vector<uint32_t> all(local.size());
    std::iota(all.begin(), all.end(), 0U);
    if (const Outcome o = a.prep_list(kSelf, MemType::kDram, local, l); o != Outcome::kSuccess) {
      return o;
    }
    if (const Outcome o = a.prep_list(peer, MemType::kDram, remote, r); o != Outcome::kSuccess) {
      return o;
    }
    if (const Outcome o = a.make_xfer({.op = op,
                                       .local = l,
                                       .local_indices = all,
                                       .remote = r,
                                       .remote_indices = all,
                                       .notification = notification},
                                      id);
        o != Outcome::kSuccess) {
      return o;
    }
    EXPECT_EQ(a.status(id), Outcome::kNotPosted);
    if (const Outcome o = a.post(id); o != Outcome::kInProgress) {
      return o;
    }
    const Outcome ended = a.wait(id, kPatience);
    a.release(id);
    return ended;
  }

  SystemClock clock;
  Metrics metrics;
  Agent a{"a", {}, clock, metrics};
  Agent b{"b", {}, clock, metrics};
  std::string peer;
  std::span<std::byte> mine;
  std::span<std::byte> theirs;
};

TEST_P(AgentTest, ASmallCopyIsDoneByWhoPostsIt) {
  const Desc local{.addr = range_of(mine).addr, .len = 4096};
  const Desc remote{.addr = range_of(theirs).addr, .len = 4096};
  ListId l = 0;
  ListId r = 0;
  TransferId id = 0;
  const uint32_t first = 0;
  ASSERT_EQ(a.prep_list(kSelf, MemType::kDram, {&local, 1}, l), Outcome::kSuccess);
  ASSERT_EQ(a.prep_list(peer, MemType::kDram, {&remote, 1}, r), Outcome::kSuccess);
  ASSERT_EQ(a.make_xfer({.op = Op::kWrite,
                         .local = l,
                         .local_indices = {&first, 1},
                         .remote = r,
                         .remote_indices = {&first, 1},
                         .notification = {}},
                        id),
            Outcome::kSuccess);
  for (int i = 0; i < 3; ++i) {  // again and again: a transfer may be posted once more
    const Outcome posted = a.post(id);
    if (GetParam() != "tcp") {
      EXPECT_EQ(posted, Outcome::kSuccess);
    }
    EXPECT_EQ(a.wait(id, kPatience), Outcome::kSuccess);
  }
  EXPECT_TRUE(std::ranges::equal(mine.first(4096), theirs.first(4096)));
}

TEST_P(AgentTest, WritesAndReadsAndTellsWhenAllIsThere) {
  const Desc local = range_of(mine);
  const Desc remote = range_of(theirs);
  ASSERT_EQ(move(Op::kWrite, {&local, 1}, {&remote, 1}, "req-42:done"), Outcome::kSuccess);

  std::map<std::string, std::vector<std::string>> told;
  while (told.empty()) {
    told = b.notifications();
  }
  EXPECT_EQ(told["a"], std::vector<std::string>{"req-42:done"});
  EXPECT_TRUE(std::ranges::equal(mine, theirs));

  std::ranges::fill(mine, std::byte{0});
  const Desc half_local{.addr = local.addr + 100, .len = 70'000};
  const Desc half_remote{.addr = remote.addr + 9'000, .len = 70'000};
  ASSERT_EQ(move(Op::kRead, {&half_local, 1}, {&half_remote, 1}), Outcome::kSuccess);
  EXPECT_TRUE(std::ranges::equal(mine.subspan(100, 70'000), theirs.subspan(9'000, 70'000)));
  EXPECT_EQ(mine[99], std::byte{0});
  EXPECT_EQ(mine[70'100], std::byte{0});
}

TEST_P(AgentTest, RefusesWhatIsNotRegistered) {
  const Desc local = range_of(mine);
  const Desc beyond{.addr = range_of(theirs).addr + 1, .len = kBytes};
  const Desc wraps{.addr = UINT64_MAX - 10, .len = 100};
  EXPECT_EQ(move(Op::kWrite, {&local, 1}, {&beyond, 1}), Outcome::kNotFound);
  EXPECT_EQ(move(Op::kWrite, {&local, 1}, {&wraps, 1}), Outcome::kNotFound);
  std::vector<std::byte> elsewhere(100);
  const Desc other = range_of(elsewhere);
  EXPECT_EQ(move(Op::kWrite, {&other, 1}, {&other, 1}), Outcome::kNotFound);
  const Desc shorter{.addr = range_of(theirs).addr, .len = 10};
  EXPECT_EQ(move(Op::kWrite, {&local, 1}, {&shorter, 1}), Outcome::kInvalidParam);
}

TEST_P(AgentTest, ForgetsAPeer) {
  const Desc local = range_of(mine);
  const Desc remote = range_of(theirs);
  ASSERT_EQ(a.invalidate_remote_md("b"), Outcome::kSuccess);
  EXPECT_EQ(move(Op::kWrite, {&local, 1}, {&remote, 1}), Outcome::kNotFound);
  EXPECT_EQ(a.invalidate_remote_md("b"), Outcome::kNotFound);
  std::string name;
  EXPECT_EQ(a.load_remote_md("rubbish", name), Outcome::kMismatch);
  EXPECT_EQ(a.load_remote_md(a.local_md(), name), Outcome::kInvalidParam);
}

/// Runs of 3,000 pieces, more than one thread's part, posted twice.
TEST_P(AgentTest, StridedRunsMoveEveryPieceAndNothingBetween) {
  std::ranges::fill(theirs, std::byte{0xEE});
  const StridedDesc from{
      .addr = range_of(mine).addr, .len = 1'500, .stride = 1'700, .count = 3'000};
  const StridedDesc to{
      .addr = range_of(theirs).addr + 8, .len = 1'500, .stride = 1'600, .count = 3'000};
  ListId l = 0;
  ListId r = 0;
  TransferId id = 0;
  ASSERT_EQ(a.prep_strided(kSelf, MemType::kDram, {&from, 1}, l), Outcome::kSuccess);
  ASSERT_EQ(a.prep_strided(peer, MemType::kDram, {&to, 1}, r), Outcome::kSuccess);
  ASSERT_EQ(a.list_size(r), 3'000U);
  ASSERT_EQ(a.make_xfer({.op = Op::kWrite,
                         .local = l,
                         .local_indices = {},
                         .remote = r,
                         .remote_indices = {},
                         .notification = "there",
                         .all = true},
                        id),
            Outcome::kSuccess);
  for (int round = 0; round < 2; ++round) {
    a.post(id);
    ASSERT_EQ(a.wait(id, kPatience), Outcome::kSuccess) << a.cause(id);
    while (b.notifications().empty()) {
    }
    for (size_t i = 0; i < 3'000; ++i) {
      ASSERT_TRUE(
          std::ranges::equal(mine.subspan(i * 1'700, 1'500), theirs.subspan(8 + i * 1'600, 1'500)))
          << i;
      ASSERT_EQ(theirs[7 + i * 1'600], std::byte{0xEE});
      ASSERT_EQ(theirs[8 + i * 1'600 + 1'500], std::byte{0xEE});
    }
    std::ranges::fill(theirs, std::byte{0xEE});
  }
  const auto numbers = a.telemetry(id);
  ASSERT_TRUE(numbers);
  EXPECT_EQ(numbers->descriptors, 3'000U);
  EXPECT_EQ(numbers->bytes, 4'500'000U);
  const StridedDesc beyond{.addr = to.addr, .len = 1'500, .stride = 1'600, .count = 3'300};
  EXPECT_EQ(a.prep_strided(peer, MemType::kDram, {&beyond, 1}, r), Outcome::kNotFound);
}

/// A run may go through several registrations.
TEST_P(AgentTest, RunsOverTwoRegistrationsAreWrittenOut) {
  const Desc whole = range_of(theirs);
  ASSERT_EQ(b.deregister_mem(MemType::kDram, {&whole, 1}), Outcome::kSuccess);
  const std::array<Desc, 2> halves = {Desc{.addr = whole.addr, .len = kBytes / 2},
                                      Desc{.addr = whole.addr + kBytes / 2, .len = kBytes / 2}};
  ASSERT_EQ(b.register_mem(MemType::kDram, halves), Outcome::kSuccess);
  ASSERT_EQ(a.load_remote_md(b.local_md(), peer), Outcome::kSuccess);
  const StridedDesc run{.addr = whole.addr, .len = 1024, .stride = 1024, .count = kBytes / 1024};
  ListId list = 0;
  EXPECT_EQ(a.prep_strided(peer, MemType::kDram, {&run, 1}, list), Outcome::kSuccess);
  EXPECT_EQ(a.list_size(list), kBytes / 1024);
}

/// Several threads wait for several large transfers, of which some are cancelled.
TEST_P(AgentTest, TransfersEndOnceWhoeverHelps) {
  const Desc local = range_of(mine);
  const Desc remote = range_of(theirs);
  std::atomic<int> good{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 8; ++i) {
        ListId l = 0;
        ListId r = 0;
        TransferId id = 0;
        a.prep_list(kSelf, MemType::kDram, {&local, 1}, l);
        a.prep_list(peer, MemType::kDram, {&remote, 1}, r);
        a.make_xfer({.op = Op::kWrite,
                     .local = l,
                     .local_indices = {},
                     .remote = r,
                     .remote_indices = {},
                     .notification = {},
                     .all = true},
                    id);
        a.release_list(l);
        a.release_list(r);
        a.post(id);
        const bool gives_up = (t + i) % 3 == 0 && a.release(id) == Outcome::kSuccess;
        const Outcome ended = gives_up ? Outcome::kSuccess : a.wait(id, kPatience);
        good += ended == Outcome::kSuccess || ended == Outcome::kCanceled ? 1 : 0;
        a.release(id);
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(good, 32);
}

INSTANTIATE_TEST_SUITE_P(Backends, AgentTest, testing::Values("shm", "cma", "tcp"),
                         [](const auto& info) { return std::string(info.param); });

TEST(TcpTarget, ClosesTheConnectionOfWhoForgesAKeyOrAnEpoch) {
  SystemClock clock;
  Metrics metrics;
  Agent target("target", {}, clock, metrics);
  ASSERT_EQ(target.create_backend("tcp", {}), Outcome::kSuccess);
  const std::span<std::byte> memory = target.allocate(4096);
  const Desc range = range_of(memory);
  target.register_mem(MemType::kDram, {&range, 1});
  const auto metadata = decode_metadata(target.local_md());
  ASSERT_TRUE(metadata);
  const std::string& where = metadata->backends.at(0).connection;
  const auto port = static_cast<uint16_t>(std::stoi(where.substr(where.rfind(':') + 1)));
  const RemoteKey good = metadata->regions.at(0).key;
  RemoteKey forged = good;
  forged[0] ^= std::byte{1};

  struct Attempt {
    uint64_t epoch;
    RemoteKey key;
    uint64_t addr;
    uint32_t len;
    Frame::Type answer;
  };
  for (const Attempt& attempt :
       {Attempt{metadata->epoch, good, range.addr, 64, Frame::Type::kReadData},
        {metadata->epoch, forged, range.addr, 64, Frame::Type::kError},
        {metadata->epoch, good, range.addr + 4090, 64, Frame::Type::kError},
        {metadata->epoch, good, range.addr - 1, 64, Frame::Type::kError},
        {metadata->epoch, RemoteKey{}, 0, 64, Frame::Type::kError},
        {metadata->epoch + 1, good, range.addr, 64, Frame::Type::kError}}) {
    const io::FileDescriptor fd = connect_tcp("127.0.0.1", port, std::chrono::seconds(30));
    ASSERT_TRUE(fd.open());
    const std::string_view name = "stranger";
    const Frame hello{.type = Frame::Type::kHello, .len = 8, .epoch = attempt.epoch};
    const Frame ask{.type = Frame::Type::kReadRequest,
                    .key = attempt.key,
                    .addr = attempt.addr,
                    .len = attempt.len};
    ASSERT_TRUE(send_all(fd.get(), encode(hello), std::as_bytes(std::span(name))));
    Frame answer;
    ASSERT_TRUE(receive_frame(fd.get(), answer));
    if (answer.type == Frame::Type::kAck) {
      ASSERT_TRUE(send_all(fd.get(), encode(ask), {}));
      ASSERT_TRUE(receive_frame(fd.get(), answer));
    }
    EXPECT_EQ(answer.type, attempt.answer);
    if (answer.type == Frame::Type::kError) {
      Frame more;
      EXPECT_FALSE(receive_frame(fd.get(), more));  // closed
    }
  }
}

TEST(PosixBackend, MovesBytesToAFileAndBack) {
  const std::string path = testing::TempDir() + "/stator_transfer_file";
  std::filesystem::remove(path);
  SystemClock clock;
  Metrics metrics;
  Agent agent("a", {}, clock, metrics);
  ASSERT_EQ(agent.create_backend("posix", {}), Outcome::kSuccess);
  const std::span<std::byte> memory = agent.allocate(20'000);
  std::iota(reinterpret_cast<uint8_t*>(memory.data()),
            reinterpret_cast<uint8_t*>(memory.data()) + 10'000, 0);
  const Desc all = range_of(memory);
  agent.register_mem(MemType::kDram, {&all, 1});
  uint64_t dev = 0;
  EXPECT_EQ(agent.register_named(MemType::kFile, "ro:" + path, dev), Outcome::kNotFound);
  ASSERT_EQ(agent.register_named(MemType::kFile, "rw:" + path, dev), Outcome::kSuccess);

  const auto move = [&](Op op, uint64_t at) {
    const Desc local{.addr = all.addr + at, .len = 10'000};
    const Desc remote{.addr = 4'096, .len = 10'000, .dev = dev};
    ListId l = 0;
    ListId r = 0;
    TransferId id = 0;
    const uint32_t first = 0;
    EXPECT_EQ(agent.prep_list(kSelf, MemType::kDram, {&local, 1}, l), Outcome::kSuccess);
    EXPECT_EQ(agent.prep_list(kSelf, MemType::kFile, {&remote, 1}, r), Outcome::kSuccess);
    EXPECT_EQ(agent.make_xfer({.op = op,
                               .local = l,
                               .local_indices = {&first, 1},
                               .remote = r,
                               .remote_indices = {&first, 1},
                               .notification = {}},
                              id),
              Outcome::kSuccess);
    agent.post(id);
    return agent.wait(id, kPatience);
  };
  EXPECT_EQ(move(Op::kWrite, 0), Outcome::kSuccess);
  EXPECT_EQ(agent.query_mem(MemType::kFile, dev), 14'096U);
  EXPECT_EQ(move(Op::kRead, 10'000), Outcome::kSuccess);
  EXPECT_TRUE(std::ranges::equal(memory.first(10'000), memory.subspan(10'000)));
  std::filesystem::resize_file(path, 5'000);
  EXPECT_EQ(move(Op::kRead, 10'000), Outcome::kBackend);
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace stator::transfer
