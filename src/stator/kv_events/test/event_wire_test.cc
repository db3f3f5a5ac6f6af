// SPDX-License-Identifier: Apache-2.0
#include "stator/kv_events/event_wire.h"

#include <gtest/gtest.h>

#include "stator/proto/worker/v1/worker.pb.h"

namespace stator::kv_events {
namespace {

namespace pb = worker::v1;

/// Through the actual bytes, not only through the message object.
pb::EventBatch reparse(const pb::EventBatch& message) {
  pb::EventBatch again;
  EXPECT_TRUE(again.ParseFromString(message.SerializeAsString()));
  return again;
}

TEST(EventWire, EventsSurviveTheRoundTrip) {
  using blocks::ExternalHash;
  using blocks::LocalHash;
  EventsChunk chunk{Incarnation(9), EventsChunk::Kind::kEvents, 13, {}};
  chunk.events.push_back({11, 2, kv::StorageTier::kDisk,
                          kv::BlocksStored{ExternalHash(1), {{ExternalHash(2), LocalHash(3)}}}});
  chunk.events.push_back(
      {12, 0, kv::StorageTier::kDevice, kv::BlocksRemoved{{ExternalHash(2), ExternalHash(4)}}});
  chunk.events.push_back({13, 0, kv::StorageTier::kHostPinned, kv::AllCleared()});

  pb::EventBatch message;
  encode(chunk, message);
  const auto decoded = decode(reparse(message));

  ASSERT_TRUE(decoded.has_value()) << decoded.error().to_string();
  EXPECT_EQ(decoded->incarnation, chunk.incarnation);
  EXPECT_EQ(decoded->kind, chunk.kind);
  EXPECT_EQ(decoded->last_id, 13U);
  EXPECT_EQ(decoded->events, chunk.events);
}

TEST(EventWire, RefusesUnknownEnumValues) {
  pb::EventBatch batch;
  EXPECT_EQ(decode(batch).error().code(), Code::kCorrupt);
  batch.set_kind(pb::BATCH_KIND_EVENTS);
  batch.set_last_id(1);
  pb::KvEvent& event = *batch.add_events();
  event.set_event_id(1);
  event.mutable_cleared();
  EXPECT_EQ(decode(batch).error().code(), Code::kCorrupt);
  event.set_tier(pb::STORAGE_TIER_DEVICE);
  EXPECT_TRUE(decode(batch).has_value());
  event.clear_data();
  EXPECT_EQ(decode(batch).error().code(), Code::kCorrupt);
}

TEST(EventWire, RefusesEventsWithGapsOrIdsInSnapshots) {
  pb::EventBatch batch;
  batch.set_kind(pb::BATCH_KIND_EVENTS);
  batch.set_last_id(7);
  pb::KvEvent& event = *batch.add_events();
  event.set_event_id(6);
  event.set_tier(pb::STORAGE_TIER_DEVICE);
  event.mutable_cleared();
  EXPECT_FALSE(decode(batch).has_value()) << "gap";
  event.set_event_id(7);
  EXPECT_TRUE(decode(batch).has_value());
  batch.set_kind(pb::BATCH_KIND_SNAPSHOT);
  EXPECT_FALSE(decode(batch).has_value()) << "id in a snapshot";
  event.set_event_id(0);
  EXPECT_FALSE(decode(batch).has_value()) << "a snapshot of something not stored";
  event.mutable_stored()->add_external(1);
  EXPECT_FALSE(decode(batch).has_value()) << "hashes not parallel";
  event.mutable_stored()->add_local(1);
  EXPECT_TRUE(decode(batch).has_value());
}

}  // namespace
}  // namespace stator::kv_events
