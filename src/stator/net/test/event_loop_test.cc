// SPDX-License-Identifier: Apache-2.0
#include "stator/net/event_loop.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "stator/net/detail/name_lookup.h"
#include "stator/net/detail/watch.h"
#include "stator/net/shard.h"
#include "stator/net/thread.h"

namespace stator::net {
namespace {

using detail::FileDescriptor;
using detail::Watch;
using detail::WatchUser;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr EventLoop::Interest kEdge{.read = true, .trigger = EventLoop::Trigger::kEdge};

struct Pair {
  Pair() {
    std::array<int, 2> fds{};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds.data()), 0);
    near = FileDescriptor(fds[0]);
    far = FileDescriptor(fds[1]);
  }
  void say(std::string_view bytes) const {
    EXPECT_EQ(::write(far.get(), bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
  }
  FileDescriptor near;
  FileDescriptor far;
};

std::string read_all(int fd) {
  std::array<char, 100> buffer{};
  const ssize_t got = ::read(fd, buffer.data(), buffer.size());
  return got < 0    ? "nothing"
         : got == 0 ? "end"
                    : std::string(buffer.data(), static_cast<size_t>(got));
}

struct Recorder final : ReadyHandler {
  void on_ready(Ready ready) override {
    calls.push_back(ready);
    if (then) {
      then();
    }
  }
  void on_loop_end() override { ended = true; }
  std::vector<Ready> calls;
  std::function<void()> then;
  bool ended = false;
};

TEST(EventLoop, TellsAnEdgeOnceAndALevelAsLongAsItLasts) {
  Pair edge;
  Pair level;
  Recorder at_edge;
  Recorder at_level;
  EventLoop loop;
  ASSERT_TRUE(loop.add(edge.near.get(), kEdge, at_edge));
  ASSERT_TRUE(loop.add(level.near.get(), {.read = true}, at_level));

  edge.say("a");
  level.say("a");
  loop.turn(seconds(10));
  loop.turn(Duration::zero());
  EXPECT_EQ(at_edge.calls.size(), 1U);
  EXPECT_EQ(at_level.calls.size(), 2U);

  edge.say("b");
  loop.turn(seconds(10));
  EXPECT_EQ(at_edge.calls.size(), 2U);
  EXPECT_TRUE(at_edge.calls[1].readable);
  EXPECT_FALSE(at_edge.calls[1].ended);
}

TEST(EventLoop, ChangeTellsWhatIsReadyAlready) {
  Pair pair;
  Recorder recorder;
  EventLoop loop;
  const auto key = loop.add(pair.near.get(), kEdge, recorder);
  ASSERT_TRUE(key);
  loop.turn(Duration::zero());
  EXPECT_TRUE(recorder.calls.empty());

  loop.change(*key, pair.near.get(), {.read = true, .write = true, .trigger = kEdge.trigger});
  loop.turn(Duration::zero());

  ASSERT_EQ(recorder.calls.size(), 1U);
  EXPECT_TRUE(recorder.calls[0].writable);
}

TEST(EventLoop, CallsNobodyWhoWasRemovedNotEvenWithinATurn) {
  Pair first;
  Pair second;
  Recorder one;
  Recorder two;
  EventLoop loop;
  const auto key_one = loop.add(first.near.get(), kEdge, one);
  const auto key_two = loop.add(second.near.get(), kEdge, two);
  ASSERT_TRUE(key_one && key_two);
  one.then = [&] { loop.remove(*key_two); };
  two.then = [&] { loop.remove(*key_one); };
  first.say("a");
  second.say("a");

  EXPECT_EQ(loop.turn(seconds(10)), 2U);

  EXPECT_EQ(one.calls.size() + two.calls.size(), 1U);
}

TEST(EventLoop, ANewDescriptorWithAnOldNumberIsAnotherOne) {
  Recorder old;
  Recorder recent;
  EventLoop loop;
  auto pair = std::make_unique<Pair>();
  const int number = pair->near.get();
  const auto key = loop.add(number, kEdge, old);
  ASSERT_TRUE(key);
  loop.remove(*key);
  pair.reset();

  Pair next;
  ASSERT_EQ(next.near.get(), number);
  const auto other = loop.add(number, kEdge, recent);
  ASSERT_TRUE(other);
  EXPECT_NE(*key, *other);
  loop.remove(*key);  // a late one
  next.say("a");
  loop.turn(seconds(10));

  EXPECT_TRUE(old.calls.empty());
  EXPECT_EQ(recent.calls.size(), 1U);
}

TEST(EventLoop, AWakeUpEndsTheWaitUnderWayOrTheNext) {
  const SystemClock clock;
  EventLoop loop;
  const TimePoint begin = clock.now();
  loop.wake();
  loop.turn(seconds(60));
  {
    const Thread waker("waker", [&] {
      for (int i = 0; i < 100; ++i) {
        loop.wake();
      }
    });
    loop.turn(seconds(60));
  }
  EXPECT_LT(clock.now() - begin, seconds(50));
}

TEST(EventLoop, CallAgainNeedsNoEvent) {
  Pair pair;
  Recorder recorder;
  EventLoop loop;
  const auto key = loop.add(pair.near.get(), kEdge, recorder);
  ASSERT_TRUE(key);
  loop.call_again(*key);

  loop.turn(seconds(60));

  EXPECT_EQ(recorder.calls.size(), 1U);
}

TEST(EventLoop, HandlersHearOfItsEnd) {
  Pair pair;
  Recorder recorder;
  {
    EventLoop loop;
    ASSERT_TRUE(loop.add(pair.near.get(), kEdge, recorder));
  }
  EXPECT_TRUE(recorder.ended);
}

struct Reader : WatchUser, std::enable_shared_from_this<Reader> {
  explicit Reader(EventLoop& loop) : watch(loop) {}
  void on_readable() override {
    heard += read_all(watch.fd()) + " ";
    if (waits_again && !heard.ends_with("end ")) {
      watch.wait_readable(shared_from_this());
    }
  }
  void on_writable() override { heard += "writable "; }
  Watch watch;
  std::string heard;
  bool waits_again = true;
};

struct WatchTest : testing::Test {
  WatchTest() { EXPECT_TRUE(reader->watch.open(std::move(pair.near))); }
  Pair pair;
  EventLoop loop;
  std::shared_ptr<Reader> reader = std::make_shared<Reader>(loop);
};

TEST_F(WatchTest, WhatCameBeforeAnybodyWaitedIsRead) {
  pair.say("early");
  loop.turn(seconds(10));
  EXPECT_EQ(reader->heard, "");

  reader->watch.wait_readable(reader);
  loop.turn(seconds(60));

  EXPECT_EQ(reader->heard, "early ");
}

TEST_F(WatchTest, AnEndThatComesWithTheLastBytesIsHeard) {
  reader->watch.wait_readable(reader);
  pair.say("last words");
  pair.far.reset();

  loop.turn(seconds(10));
  loop.turn(seconds(60));

  EXPECT_EQ(reader->heard, "last words end ");
}

TEST_F(WatchTest, WaitingAgainAsksForWhatIsLeft) {
  reader->waits_again = false;
  reader->watch.wait_readable(reader);
  pair.say(std::string(150, 'x'));
  loop.turn(seconds(10));

  reader->watch.wait_readable_again(reader);
  loop.turn(seconds(60));

  EXPECT_EQ(reader->heard, std::string(100, 'x') + " " + std::string(50, 'x') + " ");
}

TEST_F(WatchTest, WritableIsToldEvenIfItWasAllAlong) {
  reader->watch.wait_writable(reader);
  loop.turn(seconds(60));
  reader->watch.wait_writable(reader);
  loop.turn(seconds(60));

  EXPECT_EQ(reader->heard, "writable writable ");
  EXPECT_FALSE(reader->watch.waits_writable());
}

TEST_F(WatchTest, ClosingLetsItsUserGo) {
  const std::weak_ptr<Reader> user = reader;
  reader->watch.wait_readable(reader);
  reader.reset();
  ASSERT_FALSE(user.expired()) << "W1: what waits keeps it";

  user.lock()->watch.close();

  EXPECT_TRUE(user.expired());
}

TEST(Watch, TheEndOfTheLoopLetsUsersGo) {
  Pair pair;
  std::weak_ptr<Reader> user;
  {
    EventLoop loop;
    const auto reader = std::make_shared<Reader>(loop);
    user = reader;
    ASSERT_TRUE(reader->watch.open(std::move(pair.near)));
    reader->watch.wait_readable(reader);
  }
  EXPECT_TRUE(user.expired());
}

TEST(Watch, ASocketIsGivenAway) {
  Pair pair;
  Recorder next;
  EventLoop loop;
  const auto reader = std::make_shared<Reader>(loop);
  ASSERT_TRUE(reader->watch.open(std::move(pair.near)));
  const FileDescriptor fd = reader->watch.release();
  ASSERT_TRUE(loop.add(fd.get(), kEdge, next));
  pair.say("a");

  loop.turn(seconds(10));

  EXPECT_EQ(next.calls.size(), 1U);
  EXPECT_EQ(reader->heard, "");
}

TEST(NameLookup, AnswersOnTheLoopAndSaysWhatIsUnknown) {
  const SystemClock clock;
  SystemClock shard_clock;
  Metrics metrics;
  ShardSet shards(1, shard_clock, metrics);
  std::string known;
  std::string unknown;
  bool on_loop = false;
  std::atomic<int> answers = 0;
  shards.start();
  ASSERT_TRUE(shards.shard(0).run_and_wait([&] {
    detail::NameLookup& names = shards.shard(0).names();
    names.start({"localhost", "80"}, [&](const auto& found) {
      on_loop = shards.shard(0).on_loop();
      known = found && !found->empty() ? "found" : "not found";
      ++answers;
    });
    names.start({"no such host", "80"}, [&](const auto& found) {
      unknown = found ? "found" : found.error().message();
      ++answers;
    });
  }));
  while (answers < 2) {
    const Thread pause("pause", [] { ::usleep(1000); });
  }
  shards.stop();

  EXPECT_EQ(known, "found");
  EXPECT_TRUE(on_loop);
  EXPECT_NE(unknown, "found");
  EXPECT_NE(unknown, "");
}

TEST(SocketAddresses, AreReadWithoutALookUpIfTheyAreNumbers) {
  EXPECT_EQ(detail::numeric_addresses({"127.0.0.1", "80"}).size(), 1U);
  EXPECT_EQ(detail::numeric_addresses({"::1", "80"}).size(), 1U);
  EXPECT_TRUE(detail::numeric_addresses({"localhost", "80"}).empty());
  EXPECT_EQ(detail::split_endpoint("[::1]:90").host, "::1");
  EXPECT_EQ(detail::split_endpoint("name:90").port, "90");
  EXPECT_EQ(detail::split_endpoint("name").port, "");
}

}  // namespace
}  // namespace stator::net
