// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "stator/core/clock.h"
#include "stator/core/config.h"
#include "stator/core/result.h"

namespace stator::app {

/// The tiers below an engine's own KV cache: host memory (G2), disk (G3), and what other hosts
/// share (G4).
struct KvSettings {
  std::string eviction = "lru";  ///< kv::Eviction of the engine's own cache
  uint64_t host_bytes = 0;       ///< per worker; 0: none
  double host_gb = 0;            ///< the same in 10^9 bytes; host_bytes wins
  std::string disk;              ///< folder; empty: none
  uint64_t disk_bytes = 0;
  double disk_gb = 0;
  uint64_t disk_blocks = 0;  ///< the same in blocks; goes before both
  std::string disk_on_mismatch = "refuse";
  bool disk_direct = true;
  bool disk_uring = true;
  uint64_t disk_write_bytes_per_day = 0;  ///< 0: any
  std::string object;                     ///< s3://BUCKET/PREFIX or file:///FOLDER; empty: none
  std::string object_endpoint;
  std::string object_region = "us-east-1";
  std::string object_access_key;
  std::string object_secret_key;
  std::string object_session_token;
  std::string kept;         ///< socket of `stator kv hold`; empty: none
  uint64_t kept_bytes = 0;  ///< of it, for this process
  std::string kept_name = "stator";
  std::string store;  ///< HOST:PORT of `stator store`; empty: none
  std::string salt;   ///< part of the namespace: another one starts over
  Duration load_timeout = std::chrono::seconds(2);

  uint64_t wanted_host_bytes() const;
  /// `block_bytes`: of one block, payload only; 0: not known yet, and disk_blocks is left out.
  uint64_t wanted_disk_bytes(uint64_t block_bytes = 0) const;
  /// Some tier below host memory.
  bool any_lower() const {
    return !disk.empty() || !object.empty() || !store.empty() || !kept.empty();
  }
  bool any() const { return any_lower() || wanted_host_bytes() > 0; }
};

void describe_kv(ConfigSchema& schema, KvSettings& settings);

/// After loading: what Dynamo's DYN_KVBM_OBJECT_*, DYN_KVBM_DISK_DISABLE_O_DIRECT and a disk size
/// without a folder say is put into our settings. `env` reads a variable. Errors: settings that
/// contradict each other, or are no address.
Status settle_kv(KvSettings& settings,
                 const std::function<std::optional<std::string>(const std::string&)>& env);

/// kInvalidArgument, with the numbers, when `workers` KV caches of `cache_bytes` and the tiers ask
/// for more than the machine or the container gives (a tenth is left to the rest), or the disk (a
/// twentieth is left). Only looked at when a tier is configured.
Status check_budgets(const KvSettings& settings, uint64_t workers, uint64_t cache_bytes);

}  // namespace stator::app
