// SPDX-License-Identifier: Apache-2.0
#include "stator/net/work_queue.h"

#include <algorithm>

#include "stator/core/assert.h"

namespace stator::net {
namespace {

// Clients without work are looked through for those to forget when there are so many of them.
constexpr size_t kIdleClientsMax = 1024;

/// A client's part of a bound, at least 1.
size_t share_of(size_t bound) {
  return std::max<size_t>(
      1, static_cast<size_t>(WorkQueue::kClientShare * static_cast<double>(bound) + 0.5));
}

}  // namespace

WorkQueue::Room WorkQueue::room_for(const Work& work) const {
  if (tasks_.size() >= limits_.tasks_max ||
      (!tasks_.empty() && bytes_ + work.bytes > limits_.bytes_max)) {
    return Room::kFull;
  }
  if (work.client == 0) {
    return Room::kYes;
  }
  size_t tasks = 0;
  size_t bytes = 0;
  for (const Lane& lane : lanes_) {
    if (const auto client = lane.clients.find(work.client); client != lane.clients.end()) {
      tasks += client->second.waiting.size();
      bytes += client->second.bytes;
    }
  }
  const bool is_full = tasks >= share_of(limits_.tasks_max) ||
                       (tasks > 0 && bytes + work.bytes > share_of(limits_.bytes_max));
  return is_full ? Room::kClientFull : Room::kYes;
}

void WorkQueue::push(Work work) {
  STATOR_ASSERT(room_for(work) == Room::kYes, "Q4: whoever pushes has asked");
  Lane& lane = lane_of(work);
  forget_idle(lane);
  Client& client = lane.clients[work.client];
  if (client.waiting.empty()) {
    client.served = std::max(client.served, lane.clock);  // Q3
  }
  const Serial serial = ++last_serial_;
  client.waiting.emplace(work.bytes, serial);
  client.bytes += work.bytes;
  bytes_ += work.bytes;
  short_tasks_ += work.bytes <= limits_.short_bytes ? 1 : 0;
  tasks_.emplace(serial, std::move(work));
}

std::optional<WorkQueue::Serial> WorkQueue::choose(const Lane& lane, Which which) const {
  std::optional<std::pair<uint64_t, Serial>> best;  // bytes served with the task, its age
  for (const auto& [id, client] : lane.clients) {
    if (client.waiting.empty()) {
      continue;
    }
    const auto& [bytes, serial] = *client.waiting.begin();
    if (which == Which::kShort && bytes > limits_.short_bytes) {
      continue;
    }
    const std::pair offered{client.served + kTaskBytes + bytes, serial};
    if (!best || offered < *best) {
      best = offered;
    }
  }
  return best ? std::optional(best->second) : std::nullopt;
}

std::optional<WorkQueue::Serial> WorkQueue::choose(Which which) const {
  for (const Lane& lane : lanes_) {
    if (const auto serial = choose(lane, which)) {
      return serial;
    }
  }
  return std::nullopt;
}

std::optional<Work> WorkQueue::take(Which which) {
  if (!has(which)) {
    return std::nullopt;
  }
  if (which == Which::kAny && ++taken_ % kOldestEvery == 0) {
    return remove(tasks_.begin()->first);  // Q1
  }
  return remove(*choose(which));
}

Work WorkQueue::remove(Serial serial) {
  auto node = tasks_.extract(serial);
  Work work = std::move(node.mapped());
  Lane& lane = lane_of(work);
  Client& client = lane.clients.at(work.client);
  lane.clock = std::max(lane.clock, client.served);
  client.served += kTaskBytes + work.bytes;
  client.bytes -= work.bytes;
  client.waiting.erase({work.bytes, serial});
  bytes_ -= work.bytes;
  short_tasks_ -= work.bytes <= limits_.short_bytes ? 1 : 0;
  return work;
}

/// Those that are not ahead of the others begin where all begin; when nobody waits, nobody is
/// ahead.
void WorkQueue::forget_idle(Lane& lane) {
  if (lane.clients.size() < kIdleClientsMax) {
    return;
  }
  const bool nobody_waits = std::ranges::all_of(
      lane.clients, [](const auto& entry) { return entry.second.waiting.empty(); });
  absl::erase_if(lane.clients, [&](const auto& entry) {
    return entry.second.waiting.empty() && (nobody_waits || entry.second.served <= lane.clock);
  });
}

}  // namespace stator::net
