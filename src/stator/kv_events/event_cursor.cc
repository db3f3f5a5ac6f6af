// SPDX-License-Identifier: Apache-2.0
#include "stator/kv_events/event_cursor.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "stator/kv_events/event_envelope.h"

namespace stator::kv_events {
namespace {

/// The first `count` blocks of a run; the rest stays and hangs on the last of them.
kv::BlocksStored split_front(kv::BlocksStored& run, size_t count) {
  kv::BlocksStored front;
  front.parent = run.parent;
  const auto cut = run.blocks.begin() + static_cast<ptrdiff_t>(count);
  front.blocks.assign(run.blocks.begin(), cut);
  run.parent = front.blocks.back().external;
  run.blocks.erase(run.blocks.begin(), cut);
  return front;
}

}  // namespace

std::optional<EventsChunk> EventCursor::next() {
  if (!snapshot_.empty()) {
    return next_of_snapshot();
  }
  if (next_id_ == 0) {
    take_snapshot();
    return next_of_snapshot();
  }
  auto read = log_.read_from(next_id_, limits_.events);
  auto* events = std::get_if<std::vector<kv::KvEvent>>(&read);
  if (events == nullptr) {
    take_snapshot();
    return next_of_snapshot();
  }
  if (events->empty()) {
    return std::nullopt;
  }
  size_t blocks = 0;
  const auto end = std::ranges::find_if(*events, [&](const kv::KvEvent& event) {
    blocks += block_count(event);
    return blocks > limits_.blocks && &event != events->data();
  });
  events->erase(end, events->end());
  const uint64_t last_id = events->back().event_id;
  next_id_ = last_id + 1;
  return EventsChunk{incarnation_, EventsChunk::Kind::kEvents, last_id, std::move(*events)};
}

EventsChunk EventCursor::next_of_snapshot() {
  EventsChunk chunk = std::move(snapshot_.front());
  snapshot_.pop_front();
  return chunk;
}

void EventCursor::take_snapshot() {
  using Kind = EventsChunk::Kind;
  kv::EventLog::Snapshot snapshot = log_.snapshot();
  next_id_ = snapshot.last_id + 1;
  snapshot_.push_back({incarnation_, Kind::kSnapshot, snapshot.last_id, {}});
  size_t room = limits_.blocks;
  for (kv::EventLog::Run& run : snapshot.stored) {
    while (!run.blocks.empty()) {
      if (room == 0) {
        snapshot_.push_back({incarnation_, Kind::kSnapshot, snapshot.last_id, {}});
        room = limits_.blocks;
      }
      const size_t count = std::min(room, run.blocks.size());
      room -= count;
      snapshot_.back().events.push_back({0, run.dp_rank, run.tier, split_front(run, count)});
    }
  }
  snapshot_.back().kind = Kind::kSnapshotLast;
}

Status EventAssembler::take(EventsChunk chunk) {
  if (chunk.incarnation != incarnation_) {
    incarnation_ = chunk.incarnation;
    interrupted();
    synced_ = false;
  }
  return chunk.kind == EventsChunk::Kind::kEvents ? take_events(std::move(chunk))
                                                  : take_snapshot_part(std::move(chunk));
}

void EventAssembler::interrupted() {
  parts_.clear();
  part_blocks_ = 0;
}

Status EventAssembler::take_snapshot_part(EventsChunk chunk) {
  for (const kv::KvEvent& event : chunk.events) {
    part_blocks_ += block_count(event);
  }
  if (part_blocks_ > kSnapshotBlocksMax) {
    interrupted();
    synced_ = false;
    return Error(Code::kTooLarge, fmt::format("worker {} sends a snapshot of more than {} blocks",
                                              worker_.value(), kSnapshotBlocksMax));
  }
  std::ranges::move(chunk.events, std::back_inserter(parts_));
  if (chunk.kind == EventsChunk::Kind::kSnapshotLast) {
    synced_ = true;
    last_id_ = chunk.last_id;
    std::vector<kv::KvEvent> blocks = std::exchange(parts_, {});
    part_blocks_ = 0;
    listener_.on_snapshot(worker_, std::move(blocks));
  }
  return {};
}

Status EventAssembler::take_events(EventsChunk chunk) {
  const bool in_order =
      synced_ && parts_.empty() && chunk.last_id == last_id_ + chunk.events.size();
  if (!in_order) {
    interrupted();
    synced_ = false;
    return Error(Code::kCorrupt, fmt::format("worker {}: KV events up to {} do not continue {}",
                                             worker_.value(), chunk.last_id, last_id_));
  }
  last_id_ = chunk.last_id;
  if (!chunk.events.empty()) {
    listener_.on_events(worker_, std::move(chunk.events));
  }
  return {};
}

}  // namespace stator::kv_events
