// SPDX-License-Identifier: Apache-2.0
#include "stator/kv_events/detail/durable_state.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <utility>

#include "stator/kv_events/event_cursor.h"
#include "stator/kv_events/msgpack_reader.h"
#include "stator/kv_events/msgpack_writer.h"

namespace stator::kv_events::detail {
namespace {

constexpr uint64_t kVersion = 1;
constexpr EventCursor::ChunkLimits kPartLimits{.events = kv_events::kEnvelopeEventsMax,
                                               .blocks = kv_events::kEnvelopeBlocksMax};

size_t stored_blocks(const std::vector<kv::KvEvent>& events) {
  size_t count = 0;
  for (const kv::KvEvent& event : events) {
    count +=
        std::holds_alternative<kv::BlocksStored>(event.data) ? kv_events::block_count(event) : 0;
  }
  return count;
}

}  // namespace

/// Only what events add up to, no history.
std::unique_ptr<kv::EventLog> DurableState::make_log() {
  return std::make_unique<kv::EventLog>(
      0, kv::EventLog::Limits{.events_max = 0, .blocks_max = EventAssembler::kSnapshotBlocksMax});
}

void DurableState::apply(uint64_t sequence, const kv_events::EventEnvelope& message) {
  watermark_ = sequence;
  if (message.events.empty()) {
    return;
  }
  Worker& worker = workers_[message.publisher];
  if (message.incarnation < worker.incarnation) {
    return;
  }
  if (message.incarnation != worker.incarnation || worker.held == nullptr) {
    worker = {.incarnation = message.incarnation, .held = make_log()};
  }
  if (!worker.complete || message.last_event_id <= worker.last_id) {
    return;
  }
  const uint64_t news = message.last_event_id - worker.last_id;
  worker.complete = news <= message.events.size();
  worker.last_id = message.last_event_id;
  if (worker.complete) {
    std::vector<kv::KvEvent> events(message.events.end() - static_cast<ptrdiff_t>(news),
                                    message.events.end());
    worker.blocks += stored_blocks(events);
    worker.held->append(std::move(events));
    if (worker.blocks > blocks_max_) {
      const auto snapshot = worker.held->snapshot();  // many of them may have been removed since
      worker.blocks = 0;
      for (const auto& run : snapshot.stored) {
        worker.blocks += run.blocks.size();
      }
      worker.complete = worker.blocks <= blocks_max_;
    }
  }
  if (!worker.complete) {
    worker.held = make_log();
  }
}

void DurableState::keep(const std::function<bool(WorkerId)>& is_wanted) {
  std::erase_if(workers_, [&](const auto& entry) { return !is_wanted(entry.first); });
}

size_t DurableState::incomplete() const {
  return static_cast<size_t>(
      std::ranges::count_if(workers_, [](const auto& entry) { return !entry.second.complete; }));
}

std::vector<kv_events::EventReply> DurableState::dump(WorkerId worker) const {
  std::vector<kv_events::EventReply> parts;
  const auto known = workers_.find(worker);
  if (known == workers_.end() || !known->second.complete) {
    return parts;
  }
  EventCursor cursor(*known->second.held, known->second.incarnation, 0, kPartLimits);
  for (bool last = false; !last;) {
    auto chunk = cursor.next();
    last = chunk->kind == EventsChunk::Kind::kSnapshotLast;
    parts.push_back({.kind = kv_events::EventReply::Kind::kTreeDump,
                     .worker = worker,
                     .incarnation = known->second.incarnation,
                     .part = static_cast<uint32_t>(parts.size()),
                     .last = last,
                     .last_event_id = known->second.last_id,
                     .events = std::move(chunk->events)});
  }
  return parts;
}

std::string DurableState::encode() const {
  std::vector<std::string> parts;
  for (const auto& [id, worker] : workers_) {
    for (const kv_events::EventReply& part : dump(id)) {
      parts.push_back(kv_events::encode(part));
    }
  }
  kv_events::MsgpackWriter out;
  out.map(3).text("version").integer(kVersion).text("watermark").integer(watermark_);
  out.text("parts").array(static_cast<uint32_t>(parts.size()));
  for (const std::string& part : parts) {
    out.bytes(part);
  }
  return out.take();
}

Status DurableState::load(const kv_events::EventReply& part) {
  if (part.kind != kv_events::EventReply::Kind::kTreeDump) {
    return Error(Code::kCorrupt, "snapshot of KV events: a part is no dump");
  }
  Worker& worker = workers_[part.worker];
  if (worker.held == nullptr) {
    worker = {.incarnation = part.incarnation, .held = make_log()};
  }
  worker.last_id = part.last_event_id;
  worker.blocks += stored_blocks(part.events);
  worker.held->append(part.events);
  return {};
}

Result<DurableState> DurableState::decode(std::string_view snapshot) {
  DurableState state;
  uint64_t version = 0;
  kv_events::MsgpackReader in(snapshot);
  const uint32_t fields = in.read_map();
  for (uint32_t i = 0; i < fields && in.ok(); ++i) {
    const std::string_view name = in.read_text();
    if (name == "version") {
      version = in.read_unsigned();
    } else if (name == "watermark") {
      state.watermark_ = in.read_unsigned();
    } else if (name == "parts") {
      const uint32_t parts = in.read_array();
      for (uint32_t part = 0; part < parts && in.ok(); ++part) {
        STATOR_TRY(const auto reply, kv_events::decode_reply(in.read_bytes()),
                   "snapshot of KV events");
        STATOR_CHECK(state.load(reply));
      }
    } else {
      in.skip();
    }
  }
  STATOR_CHECK(in.status(), "snapshot of KV events");
  if (version != kVersion) {
    return Error(Code::kCorrupt, "snapshot of KV events: an unknown version");
  }
  return state;
}

}  // namespace stator::kv_events::detail
