// SPDX-License-Identifier: Apache-2.0
#include "stator/router/replicas/replica_wire.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "stator/proto/router/v1/replica.pb.h"

namespace stator::router {
namespace {

router::ReplicaBooking booking() {
  return {.request = 5,
          .model = "m",
          .worker = {WorkerId(7), 2},
          .prompt_tokens = 40,
          .prefill_tokens = 8,
          .block_size = 16,
          .expected_output_tokens = 0,
          .prefill_completed = true,
          .sequences = {blocks::SequenceHash(1), blocks::SequenceHash(UINT64_MAX)}};
}

TEST(ReplicaWire, WhatIsSentIsWhatArrives) {
  router::ReplicaUpdate update{.router_id = 9, .sequence = 3, .digest = {1, 8, UINT64_MAX}};
  update.events = {
      {1, booking()}, {2, router::ReplicaPrefillCompleted{5}}, {3, router::ReplicaFree{5}}};
  router::v1::PullResponse message;
  encode(update, message);
  const auto decoded = decode(message);
  ASSERT_TRUE(decoded.has_value());
  EXPECT_EQ(decoded->router_id, 9U);
  EXPECT_EQ(decoded->digest, update.digest);
  ASSERT_EQ(decoded->events.size(), 3U);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(decoded->events[i].sequence, i + 1);
    EXPECT_EQ(decoded->events[i].data, update.events[i].data);
  }

  router::v1::PullResponse snapshot;
  encode({.router_id = 9, .is_snapshot = true, .bookings = {booking()}}, snapshot);
  const auto whole = decode(snapshot);
  ASSERT_TRUE(whole.has_value());
  EXPECT_TRUE(whole->is_snapshot);
  EXPECT_THAT(whole->bookings, ::testing::ElementsAre(booking()));
}

TEST(ReplicaWire, NonsenseIsRefused) {
  router::v1::PullResponse empty_event;
  empty_event.add_events()->set_sequence(1);
  EXPECT_EQ(decode(empty_event).error().code(), Code::kCorrupt);
  router::v1::PullResponse no_block_size;
  no_block_size.add_bookings()->set_prompt_tokens(5);
  EXPECT_FALSE(decode(no_block_size).has_value());
  router::v1::PullResponse too_many;
  auto& many = *too_many.add_bookings();
  many.set_block_size(16);
  many.set_prompt_tokens(31);
  many.add_sequence_hashes(1);
  EXPECT_TRUE(decode(too_many).has_value());
  many.add_sequence_hashes(2);
  EXPECT_FALSE(decode(too_many).has_value());
}

}  // namespace
}  // namespace stator::router
