// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "stator/api/responses_encoder.h"
#include "stator/core/clock.h"
#include "stator/core/config.h"
#include "stator/core/flat_map.h"
#include "stator/core/metrics.h"
#include "stator/core/mutex.h"
#include "stator/io/journal.h"
#include "stator/responses/live_response.h"
#include "stator/responses/record.h"
#include "stator/responses/shared_folder.h"

namespace stator::responses {

struct StoreConfig {
  std::string folder;                       ///< empty: in memory only
  std::string shared_folder;                ///< of several processes; not with `folder`
  uint32_t entries_max = 65536;             ///< beyond: the least recently used goes
  uint64_t bytes_max = 256ULL << 20;        ///< the same, of texts
  Duration keep = std::chrono::hours(720);  ///< since it was made
};

/// Declares them under responses.*.
void describe(ConfigSchema& schema, StoreConfig& config);

/// The responses of a process, all shards together; with a shared folder, those of others, too.
///
/// S1  At most entries_max entries and bytes_max bytes; the least recently used go first, those
///     older than `keep` are not found any more. Asking for one uses its whole chain.
/// S2  With a folder, what put() took is there after the process was killed; after a power cut the
///     last second may be missing. A background response that was under way then has failed.
/// S3  An entry that cannot be written to the folder is kept in memory and counted.
/// S4  With a shared folder, what any of its processes put() is found by all of them until one of
///     them erases it; memory is a cache of it. A background response can be followed and cancelled
///     at the process that makes it, and is read anywhere.
///
/// Thread-safe; every call is short: a put() with a folder is one write to the page cache, of a
/// shared folder as long as a small file takes there.
class ResponseStore {
 public:
  using Entry = std::shared_ptr<const StoredResponse>;

  /// Reads what the folder has. Errors as io::Journal::open.
  static Result<std::unique_ptr<ResponseStore>> open(StoreConfig config, Metrics& metrics,
                                                     int64_t now_s);
  ResponseStore(const ResponseStore&) = delete;
  ResponseStore& operator=(const ResponseStore&) = delete;
  ~ResponseStore();

  /// Replaces the one of that id. Sets expires_s.
  void put(StoredResponse response, int64_t now_s);
  Entry find(std::string_view id, std::string_view owner, int64_t now_s);
  /// It and those before it, oldest first. kNotFound names the one that is missing.
  Result<std::vector<Entry>> chain(std::string_view id, std::string_view owner, int64_t now_s);
  /// The item of that id in a stored response, as JSON.
  std::optional<std::string> find_item(std::string_view item_id, std::string_view owner,
                                       int64_t now_s);
  bool erase(std::string_view id, std::string_view owner, int64_t now_s);

  /// A background response from its start to its end.
  void add_live(std::shared_ptr<LiveResponse> live);
  std::shared_ptr<LiveResponse> find_live(std::string_view id, std::string_view owner);
  void remove_live(std::string_view id);
  /// Asks the process that makes a background response to cancel it, within a second or so; false
  /// where there is no other.
  bool ask_cancel(std::string_view id);

  /// Once a second or so, from one thread: forgets what is too old, syncs.
  void tick(int64_t now_s);
  size_t size() const;

 private:
  struct Slot {
    Entry entry;
    SharedFolder::Stamp stamp;             // of its file, with a shared folder
    std::list<std::string>::iterator use;  // its place in uses_
  };
  ResponseStore(StoreConfig config, Metrics& metrics);
  void take(std::string_view record, int64_t now_s) STATOR_REQUIRES(mutex_);
  void insert(StoredResponse response, SharedFolder::Stamp stamp = {}) STATOR_REQUIRES(mutex_);
  void remove(std::string_view id) STATOR_REQUIRES(mutex_);
  void make_room() STATOR_REQUIRES(mutex_);
  Entry use(std::string_view id, std::string_view owner, int64_t now_s) STATOR_REQUIRES(mutex_);
  /// Brings memory up to date with the shared folder, if there is one.
  void refresh(std::string_view id, int64_t now_s) STATOR_EXCLUDES(mutex_);
  void tick_shared(int64_t now_s) STATOR_EXCLUDES(mutex_);
  void append(const std::string& record) STATOR_REQUIRES(mutex_);
  void compact() STATOR_REQUIRES(mutex_);
  void measure() STATOR_REQUIRES(mutex_);

  const StoreConfig config_;
  Gauge entries_gauge_;
  Gauge bytes_gauge_;
  Counter evicted_;
  Counter write_errors_;
  std::optional<SharedFolder> shared_;  // thread-safe
  int64_t touched_s_ = 0;               // when background responses were; of tick()'s thread
  mutable Mutex mutex_;
  FlatMap<std::string, Slot> slots_ STATOR_GUARDED_BY(mutex_);
  std::list<std::string> uses_ STATOR_GUARDED_BY(mutex_);  // least recently used first
  uint64_t bytes_ STATOR_GUARDED_BY(mutex_) = 0;
  FlatMap<std::string, std::shared_ptr<LiveResponse>> live_ STATOR_GUARDED_BY(mutex_);
  std::optional<io::Journal> journal_ STATOR_GUARDED_BY(mutex_);
  bool unsynced_ STATOR_GUARDED_BY(mutex_) = false;
};

}  // namespace stator::responses
