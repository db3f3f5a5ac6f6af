// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "stator/core/clock.h"
#include "stator/core/metrics.h"
#include "stator/core/mutex.h"
#include "stator/core/result.h"
#include "stator/io/file_descriptor.h"
#include "stator/storage/block_header.h"
#include "stator/storage/journal.h"
#include "stator/storage/slot_index.h"
#include "stator/storage/uring.h"

namespace stator::storage {

struct DiskTierOptions {
  std::string folder;
  uint64_t bytes = 0;         ///< of blocks and their headers; at least one must fit
  uint64_t block_bytes = 0;   ///< payload
  uint32_t block_tokens = 0;  ///< for tools that read the folder
  Digest space{};
  bool wipe_foreign = false;         ///< a folder of another namespace or block size is emptied
  bool direct = true;                ///< past the page cache, where the file system can
  bool uring = true;                 ///< read_all() by io_uring, where the kernel has it
  uint64_t write_bytes_per_day = 0;  ///< 0: any
};

/// KV blocks in one folder (G3), kept over restarts.
///
///   g3.super  namespace and geometry          g3.data  slots: header (4 KiB), payload, padding
///   g3.log    what changed since the          g3.ckpt  what is there, compacted
///             checkpoint                      g3.lock  held by the process that uses the folder
///
/// D1  A block is found only after all its bytes were written and its record was appended.
/// D2  A slot's old record is deleted in the journal before the slot's bytes change.
/// D3  What read() gives out has been checked: header, namespace, lineage, check, tokens, and a
///     CRC-32C over every byte. So a journal that lies costs a miss, never a wrong byte.
/// D4  After an error of the disk nothing more is written (enabled() is false); what can be read
///     still is.
/// Thread-safety: all methods, any thread; read() and write() block on the disk. Bounded by
/// `bytes`, which are reserved at open().
class DiskTier {
 public:
  /// kInvalidArgument: a folder of another namespace or geometry, or too few bytes. kAlreadyExists:
  /// another process uses it. kIo: the rest; the message names what to change.
  static Result<std::unique_ptr<DiskTier>> open(const DiskTierOptions& options, Clock& clock,
                                                Metrics& metrics);
  /// Writes a checkpoint.
  ~DiskTier();
  DiskTier(const DiskTier&) = delete;
  DiskTier& operator=(const DiskTier&) = delete;

  /// How many of the first blocks are there; uses them. Microseconds.
  size_t match(std::span<const BlockName> names);
  bool contains(const BlockName& name) const;
  /// The stored block with this lineage hash, for those who do not know the tokens.
  std::optional<BlockName> find(const kv::LineageHash& lineage) const;
  /// Whether a write of this block would be of use: it is not there and nothing else has its name.
  bool wants(const BlockName& name) const;

  /// Fills `payload` (block_bytes) with the block. kNotFound: it is not there (any more). kCorrupt:
  /// what is there is damaged, and is forgotten. kIo.
  Status read(const BlockName& name, std::span<const TokenId> tokens, std::span<std::byte> payload);
  struct Read {
    BlockName name;
    std::span<const TokenId> tokens;
    std::span<std::byte> payload;
    Status outcome;  ///< as of read()
  };
  /// The same for several: all are under way at once where an io_uring can be had (batches()), else
  /// one after the other.
  void read_all(std::span<Read> reads);
  bool batches() const { return uring_works_.load(std::memory_order_relaxed); }
  /// The same as read() with its header, for those who do not know the tokens.
  Result<BlockHeader> read_with_header(const BlockName& name, std::span<std::byte> payload) {
    return read_checked(name, {}, payload);
  }
  struct Block {
    const BlockName& name;
    const kv::LineageHash& parent;
    std::span<const TokenId> tokens;
    std::span<const std::byte> payload;
  };
  /// Stores it, evicting others. kAlreadyExists: nothing to do. kRateLimited: the day's write
  /// budget is used up. kUnavailable: not enabled. kIo: and from now on it is not.
  Status write(const Block& block);

  /// Forgets a block; false if it is not there.
  bool drop(const BlockName& name);

  /// `listener` hears of each block that leaves, under the tier's lock: it may only note it. Before
  /// the first write.
  void on_removed(std::function<void(const BlockName&)> listener);
  /// What is there, most recently used first, at most so many.
  std::vector<JournalRecord> newest(size_t count) const;
  /// The block's header, checked; its payload is not read. As read().
  Result<BlockHeader> read_header(const BlockName& name);

  bool enabled() const { return enabled_.load(std::memory_order_relaxed); }
  uint32_t slots() const { return slots_; }
  uint32_t stored() const;
  uint32_t recovered() const { return recovered_; }
  uint64_t evicted_total() const;
  uint64_t block_stride() const { return stride_; }
  const DiskTierOptions& options() const { return options_; }

 private:
  DiskTier(DiskTierOptions options, Clock& clock, Metrics& metrics);

  Status prepare();
  std::optional<uint32_t> pin(const BlockName& name);
  Result<BlockHeader> check_read(uint32_t slot, const BlockName& name,
                                 std::span<const TokenId> tokens, std::span<std::byte> header,
                                 std::span<std::byte> payload, Status moved);
  std::unique_ptr<Uring> take_ring();
  void give_ring(std::unique_ptr<Uring> ring);
  Result<BlockHeader> read_checked(const BlockName& name, std::span<const TokenId> tokens,
                                   std::span<std::byte> payload);
  Status open_data();
  Status transfer(uint32_t slot, std::span<std::byte> header, std::span<std::byte> payload,
                  bool write) const;
  void disable(const Error& error);
  bool take_budget() STATOR_REQUIRES(mutex_);
  Status reserve(const Block& block, SlotIndex::Reserved& out) STATOR_REQUIRES(mutex_);
  void forget(uint32_t slot, const BlockName& name);
  void tell_removed(const BlockName& name) STATOR_REQUIRES(mutex_);
  Status checkpoint() STATOR_REQUIRES(mutex_);

  const DiskTierOptions options_;
  Clock& clock_;
  uint64_t stride_ = 0;
  uint32_t slots_ = 0;
  uint32_t recovered_ = 0;
  io::FileDescriptor lock_;
  io::FileDescriptor data_;
  bool is_direct_ = false;  // whole pages at page addresses only
  std::atomic<bool> enabled_{true};

  mutable Mutex mutex_;
  SlotIndex index_ STATOR_GUARDED_BY(mutex_){0};
  std::function<void(const BlockName&)> removed_ STATOR_GUARDED_BY(mutex_);
  std::vector<uint32_t> generations_ STATOR_GUARDED_BY(mutex_);  // by slot
  std::unique_ptr<Journal> journal_ STATOR_GUARDED_BY(mutex_);
  uint32_t last_generation_ STATOR_GUARDED_BY(mutex_) = 0;
  std::vector<std::unique_ptr<Uring>> rings_ STATOR_GUARDED_BY(mutex_);  // one per reading thread
  std::atomic<bool> uring_works_{false};
  double budget_bytes_ STATOR_GUARDED_BY(mutex_) = 0;
  TimePoint budget_at_ STATOR_GUARDED_BY(mutex_);

  Gauge enabled_gauge_;
  Counter bytes_written_;
  Counter integrity_errors_;
  Counter io_errors_;
  Counter stale_;
};

/// The parts of a folder that tools read without an engine.
struct DiskFolder {
  Digest space{};
  uint64_t block_bytes = 0;
  uint32_t block_tokens = 0;
  uint32_t slots = 0;
};
Result<DiskFolder> read_disk_folder(const std::string& folder);
/// Bytes between two slots: header and payload, in whole pages.
uint64_t disk_stride(uint64_t block_bytes);

}  // namespace stator::storage
