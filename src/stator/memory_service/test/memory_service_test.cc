// SPDX-License-Identifier: Apache-2.0
// The service and its clients over a real socket; crashes are processes that are killed.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <filesystem>

#include "stator/core/assert.h"
#include "stator/memory_service/client.h"
#include "stator/memory_service/service.h"
#include "stator/memory_service/socket.h"
#include "stator/net/thread.h"

namespace stator::memory_service {
namespace {

constexpr Duration kPatience = std::chrono::seconds(60);
constexpr uint64_t kBytes = uint64_t{1} << 20;

size_t open_descriptors() {
  const auto all = std::filesystem::directory_iterator("/proc/self/fd");
  return static_cast<size_t>(std::distance(begin(all), end(all)));
}

/// A service on a thread of its own.
class MemoryServiceTest : public testing::Test {
 protected:
  MemoryServiceTest() {
    auto made = Service::open({.socket = socket_, .bytes_max = 4 * kBytes}, clock_);
    STATOR_ASSERT(made, "the socket is free");
    service_ = std::move(*made);
    thread_ = net::Thread("memory-test", [this] {
      while (!stopping_) {
        service_->turn(std::chrono::milliseconds(20));
        state_ = service_->state();
        bytes_ = service_->bytes();
        clients_ = service_->clients();
      }
    });
  }
  ~MemoryServiceTest() override {
    stopping_ = true;
    thread_.join();
  }

  std::unique_ptr<Client> client(Mode mode, Duration wait = kPatience) {
    auto made = Client::connect(socket_, mode, wait);
    STATOR_ASSERT(made, "the lock comes");
    return std::move(*made);
  }
  void wait_for(Ownership::State state) {
    const TimePoint until = clock_.now() + kPatience;
    while (state_ != state && clock_.now() < until) {
    }
    ASSERT_EQ(to_string(state_), to_string(state));
  }
  /// A committed layout of one allocation filled with `byte`; its id.
  uint64_t commit_one(std::byte byte, bool stays, std::unique_ptr<Client>& writer) {
    writer = client(Mode::kWrite);
    const auto made = writer->allocate(kBytes, "weights");
    STATOR_ASSERT(made, "there is room");
    const auto memory = writer->map(made->id);
    STATOR_ASSERT(memory, "it is mapped");
    std::ranges::fill(*memory, byte);
    STATOR_ASSERT(writer->put("w", {.allocation = made->id, .bytes = kBytes, .about = "f32"}), "");
    STATOR_ASSERT(writer->commit(stays), "it is whole");
    return made->id;
  }
  /// Runs `work` in a child that is then killed as it is.
  template <typename Work>
  void crash(Work work) {
    int done[2];
    ASSERT_EQ(::pipe(done), 0);
    const pid_t child = ::fork();
    if (child == 0) {
      work();
      const char byte = 1;
      ::write(done[1], &byte, 1);
      ::pause();
      ::_exit(0);
    }
    char byte = 0;
    ASSERT_EQ(::read(done[0], &byte, 1), 1);
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    ::close(done[0]);
    ::close(done[1]);
  }

  const std::string socket_ =
      testing::TempDir() + "/stator_memory_" + std::to_string(::getpid()) + ".s";
  SystemClock clock_;
  std::unique_ptr<Service> service_;
  std::atomic<bool> stopping_{false};
  std::atomic<Ownership::State> state_{Ownership::State::kEmpty};
  std::atomic<uint64_t> bytes_{0};
  std::atomic<size_t> clients_{0};
  net::Thread thread_;
};

TEST_F(MemoryServiceTest, AWriterThatCrashesLeavesNothing) {
  crash([this] {
    auto writer = Client::connect(socket_, Mode::kWrite, kPatience);
    (*writer)->map((*writer)->allocate(kBytes, "weights")->id).value()[0] = std::byte{1};
  });
  wait_for(Ownership::State::kEmpty);
  EXPECT_EQ(bytes_, 0U);
  EXPECT_TRUE(client(Mode::kWriteOrRead)->writes());
}

TEST_F(MemoryServiceTest, AReaderThatCrashesChangesNothing) {
  std::unique_ptr<Client> writer;
  const uint64_t id = commit_one(std::byte{7}, false, writer);
  wait_for(Ownership::State::kCommitted);
  crash([&] {
    auto reader = Client::connect(socket_, Mode::kRead, kPatience);
    (*reader)->map(id).value();
  });
  wait_for(Ownership::State::kCommitted);
  auto reader = client(Mode::kWriteOrRead);
  EXPECT_FALSE(reader->writes());
  const auto memory = reader->map(id);
  ASSERT_TRUE(memory);
  EXPECT_EQ((*memory)[kBytes - 1], std::byte{7});
  EXPECT_EQ(reader->get("w")->about, "f32");
  EXPECT_EQ(*reader->keys(), std::vector<std::string>{"w"});
}

TEST_F(MemoryServiceTest, WhoWaitsIsLetInWhenTheLockIsFree) {
  auto writer = client(Mode::kWrite);
  EXPECT_EQ(Client::connect(socket_, Mode::kWrite, std::chrono::milliseconds(30)).error().code(),
            Code::kDeadline);
  std::atomic<bool> reads{false};
  net::Thread waiter("waiter", [&] { reads = !client(Mode::kWriteOrRead)->writes(); });
  while (clients_ < 2) {
  }
  ASSERT_TRUE(writer->commit(true));
  waiter.join();
  EXPECT_TRUE(reads);
}

TEST_F(MemoryServiceTest, MappingsComeBackAtTheirAddresses) {
  std::unique_ptr<Client> engine;
  const uint64_t id = commit_one(std::byte{5}, true, engine);
  const auto before = *engine->map(id);
  engine->unmap_all();
  wait_for(Ownership::State::kCommitted);
  ASSERT_TRUE(engine->remap_all(kPatience));
  EXPECT_EQ(engine->map(id)->data(), before.data());
  EXPECT_EQ(before[100], std::byte{5});
}

TEST_F(MemoryServiceTest, AStaleLayoutIsNotMappedAgain) {
  std::unique_ptr<Client> engine;
  commit_one(std::byte{5}, true, engine);
  engine->unmap_all();
  std::unique_ptr<Client> other;
  commit_one(std::byte{6}, true, other);
  ASSERT_TRUE(other->list()) << "still there";
  const Status stale = engine->remap_all(kPatience);
  ASSERT_FALSE(stale);
  EXPECT_NE(stale.error().message().find("stale"), std::string::npos);
}

TEST_F(MemoryServiceTest, KeysThatPointNowhereAreNotCommitted) {
  auto writer = client(Mode::kWrite);
  const auto made = writer->allocate(kBytes, "weights");
  ASSERT_TRUE(writer->put("w", {.allocation = made->id, .offset = 1, .bytes = kBytes}));
  EXPECT_EQ(writer->commit(true).error().code(), Code::kInvalidArgument);
  ASSERT_TRUE(writer->put("w", {.allocation = made->id, .bytes = kBytes}));
  ASSERT_TRUE(writer->free(made->id));
  EXPECT_EQ(writer->commit(true).error().code(), Code::kInvalidArgument);
  EXPECT_EQ(*writer->runtime_state(), "RW");
}

TEST_F(MemoryServiceTest, ReadersChangeNothing) {
  std::unique_ptr<Client> engine;
  const uint64_t id = commit_one(std::byte{5}, true, engine);
  EXPECT_EQ(engine->free(id).error().code(), Code::kPermissionDenied);
  EXPECT_EQ(engine->allocate(1, "x").error().code(), Code::kPermissionDenied);
  EXPECT_EQ(engine->commit(true).error().code(), Code::kPermissionDenied);
}

TEST_F(MemoryServiceTest, AllocationsWaitForRoom) {
  auto writer = client(Mode::kWrite);
  const auto large = writer->allocate(3 * kBytes, "kv_cache");
  ASSERT_TRUE(large);
  EXPECT_EQ(writer->allocate(2 * kBytes, "x", std::chrono::milliseconds(30)).error().code(),
            Code::kOverloaded);
  EXPECT_EQ(writer->allocate(5 * kBytes, "x", kPatience).error().code(), Code::kInvalidArgument);
  ASSERT_TRUE(writer->free(large->id));
  EXPECT_TRUE(writer->allocate(2 * kBytes, "x"));
}

TEST_F(MemoryServiceTest, NonsenseEndsTheConnection) {
  const auto socket = connect_socket(socket_);
  ASSERT_TRUE(socket);
  ASSERT_EQ(::write(socket->get(), "\0\0\0\4abcd", 8), 8);
  io::FileDescriptor none;
  EXPECT_EQ(receive_message(socket->get(), none).error().code(), Code::kDisconnected);
  const auto huge = connect_socket(socket_);
  ASSERT_EQ(::write(huge->get(), "\xff\xff\xff\xff", 4), 4);
  EXPECT_EQ(receive_message(huge->get(), none).error().code(), Code::kDisconnected);
  EXPECT_TRUE(client(Mode::kWrite)->writes()) << "others are served on";
}

TEST_F(MemoryServiceTest, NoDescriptorIsLeftBehind) {
  const auto once = [this] {
    std::unique_ptr<Client> engine;
    const uint64_t id = commit_one(std::byte{5}, true, engine);
    auto reader = client(Mode::kRead);
    ASSERT_TRUE(reader->map(id));
    reader->unmap_all();
    engine.reset();
    reader.reset();
    auto next = client(Mode::kWrite);
    next.reset();
    wait_for(Ownership::State::kEmpty);
    while (clients_ > 0) {
    }
  };
  once();
  const size_t before = open_descriptors();
  for (int i = 0; i < 20; ++i) {
    once();
  }
  EXPECT_EQ(open_descriptors(), before);
}

}  // namespace
}  // namespace stator::memory_service
