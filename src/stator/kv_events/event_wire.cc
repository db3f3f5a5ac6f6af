// SPDX-License-Identifier: Apache-2.0
#include "stator/kv_events/event_wire.h"

#include <fmt/format.h>

#include <utility>
#include <variant>

#include "stator/proto/worker/v1/worker.pb.h"

namespace stator::kv_events {
namespace {

namespace pb = worker::v1;

Error corrupt(std::string_view what) {
  return {Code::kCorrupt, fmt::format("worker protocol: {}", what)};
}

struct DataEncoder {
  pb::KvEvent& out;

  void operator()(const kv::BlocksStored& stored) const {
    pb::Stored& message = *out.mutable_stored();
    if (stored.parent) {
      message.set_parent(stored.parent->value());
    }
    message.mutable_external()->Reserve(static_cast<int>(stored.blocks.size()));
    message.mutable_local()->Reserve(static_cast<int>(stored.blocks.size()));
    for (const kv::StoredBlock& block : stored.blocks) {
      message.add_external(block.external.value());
      message.add_local(block.local.value());
    }
  }
  void operator()(const kv::BlocksRemoved& removed) const {
    pb::Removed& message = *out.mutable_removed();
    message.mutable_external()->Reserve(static_cast<int>(removed.blocks.size()));
    for (const blocks::ExternalHash block : removed.blocks) {
      message.add_external(block.value());
    }
  }
  void operator()(const kv::AllCleared&) const { out.mutable_cleared(); }
};

Result<kv::BlocksStored> decode_stored(const pb::Stored& in) {
  if (in.external_size() != in.local_size()) {
    return corrupt("stored.external and stored.local differ in length");
  }
  kv::BlocksStored stored;
  if (in.has_parent()) {
    stored.parent = blocks::ExternalHash(in.parent());
  }
  stored.blocks.reserve(static_cast<size_t>(in.external_size()));
  for (int i = 0; i < in.external_size(); ++i) {
    stored.blocks.push_back({blocks::ExternalHash(in.external(i)), blocks::LocalHash(in.local(i))});
  }
  return stored;
}

kv::BlocksRemoved decode_removed(const pb::Removed& in) {
  kv::BlocksRemoved removed;
  removed.blocks.reserve(static_cast<size_t>(in.external_size()));
  for (const uint64_t block : in.external()) {
    removed.blocks.emplace_back(block);
  }
  return removed;
}

Result<kv::KvEvent> decode_event(const pb::KvEvent& in) {
  kv::KvEvent event;
  event.event_id = in.event_id();
  event.dp_rank = in.dp_rank();
  const int tier = in.tier();
  if (tier == pb::STORAGE_TIER_UNSPECIFIED || !pb::StorageTier_IsValid(tier)) {
    return corrupt(fmt::format("storage tier has the unknown value {}", tier));
  }
  event.tier = static_cast<kv::StorageTier>(tier - 1);
  switch (in.data_case()) {
    case pb::KvEvent::kStored: {
      STATOR_TRY(event.data, decode_stored(in.stored()));
      return event;
    }
    case pb::KvEvent::kRemoved:
      event.data = decode_removed(in.removed());
      return event;
    case pb::KvEvent::kCleared:
      event.data = kv::AllCleared();
      return event;
    case pb::KvEvent::DATA_NOT_SET:
      break;
  }
  return corrupt("a KV event of unknown kind");
}

// Ids must be dense and end at last_id, or a lost event would go unseen; a snapshot has none.
Status check_ids(const EventsChunk& chunk) {
  const size_t count = chunk.events.size();
  const bool numbered = chunk.kind == EventsChunk::Kind::kEvents;
  if (numbered && chunk.last_id < count) {
    return corrupt("more events than ids up to last_id");
  }
  for (size_t i = 0; i < count; ++i) {
    const kv::KvEvent& event = chunk.events[i];
    if (event.event_id != (numbered ? chunk.last_id - (count - 1 - i) : 0)) {
      return corrupt(fmt::format("event id {} out of order", event.event_id));
    }
    if (!numbered && !std::holds_alternative<kv::BlocksStored>(event.data)) {
      return corrupt("a snapshot holds something other than stored blocks");
    }
  }
  return {};
}

}  // namespace

void encode(const EventsChunk& chunk, pb::EventBatch& out) {
  out.set_incarnation(chunk.incarnation.value());
  out.set_kind(static_cast<pb::BatchKind>(static_cast<int>(chunk.kind) + 1));
  out.set_last_id(chunk.last_id);
  for (const kv::KvEvent& event : chunk.events) {
    pb::KvEvent& message = *out.add_events();
    message.set_event_id(event.event_id);
    message.set_dp_rank(event.dp_rank);
    message.set_tier(static_cast<pb::StorageTier>(static_cast<int>(event.tier) + 1));
    std::visit(DataEncoder{message}, event.data);
  }
}

Result<EventsChunk> decode(const pb::EventBatch& in) {
  const int kind = in.kind();
  if (kind == pb::BATCH_KIND_UNSPECIFIED || !pb::BatchKind_IsValid(kind)) {
    return corrupt(fmt::format("event batch kind has the unknown value {}", kind));
  }
  EventsChunk chunk;
  chunk.incarnation = Incarnation(in.incarnation());
  chunk.kind = static_cast<EventsChunk::Kind>(kind - 1);
  chunk.last_id = in.last_id();
  chunk.events.reserve(static_cast<size_t>(in.events_size()));
  for (const pb::KvEvent& event : in.events()) {
    STATOR_TRY(kv::KvEvent decoded, decode_event(event));
    chunk.events.push_back(std::move(decoded));
  }
  STATOR_CHECK(check_ids(chunk));
  return chunk;
}

}  // namespace stator::kv_events
