// SPDX-License-Identifier: Apache-2.0
#include "stator/kv_events/event_envelope.h"

#include <gtest/gtest.h>

#include "stator/kv_events/msgpack_writer.h"

namespace stator::kv_events {
namespace {

using blocks::ExternalHash;
using blocks::LocalHash;

kv::KvEvent stored(uint64_t id) {
  return {id, 3, kv::StorageTier::kHostPinned,
          kv::BlocksStored{ExternalHash(9), {{ExternalHash(~uint64_t{0}), LocalHash(1)}}}};
}
kv::KvEvent removed(uint64_t id) {
  return {id, 0, kv::StorageTier::kDevice, kv::BlocksRemoved{{ExternalHash(1), ExternalHash(2)}}};
}
kv::KvEvent cleared(uint64_t id) {
  return {id, 0, kv::StorageTier::kDevice, kv::AllCleared{}};
}

TEST(EventEnvelope, EverythingComesBack) {
  const EventEnvelope envelope{.publisher = WorkerId(7),
                               .incarnation = Incarnation(1'700'000'000'000'000'000),
                               .sequence = 5,
                               .published_at_ms = -1,
                               .last_event_id = 12,
                               .events = {stored(10), removed(11), cleared(12)}};
  const EventEnvelope heartbeat{.publisher = WorkerId(7), .last_event_id = 12};
  for (const EventEnvelope& original : {envelope, heartbeat}) {
    const auto again = decode_envelope(encode(original));
    ASSERT_TRUE(again.has_value()) << again.error().message();
    EXPECT_EQ(*again, original);
  }

  const EventQuery query{WorkerId(7), 1, Incarnation(4), 99};
  EXPECT_EQ(*decode_query(encode(query)), query);
  EXPECT_EQ(decode_query(encode(EventQuery{WorkerId(7)}))->start_event_id, 0U);

  const EventReply reply{.kind = EventReply::Kind::kTreeDump,
                         .worker = WorkerId(7),
                         .incarnation = Incarnation(4),
                         .part = 2,
                         .last = true,
                         .last_event_id = 50,
                         .events = {stored(0), stored(0)},
                         .message = "m"};
  EXPECT_EQ(*decode_reply(encode(reply)), reply);
}

/// An event as another publisher of the same format writes it.
void write_foreign_event(MsgpackWriter& out, uint64_t worker, uint64_t id) {
  out.map(4).text("residency_domain").text("worker").text("worker_id").integer(worker);
  out.text("event").map(3).text("data").map(1).text("stored").map(2);
  out.text("blocks").array(1).map(3).text("tokens_hash").integer(5).text("mm_extra_info").nil();
  out.text("block_hash").integer(6).text("parent_hash").nil();
  out.text("event_id").integer(id).text("dp_rank").integer(0);
  out.text("state_source").text("x");
}

std::string foreign(uint64_t worker, std::initializer_list<uint64_t> ids) {
  MsgpackWriter payload;
  payload.array(static_cast<uint32_t>(ids.size()));
  for (const uint64_t id : ids) {
    write_foreign_event(payload, worker, id);
  }
  MsgpackWriter out;
  out.map(5).text("payload").bytes(payload.take()).text("topic").text("kv-events");
  out.text("publisher_id").integer(7).text("sequence").integer(0).text("published_at").integer(1);
  return out.take();
}

TEST(EventEnvelope, OtherPublishersWithoutOurFieldsAreRead) {
  const auto envelope = decode_envelope(foreign(7, {41, 42}));

  ASSERT_TRUE(envelope.has_value()) << envelope.error().message();
  EXPECT_EQ(envelope->last_event_id, 42U);
  EXPECT_EQ(envelope->events.at(1).tier, kv::StorageTier::kDevice);
  EXPECT_EQ(std::get<kv::BlocksStored>(envelope->events[1].data).blocks.at(0).local, LocalHash(5));
}

TEST(EventEnvelope, WhatContradictsItselfIsCorrupt) {
  std::string cut = encode(EventEnvelope{.publisher = WorkerId(7)});
  cut.pop_back();
  const std::string cases[] = {foreign(8, {1}),     // another worker's event
                               foreign(7, {1, 3}),  // a hole
                               foreign(7, {2, 1}),  // backwards
                               cut,
                               "",
                               "\xc1"};
  for (const std::string& bytes : cases) {
    const auto envelope = decode_envelope(bytes);
    ASSERT_FALSE(envelope.has_value());
    EXPECT_EQ(envelope.error().code(), Code::kCorrupt);
  }
  EXPECT_FALSE(decode_query("\x91\x01").has_value());
  EXPECT_FALSE(decode_reply("\x91\x01").has_value());
}

}  // namespace
}  // namespace stator::kv_events
