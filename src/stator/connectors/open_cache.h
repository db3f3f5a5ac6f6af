// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "stator/connectors/engine_cache.h"
#include "stator/storage/block_name.h"
#include "stator/storage/open_object_store.h"

namespace stator::connectors {

/// A cache as its engine's operator describes it.
struct OpenOptions {
  storage::NamespaceFacts facts;  ///< with block_bytes and block_tokens
  uint64_t host_bytes = 0;
  std::string disk;  ///< folder, of this process alone; empty: none
  uint64_t disk_bytes = 0;
  uint64_t disk_write_bytes_per_day = 0;
  bool disk_wipe = false;              ///< empty a folder of another namespace
  std::string store;                   ///< "HOST:PORT" or "store://HOST:PORT" of a `stator store`
  storage::ObjectStoreOptions object;  ///< url empty: none
  uint32_t copy_threads = 1;
  bool verify_host = true;
};

/// Reads the disk's index and asks the object store once; a tier that cannot be used is said in the
/// log and left out. kInvalidArgument: more memory or disk than there is, or facts that no cache
/// can have. `clock` and `metrics` outlive the cache; metrics are not rendered after it.
Result<std::unique_ptr<EngineCache>> open_cache(const OpenOptions& options, Clock& clock,
                                                Metrics& metrics);

}  // namespace stator::connectors
