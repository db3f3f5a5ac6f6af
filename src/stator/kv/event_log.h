// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <variant>
#include <vector>

#include "stator/blocks/block_hash.h"
#include "stator/core/flat_map.h"
#include "stator/core/mutex.h"
#include "stator/core/result.h"
#include "stator/kv/event.h"

namespace stator::kv {

/// Wakes a reader of an EventLog.
class EventLogListener {
 public:
  virtual ~EventLogListener() = default;
  /// There is something to read. Called on the writer's thread after each append, and once on the
  /// subscribing thread if events were there already. Must not block and must not call subscribe or
  /// unsubscribe; usually sets a flag and posts to the reader's loop, which then calls read_from().
  virtual void on_events_available() noexcept = 0;
};

/// The recent KV events of one worker, of all its data-parallel ranks and tiers, and what they add
/// up to.
///
/// Readers keep their own position and pull:
///
///   auto read = log.read_from(next_id, 128);
///   if (auto* events = std::get_if<std::vector<KvEvent>>(&read)) {
///     apply(*events);                        // next_id = last applied id + 1
///   } else {
///     auto snapshot = log.snapshot();        // too far behind: start over from the truth
///     replace_everything(snapshot.stored);   // next_id = snapshot.last_id + 1
///   }
///
/// E1  Event ids are dense from 1.
/// E2  The ring holds the newest events, never more than events_max events nor blocks_max block
///     entries in them; older ones are a gap for whoever still wants them.
/// E3  The mirror is the result of all events so far; never more than blocks_max blocks. A stored
///     block beyond that is left out of snapshots (they may under-count, never over-count).
/// E4  A rank's AllCleared empties all tiers of that rank, and of no other.
///
/// Thread-safe: any number of writers and readers. Two locks: one for data, one for the listeners;
/// on_events_available runs under the second only, so a listener may read from inside it.
class EventLog {
 public:
  struct Limits {
    size_t events_max = 16 * 1024;
    size_t blocks_max = 1024 * 1024;  ///< 16 bytes each in the ring, about 40 in the mirror
    size_t listeners_max = 1024;
  };
  /// `dp_rank`: of events that are appended without a place.
  explicit EventLog(uint32_t dp_rank = 0) : EventLog(dp_rank, Limits{}) {}
  EventLog(uint32_t dp_rank, Limits limits) : dp_rank_(dp_rank), limits_(limits) {}
  EventLog(const EventLog&) = delete;
  EventLog& operator=(const EventLog&) = delete;

  /// Appends in order, then wakes every listener once. Returns the last id.
  /// Ids are given here; the events' own are not looked at. Without a place: the log's rank, on the
  /// device.
  uint64_t append(std::vector<KvEvent> batch);
  uint64_t append(std::vector<KvEventData> batch);
  uint64_t append(KvEventData data);

  /// Id of the newest event, 0 before the first.
  uint64_t last_id() const;

  /// The wanted events are not in the ring: they were overwritten, or the reader's position is from
  /// another life of this worker (ahead of last_id + 1). Take a snapshot.
  struct Gap {
    uint64_t oldest_id = 0;  ///< in the ring now; last_id + 1 if the ring is empty
    uint64_t last_id = 0;
    friend bool operator==(const Gap&, const Gap&) = default;
  };
  using ReadResult = std::variant<std::vector<KvEvent>, Gap>;
  /// Up to `events_max` events from `from_id` on (0 means 1); empty if the reader has seen them
  /// all.
  ReadResult read_from(uint64_t from_id, size_t events_max) const;

  /// Everything stored now, as runs in which parents come before their children, the device before
  /// the tiers below; applying AllCleared, then these in order, then the events after `last_id`
  /// gives the true state. O(stored blocks); the writer waits only while the mirror is copied.
  struct Run : BlocksStored {
    uint32_t dp_rank = 0;
    StorageTier tier = StorageTier::kDevice;
    friend bool operator==(const Run&, const Run&) = default;
  };
  struct Snapshot {
    std::vector<Run> stored;
    uint64_t last_id = 0;
  };
  Snapshot snapshot() const;

  /// Wakes `listener` from now on; at once if events from `from_id` on exist (or if it is a gap).
  /// The listener must stay alive until unsubscribe. kOverloaded beyond listeners_max;
  /// kAlreadyExists if it is subscribed.
  Status subscribe(uint64_t from_id, EventLogListener* listener);
  /// After it returns, the listener is not called again: waits for a running call. Unknown ones are
  /// ignored. Not from inside on_events_available.
  void unsubscribe(EventLogListener* listener);

 private:
  struct Mirrored {
    blocks::LocalHash local;
    std::optional<blocks::ExternalHash> parent;
  };
  using Mirror = FlatMap<blocks::ExternalHash, Mirrored>;
  using Tiers = std::array<Mirror, kStorageTierCount>;  // of one rank

  void append_one(KvEvent event) STATOR_REQUIRES(mutex_);
  void apply(const BlocksStored& stored, Tiers& tiers, StorageTier tier) STATOR_REQUIRES(mutex_);
  void trim() STATOR_REQUIRES(mutex_);
  void wake() STATOR_EXCLUDES(mutex_);
  static bool holds(const Tiers& tiers, blocks::ExternalHash block);
  static std::vector<BlocksStored> runs_of(const Tiers& tiers, StorageTier tier);

  const uint32_t dp_rank_;
  const Limits limits_;

  mutable Mutex mutex_;
  std::deque<KvEvent> ring_ STATOR_GUARDED_BY(mutex_);
  size_t ring_blocks_ STATOR_GUARDED_BY(mutex_) = 0;
  uint64_t last_id_ STATOR_GUARDED_BY(mutex_) = 0;
  std::map<uint32_t, Tiers> mirror_ STATOR_GUARDED_BY(mutex_);  // by rank
  size_t mirrored_ STATOR_GUARDED_BY(mutex_) = 0;               // blocks in all of it

  Mutex listeners_mutex_;
  std::vector<EventLogListener*> listeners_ STATOR_GUARDED_BY(listeners_mutex_);
};

}  // namespace stator::kv
