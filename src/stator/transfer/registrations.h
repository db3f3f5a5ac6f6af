// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "stator/memory/arena.h"
#include "stator/transfer/types.h"

namespace stator::transfer {

/// What an agent has registered, with keys that nobody can guess from others, and the memory it has
/// lent out that other processes may map. One caller at a time.
class Registrations {
 public:
  /// A memfd, held as long as this; empty: none is to be had.
  std::span<std::byte> allocate(size_t bytes);
  void add(MemType type, std::span<const Desc> ranges);
  /// False: it is not registered.
  bool remove(MemType type, const Desc& range);
  /// Exactly this one; null: it is not registered.
  const Region* find(MemType type, const Desc& range) const;
  /// The registration with this key holds the range.
  bool allows(const RemoteKey& key, const Desc& range) const;
  /// Sorted as find_covering() wants; until the next change.
  std::span<const Region> all() const { return regions_; }
  /// Those that peers may reach.
  std::vector<Region> memory() const;
  uint64_t memory_bytes() const;

 private:
  Region describe(MemType type, const Desc& range) const;

  std::vector<std::unique_ptr<memory::Arena>> arenas_;
  std::vector<Region> regions_;
  std::map<RemoteKey, Desc> keys_;  // of memory
};

}  // namespace stator::transfer
