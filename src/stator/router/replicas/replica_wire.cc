// SPDX-License-Identifier: Apache-2.0
#include "stator/router/replicas/replica_wire.h"

#include <variant>

#include "stator/proto/router/v1/replica.pb.h"

namespace stator::router {
namespace {

namespace pb = router::v1;
using router::ReplicaBooking;
using router::ReplicaEvent;

void encode_booking(const ReplicaBooking& booking, pb::Booking& out) {
  out.set_request(booking.request);
  out.set_model(booking.model);
  out.set_worker_id(booking.worker.worker.value());
  out.set_dp_rank(booking.worker.dp_rank);
  out.set_prompt_tokens(booking.prompt_tokens);
  out.set_prefill_tokens(booking.prefill_tokens);
  out.set_block_size(booking.block_size);
  if (booking.expected_output_tokens) {
    out.set_expected_output_tokens(*booking.expected_output_tokens);
  }
  out.set_prefill_completed(booking.prefill_completed);
  for (const blocks::SequenceHash hash : booking.sequences) {
    out.add_sequence_hashes(hash.value());
  }
}

Result<ReplicaBooking> decode_booking(const pb::Booking& message) {
  if (message.block_size() == 0) {
    return Error(Code::kCorrupt, "booking of a replica: block_size is 0");
  }
  const auto blocks = static_cast<uint64_t>(message.sequence_hashes_size());
  if (blocks * message.block_size() > message.prompt_tokens()) {
    return Error(Code::kCorrupt, "booking of a replica: more blocks than its prompt has");
  }
  ReplicaBooking booking{.request = message.request(),
                         .model = message.model(),
                         .worker = {WorkerId(message.worker_id()), message.dp_rank()},
                         .prompt_tokens = message.prompt_tokens(),
                         .prefill_tokens = message.prefill_tokens(),
                         .block_size = message.block_size(),
                         .prefill_completed = message.prefill_completed()};
  if (message.has_expected_output_tokens()) {
    booking.expected_output_tokens = message.expected_output_tokens();
  }
  booking.sequences.reserve(blocks);
  for (const uint64_t hash : message.sequence_hashes()) {
    booking.sequences.emplace_back(hash);
  }
  return booking;
}

Result<ReplicaEvent> decode_event(const pb::Event& message) {
  ReplicaEvent event{.sequence = message.sequence()};
  switch (message.data_case()) {
    case pb::Event::kAddRequest: {
      STATOR_TRY(event.data, decode_booking(message.add_request()));
      return event;
    }
    case pb::Event::kMarkPrefillCompleted:
      event.data = router::ReplicaPrefillCompleted{message.mark_prefill_completed()};
      return event;
    case pb::Event::kFree:
      event.data = router::ReplicaFree{message.free()};
      return event;
    default:
      return Error(Code::kCorrupt, "event of a replica: of a kind nobody knows here");
  }
}

}  // namespace

void encode(const router::ReplicaUpdate& update, pb::PullResponse& out) {
  out.set_router_id(update.router_id);
  out.set_sequence(update.sequence);
  out.mutable_digest()->set_count(update.digest.count);
  out.mutable_digest()->set_prefill_tokens(update.digest.prefill_tokens);
  out.mutable_digest()->set_checksum(update.digest.checksum);
  out.set_is_snapshot(update.is_snapshot);
  for (const ReplicaBooking& booking : update.bookings) {
    encode_booking(booking, *out.add_bookings());
  }
  for (const ReplicaEvent& event : update.events) {
    pb::Event& message = *out.add_events();
    message.set_sequence(event.sequence);
    if (const auto* booking = std::get_if<ReplicaBooking>(&event.data)) {
      encode_booking(*booking, *message.mutable_add_request());
    } else if (const auto* done = std::get_if<router::ReplicaPrefillCompleted>(&event.data)) {
      message.set_mark_prefill_completed(done->request);
    } else {
      message.set_free(std::get<router::ReplicaFree>(event.data).request);
    }
  }
}

Result<router::ReplicaUpdate> decode(const pb::PullResponse& message) {
  router::ReplicaUpdate update{.router_id = message.router_id(),
                               .sequence = message.sequence(),
                               .digest = {.count = message.digest().count(),
                                          .prefill_tokens = message.digest().prefill_tokens(),
                                          .checksum = message.digest().checksum()},
                               .is_snapshot = message.is_snapshot()};
  for (const pb::Booking& each : message.bookings()) {
    STATOR_TRY(ReplicaBooking booking, decode_booking(each));
    update.bookings.push_back(std::move(booking));
  }
  for (const pb::Event& each : message.events()) {
    STATOR_TRY(ReplicaEvent event, decode_event(each));
    update.events.push_back(std::move(event));
  }
  return update;
}

}  // namespace stator::router
