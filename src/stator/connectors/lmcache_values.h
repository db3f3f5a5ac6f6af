// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "stator/connectors/lmcache_wire.h"
#include "stator/core/result.h"
#include "stator/storage/cache_service.h"

namespace stator::connectors {

/// LMCache's values as records of a host's cache service: memory first, its folder behind it.
///
/// Values of one model have one size but for the last chunk of a prompt, and a folder's slots have
/// one size. So a value is stored in the namespace of its size class (four per power of two: at
/// most a fifth is padding), and what it is to LMCache stands in the record's header.
/// Thread-safety: that of the cache service, which outlives this.
class LmcacheValues {
 public:
  static constexpr int32_t kValueBytesMax = 512 << 20;

  explicit LmcacheValues(storage::CacheService& cache);

  bool has(std::string_view key) const;
  struct Value {
    LmMeta meta;
    std::shared_ptr<const std::string> record;  // shared with the cache
    /// `meta.length` bytes.
    std::span<const std::byte> bytes() const;
  };
  /// kNotFound; kCorrupt: what is there is no value of LMCache.
  Result<Value> get(std::string_view key) const;
  /// kAlreadyExists: it is there.
  Status put(std::string_view key, const LmMeta& meta, std::span<const std::byte> value);

 private:
  struct SizeClass {
    uint64_t bytes = 0;
    storage::Digest space{};
  };
  const SizeClass* find(std::string_view key) const;

  storage::CacheService& cache_;
  std::vector<SizeClass> classes_;  // ascending
};

}  // namespace stator::connectors
