// SPDX-License-Identifier: Apache-2.0
#include "stator/lab/fake_engine/event_publisher_service.h"

#include <gtest/gtest.h>

#include <thread>
#include <zmq.hpp>

namespace stator::fake_engine {
namespace {

constexpr int kPatienceMs = 60'000;

std::string number(uint64_t value) {
  std::string out(8, '\0');
  for (size_t i = 0; i < 8; ++i) {
    out[7 - i] = static_cast<char>(value >> (8 * i));
  }
  return out;
}

std::vector<std::string> receive(zmq::socket_t& socket) {
  std::vector<std::string> frames;
  zmq::message_t frame;
  do {
    if (!socket.recv(frame)) {
      return frames;
    }
    frames.push_back(frame.to_string());
  } while (frame.more());
  return frames;
}

struct Replay {
  explicit Replay(const EventPublisher& publisher) : socket(context, zmq::socket_type::dealer) {
    socket.set(zmq::sockopt::rcvtimeo, kPatienceMs);
    socket.set(zmq::sockopt::linger, 0);
    socket.connect(publisher.replay_endpoint());
  }
  void ask(uint64_t start) {
    socket.send(zmq::str_buffer(""), zmq::send_flags::sndmore);
    socket.send(zmq::buffer(number(start)), zmq::send_flags::none);
  }
  std::vector<std::vector<std::string>> from(uint64_t start) {
    ask(start);
    std::vector<std::vector<std::string>> out;
    for (;;) {
      out.push_back(receive(socket));
      if (out.back().empty() || out.back().end()[-2] == number(UINT64_MAX)) {
        return out;
      }
    }
  }
  zmq::context_t context;
  zmq::socket_t socket;
};

TEST(EventPublisher, ReplaysWhatItKeepsAndSaysWhereItEnds) {
  Metrics metrics;
  auto publisher = EventPublisher::create({.buffer_steps = 2}, 0, Release::kCurrent, metrics);
  ASSERT_TRUE(publisher);
  for (const char* payload : {"a", "b", "c"}) {
    (*publisher)->publish(payload);
  }
  Replay replay(**publisher);

  const auto answers = replay.from(0);

  using Frames = std::vector<std::string>;
  ASSERT_EQ(answers.size(), 3U);
  EXPECT_EQ(answers[0], (Frames{"", "kv-events", number(1), "b"}));
  EXPECT_EQ(answers[1], (Frames{"", "kv-events", number(2), "c"}));
  EXPECT_EQ(answers[2], (Frames{"", "", number(UINT64_MAX), ""}));
  EXPECT_EQ(replay.from(3).size(), 1U);
}

TEST(EventPublisher, OldReleasesReplayWithoutTopic) {
  Metrics metrics;
  auto publisher = EventPublisher::create({}, 0, Release::kOld, metrics);
  ASSERT_TRUE(publisher);
  (*publisher)->publish("a");
  Replay replay(**publisher);

  EXPECT_EQ(replay.from(0)[0], (std::vector<std::string>{"", number(0), "a"}));
}

TEST(EventPublisher, FaultsHitTheLiveStreamAndReplayAsTheySay) {
  Metrics metrics;
  auto publisher = EventPublisher::create({}, 0, Release::kCurrent, metrics);
  ASSERT_TRUE(publisher);
  zmq::context_t context;
  zmq::socket_t live(context, zmq::socket_type::sub);
  live.set(zmq::sockopt::rcvtimeo, kPatienceMs);
  live.set(zmq::sockopt::subscribe, "kv-events");
  live.connect((*publisher)->endpoint());
  // A subscription takes a moment; batches that come before it are lost, so knock until heard.
  live.set(zmq::sockopt::rcvtimeo, 50);
  uint64_t knocks = 0;
  while (receive(live).empty()) {
    (*publisher)->publish("knock");
    ASSERT_LT(++knocks, 400U);
  }
  live.set(zmq::sockopt::rcvtimeo, kPatienceMs);

  (*publisher)->publish("dropped", PendingFaults::Batch::kDrop);
  (*publisher)->publish("lost", PendingFaults::Batch::kLose);
  (*publisher)->publish("twice", PendingFaults::Batch::kDuplicate);
  (*publisher)->publish("late", PendingFaults::Batch::kHoldBack);
  (*publisher)->publish("early");

  std::vector<std::string> heard;
  while (heard.size() < 4) {
    const auto frames = receive(live);
    ASSERT_EQ(frames.size(), 3U);
    if (frames[2] != "knock") {
      heard.push_back(frames[2]);
    }
  }
  EXPECT_EQ(heard, (std::vector<std::string>{"twice", "twice", "early", "late"}));
  Replay replay(**publisher);
  std::vector<std::string> kept;
  for (const auto& frames : replay.from(knocks)) {
    kept.push_back(frames.back());
  }
  EXPECT_EQ(kept, (std::vector<std::string>{"dropped", "twice", "late", "early", ""}));
}

TEST(EventPublisher, RestartedSequencesBeginAtZero) {
  Metrics metrics;
  auto publisher = EventPublisher::create({}, 0, Release::kCurrent, metrics);
  ASSERT_TRUE(publisher);
  (*publisher)->publish("a");
  (*publisher)->restart_sequence();
  (*publisher)->publish("b");
  Replay replay(**publisher);

  const auto answers = replay.from(0);

  ASSERT_EQ(answers.size(), 2U);
  EXPECT_EQ(answers[0], (std::vector<std::string>{"", "kv-events", number(0), "b"}));
}

TEST(EventPublisher, ADelayedReplayComesWhenItIsDue) {
  Metrics metrics;
  auto publisher = EventPublisher::create({}, 0, Release::kCurrent, metrics);
  ASSERT_TRUE(publisher);
  (*publisher)->publish("a");
  constexpr Duration kDelay = std::chrono::milliseconds(50);
  (*publisher)->delay_replay(kDelay);
  Replay replay(**publisher);
  const SystemClock clock;

  const TimePoint asked = clock.now();
  EXPECT_EQ(replay.from(0).size(), 2U);
  EXPECT_GE(clock.now() - asked, kDelay);

  (*publisher)->delay_replay(Duration::zero());
  EXPECT_EQ(replay.from(1).size(), 1U);
}

TEST(EventPublisher, ReplaysThatWaitAreBounded) {
  Metrics metrics;
  auto publisher = EventPublisher::create({}, 0, Release::kCurrent, metrics);
  ASSERT_TRUE(publisher);
  (*publisher)->delay_replay(std::chrono::hours(1));
  Replay replay(**publisher);
  for (size_t i = 0; i < EventPublisher::kReplaysMax + 3; ++i) {
    replay.ask(0);
  }
  const Counter dropped = metrics.counter("stator_fake_event_replays_dropped_total",
                                          "replay requests ignored because too many waited");
  while (dropped.value() < 3) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_EQ(dropped.value(), 3U);
}

TEST(EventPublisher, PortsFollowTheRank) {
  EXPECT_EQ(endpoint_of_rank("tcp://*:5557", 0), "tcp://*:5557");
  EXPECT_EQ(endpoint_of_rank("tcp://*:5557", 3), "tcp://*:5560");
  EXPECT_EQ(endpoint_of_rank("tcp://127.0.0.1:0", 3), "tcp://127.0.0.1:0");
  EXPECT_EQ(endpoint_of_rank("inproc://x", 1), "inproc://x_dp1");
  EXPECT_EQ(endpoint_of_rank("ipc:///tmp/x", 1), "ipc:///tmp/x");
  EXPECT_TRUE(is_bound_endpoint("tcp://*:5557"));
  EXPECT_TRUE(is_bound_endpoint("tcp://127.0.0.1:0"));
  EXPECT_FALSE(is_bound_endpoint("tcp://127.0.0.1:5557"));
}

TEST(EventPublisher, SaysWhichEndpointIsWrong) {
  Metrics metrics;
  const auto publisher =
      EventPublisher::create({.endpoint = "tcp://*:nowhere"}, 0, Release::kCurrent, metrics);

  ASSERT_FALSE(publisher);
  EXPECT_NE(publisher.error().message().find("tcp://*:nowhere"), std::string::npos);
}

}  // namespace
}  // namespace stator::fake_engine
