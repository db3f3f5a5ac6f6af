// SPDX-License-Identifier: Apache-2.0
#include "stator/frontend/stream_gate.h"

#include <gtest/gtest.h>

#include "stator/frontend/test/frontend_fixture.h"

namespace stator::frontend {
namespace {

using Copied = StreamGate::Copied;

constexpr EventId kId{.stream = {.high = 1, .low = 0xAB}, .holder = 0xC0FFEE};

std::string id_line(uint64_t event) {
  return "id: 000000000000000100000000000000ab-c0ffee." + std::to_string(event) + "\n";
}

class StreamGateTest : public ::testing::Test {
 protected:
  void start(uint64_t first = 0) {
    EventId id = kId;
    id.event = first;
    gate_.emplace(exchange_, id);
    gate_->start_stream(200, "text/event-stream", {});
  }
  void step(std::string_view frames, Copied copied = Copied::kUnderWay) {
    gate_->begin_step();
    gate_->write(frames);
    gate_->end_step(copied);
  }

  FakeExchange exchange_;
  std::optional<StreamGate> gate_;
};

TEST(EventId, TextComesBack) {
  const EventId id{.stream = {.high = ~0ULL, .low = 7}, .holder = 0xF00, .event = 123};
  const auto parsed = parse_event_id(to_string(id));
  ASSERT_TRUE(parsed);
  EXPECT_EQ(parsed->stream, id.stream);
  EXPECT_EQ(parsed->holder, id.holder);
  EXPECT_EQ(parsed->event, id.event);
}

TEST(EventId, OtherTextIsNone) {
  const std::string good = to_string(kId);
  for (const std::string& text :
       {std::string(), std::string("7"), good.substr(1), good + "x",
        good.substr(0, good.size() - 1), "g" + good.substr(1), std::string(32, '0') + "-.",
        std::string(32, '0') + "-1.-1", std::string(32, '0') + "-1.99999999999999999999",
        std::string(32, '0') + ".1-1"}) {
    EXPECT_FALSE(parse_event_id(text)) << text;
  }
}

TEST_F(StreamGateTest, WhatAStepWroteWaitsForItsCopy) {
  start();
  step("data: a\n\n");
  step("data: b\n\n");
  EXPECT_EQ(exchange_.text, "");
  gate_->confirm();
  EXPECT_EQ(exchange_.text, id_line(0) + "data: a\n\n");
  gate_->confirm();
  EXPECT_EQ(exchange_.text, id_line(0) + "data: a\n\n" + id_line(1) + "data: b\n\n");
  step("data: c\n\n", Copied::kNothing);
  EXPECT_TRUE(exchange_.text.ends_with("data: c\n\n"));
}

TEST_F(StreamGateTest, EveryFrameHasItsNumberAndCommentsHaveNone) {
  start();
  gate_->write(":\n\n");
  gate_->write("event: x\ndata: 1\n\ndata: 2\n\n");
  EXPECT_EQ(exchange_.text,
            ":\n\n" + id_line(0) + "event: x\ndata: 1\n\n" + id_line(1) + "data: 2\n\n");
}

TEST_F(StreamGateTest, TheEndComesAfterWhatWaits) {
  start();
  step("data: a\n\n");
  gate_->write("data: [DONE]\n\n");
  gate_->finish();
  EXPECT_FALSE(exchange_.ended);
  EXPECT_FALSE(gate_->done());
  gate_->confirm();
  EXPECT_TRUE(exchange_.text.ends_with(id_line(1) + "data: [DONE]\n\n"));
  EXPECT_TRUE(exchange_.ended);
  EXPECT_TRUE(gate_->done());
}

TEST_F(StreamGateTest, WithoutACopyNothingWaitsAndNoIdIsGood) {
  start();
  step("data: a\n\n");
  gate_->confirm();
  step("data: b\n\n");
  gate_->give_up();
  gate_->write("data: c\n\n");
  gate_->finish();
  EXPECT_EQ(exchange_.text, id_line(0) + "data: a\n\nid:\ndata: b\n\ndata: c\n\n")
      << "the copy may lack b, so the client must not come back with a's id";
  EXPECT_TRUE(gate_->done());
}

TEST_F(StreamGateTest, WhatAnotherCopyHasIsNamedByIt) {
  start();
  step("data: a\n\n");
  gate_->confirm();
  step("data: b\n\n");
  gate_->fall_back({.low = 1}, 0xE);
  step("data: c\n\n", Copied::kNothing);
  gate_->rename({.low = 2}, 0xF);
  step("data: d\n\n");
  const std::string until_c = exchange_.text;
  gate_->confirm();

  const std::string zeros(31, '0');
  EXPECT_EQ(until_c, id_line(0) + "data: a\n\nid: " + zeros + "1-e.1\ndata: b\n\nid: " + zeros +
                         "1-e.2\ndata: c\n\n");
  EXPECT_EQ(exchange_.text, until_c + "id: " + zeros + "2-f.3\ndata: d\n\n");
}

TEST_F(StreamGateTest, AStreamThatNeverHadACopyHasNoIds) {
  start();
  gate_->give_up();
  step("data: a\n\n", Copied::kNothing);
  EXPECT_EQ(exchange_.text, "data: a\n\n");
}

TEST_F(StreamGateTest, WhoCameBackToOneWithoutACopyLosesItsId) {
  start(1);
  gate_->give_up();
  step("data: a\n\ndata: b\n\n", Copied::kNothing);
  EXPECT_EQ(exchange_.text, "id:\ndata: b\n\n");
}

TEST_F(StreamGateTest, WhatTheClientHasIsNotSentAgain) {
  start(2);
  step("data: a\n\ndata: b\n\ndata: c\n\n");
  gate_->confirm();
  EXPECT_EQ(exchange_.text, id_line(2) + "data: c\n\n");
}

TEST_F(StreamGateTest, AnErrorBeforeTheFirstEventIsAStatus) {
  gate_.emplace(exchange_, kId);
  gate_->give_up();
  EXPECT_FALSE(exchange_.started);
  gate_->respond(503, "application/json", "{}", {});
  EXPECT_EQ(exchange_.status, 503);
}

}  // namespace
}  // namespace stator::frontend
