// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "stator/connectors/engine_memory.h"
#include "stator/connectors/host_blocks.h"
#include "stator/core/clock.h"
#include "stator/core/flat_map.h"
#include "stator/core/metrics.h"
#include "stator/core/mutex.h"
#include "stator/core/result.h"
#include "stator/memory/arena.h"
#include "stator/storage/io_pool.h"
#include "stator/storage/lower_tiers.h"

namespace stator::connectors {

struct EngineCacheOptions {
  storage::Digest space{};
  uint64_t block_bytes = 0;
  uint32_t block_tokens = 0;  ///< 0: blocks are named by text, nobody knows their tokens
  uint64_t host_bytes = 0;  ///< below kSlotsMin blocks: so much that lower tiers have room to pass
  uint32_t copy_threads = 1;
  bool verify_host = true;  ///< a checksum over every block that host memory gives out
};

/// The KV blocks of an engine that we did not write: host memory (G2) in front of the tiers below.
/// The engine names blocks, asks how long a prefix is there, and has blocks copied between its own
/// memory and the cache.
///
///   auto op = cache.start_get({.names = names, .tokens = tokens, .memory = kv, .blocks = ids});
///   cache.wait(op, 1s);                      // or poll() once per step
///   engine recomputes all behind result.blocks; cache.release(op);
///
/// E1  What a get copies into the engine's memory has been verified: what comes from below by
///     LowerTiers (T1), what was in host memory by a checksum made when it came.
/// E2  Engine memory is touched only between the start of an operation and its end. A get that
///     passed its deadline ends with what is in host memory; blocks that come later stay there.
/// E3  A block that waits for its way down is pinned; at most half of the slots do. At most another
///     quarter is pinned by stages and pins.
/// E4  At most kOperationsMax operations are open.
/// Thread-safety: all methods, any thread. None but wait(), flush() and the destructor blocks.
class EngineCache {
 public:
  static constexpr size_t kOperationsMax = 65'536;
  static constexpr size_t kNamesMax = 65'536;  ///< of one operation
  static constexpr uint32_t kSlotsMin = 16;
  using OperationId = uint64_t;

  /// `lower` may be null. kInvalidArgument: no block size. kIo: no memory.
  static Result<std::unique_ptr<EngineCache>> create(const EngineCacheOptions& options,
                                                     std::unique_ptr<storage::LowerTiers> lower,
                                                     Clock& clock, Metrics& metrics);
  /// Waits for copies under way; what was not flushed may not have gone down.
  ~EngineCache();
  EngineCache(const EngineCache&) = delete;
  EngineCache& operator=(const EngineCache&) = delete;

  struct Found {
    size_t present = 0;  ///< so many of the first blocks are in host memory or on disk
    size_t host = 0;     ///< of these, in host memory
    size_t disk = 0;     ///< of these, on disk only
    bool ask = false;    ///< a store may have more of them: start_probe(), start_stage()
  };
  /// Uses them. Microseconds.
  Found lookup(std::span<const storage::BlockName> names);

  struct Request {
    std::vector<storage::BlockName> names;  ///< in order of the sequence
    storage::BlockName parent{};            ///< put: of the block in front, default: none
    std::vector<TokenId> tokens{};          ///< block_tokens for each name, or empty
    std::shared_ptr<const EngineMemory> memory{};
    std::vector<uint64_t> blocks{};  ///< get, put: parallel to names, the engine's
    Duration limit{};                ///< 0: none
  };
  /// Loads the first blocks that are there, in any tier, into the engine's memory.
  Result<OperationId> start_get(Request request);
  /// Brings them into host memory and keeps them there until release(): a get of them is a copy.
  /// kOverloaded: other stages hold too much for all of them; without others a stage is as long as
  /// E3 lets it.
  Result<OperationId> start_stage(Request request);
  /// Counts how many are there in any tier.
  Result<OperationId> start_probe(Request request);
  /// Copies them out of the engine's memory, which is free again at the end of the operation;
  /// they go on to the tiers below behind that.
  Result<OperationId> start_put(Request request);

  struct Outcome {
    bool done = false;
    bool late = false;     ///< the limit passed; `blocks` are in place all the same
    size_t blocks = 0;     ///< so many of the first: loaded, staged, there, or taken
    size_t from_host = 0;  ///< get, stage: of these, were in host memory
  };
  /// kNotFound: no such operation.
  Result<Outcome> poll(OperationId id);
  Result<Outcome> wait(OperationId id, Duration at_most);
  /// Forgets it; a stage gives up its pins, a get that still loads is cancelled. False: a copy is
  /// under way, ask again.
  bool release(OperationId id);

  /// Keeps the first blocks that are in host memory there. Gives an id for unpin() and how many.
  /// kOverloaded: too much is pinned already.
  struct Pinned {
    uint64_t id = 0;
    size_t blocks = 0;
  };
  Result<Pinned> pin(std::span<const storage::BlockName> names, Duration ttl);
  bool unpin(uint64_t id);

  /// Waits until all blocks have gone down. kDeadline: some have not yet.
  Status flush(Duration at_most);

  struct Stats {
    uint64_t host_slots = 0;
    uint64_t host_blocks = 0;
    uint64_t host_pinned = 0;
    uint64_t host_evictions = 0;
    uint64_t disk_slots = 0;
    uint64_t disk_blocks = 0;
    uint64_t waiting_down = 0;  ///< blocks on their way down
    uint64_t dropped_down = 0;  ///< blocks that could not wait: E3
    uint64_t lookup_blocks = 0;
    uint64_t hit_blocks = 0;
    uint64_t get_blocks = 0;     ///< copied into the engine's memory
    uint64_t put_blocks = 0;     ///< copied out of it
    uint64_t loaded_blocks = 0;  ///< from tiers below host memory
    uint64_t integrity_errors = 0;
    uint64_t operations = 0;  ///< open
  };
  Stats stats() const;
  const EngineCacheOptions& options() const { return options_; }

 private:
  enum class Kind : uint8_t { kGet, kStage, kProbe, kPut };
  enum class Phase : uint8_t { kLoading, kCopying, kDone };
  struct Operation;
  struct Loading;
  using OperationRef = std::shared_ptr<Operation>;  // the map's, and those of jobs under way
  struct Down {
    uint32_t slot = 0;
    storage::BlockName name;
    kv::LineageHash parent;
    std::vector<TokenId> tokens;
  };
  struct Counters {
    explicit Counters(Metrics& metrics);
    Counter lookups, hits, gets, taken, dropped, integrity, kvbm_d2h, kvbm_h2d, kvbm_matched;
  };

  EngineCache(const EngineCacheOptions& options, memory::Arena arena, uint32_t slots,
              std::unique_ptr<storage::LowerTiers> lower, Clock& clock, Metrics& metrics);

  Result<OperationId> start(Kind kind, Request request);
  void begin_fetch(const OperationRef& op);
  void begin_put(const OperationRef& op);
  void ask_lower(const OperationRef& op, std::vector<size_t> missing);
  void load(const OperationRef& op, std::vector<size_t> missing);
  void on_loaded(const OperationRef& op, const Loading& loading, size_t count);
  void proceed(const OperationRef& op) STATOR_REQUIRES(mutex_);
  void copy_in(const OperationRef& op);
  void copy_out(const OperationRef& op);
  void finish(Operation& op) STATOR_REQUIRES(mutex_);
  void expire(const OperationRef& op) STATOR_REQUIRES(mutex_);
  void unpin_slots(Operation& op) STATOR_REQUIRES(mutex_);
  void drop_pins(TimePoint now) STATOR_REQUIRES(mutex_);
  void offer_down(uint32_t slot, const Operation& op, size_t index) STATOR_REQUIRES(mutex_);
  void pump();
  bool send_one_down();
  Outcome outcome(const Operation& op) const STATOR_REQUIRES(mutex_);
  size_t pins_left() const STATOR_REQUIRES(mutex_);
  std::span<std::byte> bytes_of(uint32_t slot);

  struct Pins {
    std::vector<uint32_t> slots;
    TimePoint until;
  };

  const EngineCacheOptions options_;
  Clock& clock_;
  memory::Arena arena_;

  mutable Mutex mutex_;
  std::condition_variable_any changed_;
  HostBlocks host_ STATOR_GUARDED_BY(mutex_);
  FlatMap<OperationId, OperationRef> operations_ STATOR_GUARDED_BY(mutex_);
  FlatMap<uint64_t, Pins> pins_ STATOR_GUARDED_BY(mutex_);
  std::deque<Down> down_ STATOR_GUARDED_BY(mutex_);
  uint64_t last_id_ STATOR_GUARDED_BY(mutex_) = 0;
  uint64_t stamp_ STATOR_GUARDED_BY(mutex_) = 0;
  size_t held_ STATOR_GUARDED_BY(mutex_) = 0;    // slots of stages and pins
  size_t staged_ STATOR_GUARDED_BY(mutex_) = 0;  // of these, of stages
  size_t copying_out_ STATOR_GUARDED_BY(mutex_) = 0;
  bool pumping_ STATOR_GUARDED_BY(mutex_) = false;
  bool pump_again_ STATOR_GUARDED_BY(mutex_) = false;

  Counters counters_;
  std::unique_ptr<storage::LowerTiers> lower_;
  std::unique_ptr<storage::IoPool> pool_;  // last: its jobs use the rest
};

}  // namespace stator::connectors
