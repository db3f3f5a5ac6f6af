// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "stator/core/result.h"
#include "stator/io/file_descriptor.h"
#include "stator/storage/block_name.h"

namespace stator::storage {

/// One change of a disk tier, 64 bytes little-endian: CRC-32C of the rest, operation (u8), 3 zero
/// bytes, slot, generation (u32 each), lineage hash and parent's (big-endian), check.
struct JournalRecord {
  static constexpr size_t kBytes = 64;
  enum class Op : uint8_t { kPut = 1, kDelete = 2 };

  Op op = Op::kPut;
  uint32_t slot = 0;
  uint32_t generation = 0;
  BlockName name;
  kv::LineageHash parent;
  friend bool operator==(const JournalRecord&, const JournalRecord&) = default;
};

std::array<std::byte, JournalRecord::kBytes> encode(const JournalRecord& record);
std::optional<JournalRecord> decode_record(std::span<const std::byte> bytes);

/// What the records leave behind, in the order it was put, up to the first record that is damaged.
struct Replayed {
  std::vector<JournalRecord> live;
  size_t records = 0;
  size_t good_bytes = 0;  ///< of the journal: what follows is torn
};
/// `checkpoint` and then `journal`, both of records, over slots 0 … `slots` − 1.
Replayed replay(std::span<const std::byte> checkpoint, std::span<const std::byte> journal,
                uint32_t slots);

/// The append-only file of records and its compacted form. Thread-safety: its owner's lock.
///
/// J1  A crash at any byte leaves a prefix of what was appended.
/// J2  The checkpoint is replaced whole, then the journal is emptied: a crash in between replays
///     records whose outcome the checkpoint has already, with the same result.
class Journal {
 public:
  /// Opens or makes `folder`/g3.log and reads it with g3.ckpt.
  static Result<Journal> open(const std::string& folder, uint32_t slots);

  /// What was there at open().
  std::vector<JournalRecord> take_live() { return std::move(live_); }
  Status append(const JournalRecord& record);
  /// Whether so many live blocks are worth a checkpoint.
  bool wants_checkpoint(size_t live) const;
  /// `records`, oldest first, are all there is.
  Status checkpoint(std::span<const JournalRecord> records);
  uint64_t bytes() const { return bytes_; }

 private:
  Journal() = default;

  std::string folder_;
  io::FileDescriptor file_;
  uint64_t bytes_ = 0;
  std::vector<JournalRecord> live_;
};

}  // namespace stator::storage
