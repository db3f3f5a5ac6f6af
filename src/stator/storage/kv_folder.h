// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "stator/core/result.h"
#include "stator/io/file_descriptor.h"
#include "stator/storage/disk_tier.h"

namespace stator::storage {

/// A disk tier's folder as tools see it: what its journal says, read only, with or without an
/// engine at work in it. What changes meanwhile is seen as it was or as it is.
class KvFolder {
 public:
  /// kNotFound: no such folder; kCorrupt: none of ours.
  static Result<KvFolder> open(const std::string& folder);

  const DiskFolder& facts() const { return facts_; }
  /// What is there, least recently put first.
  const std::vector<JournalRecord>& blocks() const { return blocks_; }

  /// A block's header and bytes, checked as the engine checks them. kCorrupt, kNotFound (the slot
  /// has another block by now), kIo. `payload` is resized.
  Result<BlockHeader> read(const JournalRecord& block, std::vector<std::byte>& payload) const;

 private:
  KvFolder() = default;

  DiskFolder facts_;
  std::vector<JournalRecord> blocks_;
  io::FileDescriptor data_;
};

/// A prefix that many blocks share, and what stands behind it.
struct TopPrefix {
  kv::LineageHash head;       ///< first block
  uint64_t blocks = 0;        ///< of all sequences that begin with it
  uint32_t depth = 0;         ///< of the longest one, in blocks
  uint32_t shared_depth = 0;  ///< blocks before they part
};
/// All first blocks, those with the most blocks behind them first. Blocks whose head is gone count
/// for the first one of theirs that is there.
std::vector<TopPrefix> top_prefixes(const std::vector<JournalRecord>& blocks);

}  // namespace stator::storage
