// SPDX-License-Identifier: Apache-2.0
// With a real nats-server.
#include "stator/kv_events/jet_stream.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "stator/kv_events/object_store.h"
#include "stator/kv_events/test/nats_server.h"

namespace stator::kv_events {
namespace {

class JetStreamTest : public ::testing::Test {
 protected:
  JetStreamTest() {
    nats_ = NatsConnection::open({.url = server_.url()}, metrics_).value();
    jet_stream_ = JetStream::open(*nats_).value();
  }
  std::vector<std::string> read(uint64_t from, uint64_t to) {
    std::vector<std::string> out;
    const Status done = jet_stream_->read({.stream = "S", .subject = "s.>", .from = from, .to = to},
                                          [&](uint64_t, std::string_view payload) -> Status {
                                            out.emplace_back(payload);
                                            return {};
                                          });
    EXPECT_TRUE(done.has_value());
    return out;
  }
  uint64_t store(std::string_view payload, std::string id = {}) {
    return jet_stream_->publish({.subject = "s.a", .payload = payload, .id = std::move(id)})
        .value();
  }
  void make_stream(uint64_t bytes_max = 1 << 20) {
    ASSERT_TRUE(
        jet_stream_->ensure_stream({.name = "S", .subjects = {"s.>"}, .bytes_max = bytes_max})
            .has_value());
  }

  Metrics metrics_;
  test::NatsServer server_{test::NatsServer::JetStream::kOn};
  std::unique_ptr<NatsConnection> nats_;
  std::unique_ptr<JetStream> jet_stream_;
};

TEST_F(JetStreamTest, AStreamKeepsMessagesInOrderOverAKilledServer) {
  make_stream();
  make_stream();  // is there already
  for (int i = 1; i <= 300; ++i) {
    EXPECT_EQ(store("m" + std::to_string(i)), static_cast<uint64_t>(i));
  }

  server_.restart();
  while (!jet_stream_->state("S").has_value()) {
    std::this_thread::yield();
  }

  EXPECT_EQ(jet_stream_->state("S")->messages, 300U);
  const auto all = read(1, 300);
  ASSERT_EQ(all.size(), 300U);
  EXPECT_EQ(all.front(), "m1");
  EXPECT_EQ(all.back(), "m300");
  EXPECT_EQ(read(299, 300), (std::vector<std::string>{"m299", "m300"}));
  EXPECT_TRUE(read(301, 300).empty());
}

TEST_F(JetStreamTest, ASecondMessageOfAnIdIsDropped) {
  make_stream();
  EXPECT_EQ(store("a", "one"), 1U);
  EXPECT_EQ(store("a", "one"), 1U);
  EXPECT_EQ(store("b", "two"), 2U);
}

TEST_F(JetStreamTest, PurgedMessagesAreGoneAndNumbersGoOn) {
  make_stream();
  store("a");
  store("b");
  store("c");
  ASSERT_TRUE(jet_stream_->purge_below("S", 3).has_value());

  EXPECT_EQ(jet_stream_->state("S")->first, 3U);
  EXPECT_EQ(read(1, 3), std::vector<std::string>{"c"});
  ASSERT_TRUE(jet_stream_->purge_below("S", 4).has_value());
  EXPECT_EQ(jet_stream_->state("S")->messages, 0U);
  EXPECT_EQ(store("d"), 4U);
}

TEST_F(JetStreamTest, AFullStreamForgetsTheOldest) {
  make_stream(10'000);
  for (int i = 0; i < 30; ++i) {
    store(std::string(1000, 'x'));
  }
  EXPECT_EQ(jet_stream_->state("S")->last, 30U);
  EXPECT_LT(jet_stream_->state("S")->messages, 10U);
}

TEST_F(JetStreamTest, WhatIsNotThereIsNotFound) {
  EXPECT_EQ(jet_stream_->state("none").error().code(), Code::kNotFound);
  EXPECT_TRUE(jet_stream_->delete_stream("none").has_value());
}

TEST(JetStream, AServerWithoutItIsNamed) {
  Metrics metrics;
  test::NatsServer server;
  auto nats = NatsConnection::open({.url = server.url()}, metrics).value();
  auto jet_stream = JetStream::open(*nats).value();

  const Status made = jet_stream->ensure_stream({.name = "S", .subjects = {"s"}, .bytes_max = 1});

  ASSERT_FALSE(made.has_value());
  EXPECT_NE(made.error().message().find("-js"), std::string::npos) << made.error().message();
}

class ObjectStoreTest : public JetStreamTest {
 protected:
  ObjectStoreTest() { EXPECT_TRUE(objects_.ensure().has_value()); }
  ObjectStore objects_{*jet_stream_, "bucket", 64 << 20};
};

TEST_F(ObjectStoreTest, AnObjectOfManyChunksIsReadBackWhole) {
  std::string bytes;
  for (uint64_t i = 0; bytes.size() < (3 << 20) + 17; ++i) {
    bytes += std::to_string(i * 7919);
  }
  EXPECT_FALSE(objects_.get("state")->has_value());
  ASSERT_TRUE(objects_.put("state", bytes, 0).has_value());

  const auto read = objects_.get("state").value();

  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->bytes, bytes);
}

TEST_F(ObjectStoreTest, TheFirstOfTwoWritersWinsAndTheOldChunksGo) {
  ASSERT_TRUE(objects_.put("state", "one", 0).has_value());
  EXPECT_EQ(objects_.put("state", "other", 0).error().code(), Code::kAlreadyExists);
  const uint64_t revision = objects_.get("state").value()->revision;
  ASSERT_TRUE(objects_.put("state", "two", revision).has_value());
  EXPECT_EQ(objects_.put("state", "late", revision).error().code(), Code::kAlreadyExists);

  EXPECT_EQ(objects_.get("state").value()->bytes, "two");
  EXPECT_EQ(jet_stream_->state(objects_.stream())->messages, 2U);  // one chunk and its description
}

TEST_F(ObjectStoreTest, AnObjectWhoseChunksAreGoneIsCorruptNotShort) {
  ASSERT_TRUE(objects_.put("state", std::string(300'000, 'x'), 0).has_value());
  const uint64_t last = jet_stream_->state(objects_.stream())->last;
  ASSERT_TRUE(jet_stream_->purge_below(objects_.stream(), last - 1).has_value());

  EXPECT_EQ(objects_.get("state").error().code(), Code::kCorrupt);
}

}  // namespace
}  // namespace stator::kv_events
