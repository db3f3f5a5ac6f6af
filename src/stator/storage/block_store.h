// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "stator/core/result.h"
#include "stator/storage/block_header.h"

namespace stator::storage {

/// Blocks that other processes share: an object store, a folder on a shared file system, the cache
/// service of a host. A record is a header and its payload in one piece; who reads one checks it,
/// because the store is trusted with nothing.
///
/// Thread-safety: all methods, any thread; they block on the network, never longer than the store's
/// own time limits.
class BlockStore {
 public:
  virtual ~BlockStore() = default;
  /// "object", "store" or "kept": label `tier` of metrics.
  virtual std::string_view tier() const = 0;
  /// How many of the first blocks are there, by the store's word.
  virtual Result<size_t> count(std::span<const BlockName> names) = 0;
  /// Fills `record` (header and payload). kNotFound: there is none. kCorrupt: shorter or longer.
  virtual Status get(const BlockName& name, std::span<std::byte> record) = 0;
  /// Stores it. kAlreadyExists: it is there.
  virtual Status put(const BlockName& name, std::span<const std::byte> record) = 0;
};

}  // namespace stator::storage
